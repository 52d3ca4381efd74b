// A plan's name, note and origin, and the actions on the whole plan.

import { api, type PlanView } from "../api";
import { h, replace } from "../../dom";
import { button, field, say } from "../controls";
import { counted } from "../format";
import { deleted } from "../shelf";

export function aboutPlan(view: PlanView): HTMLElement {
  return new About(view).element;
}

class About {
  readonly element = h("div");
  private readonly title = h("div");
  private readonly note = h("div", { class: "plan-note" });
  private readonly trouble = h("p", { class: "error", role: "alert" });

  constructor(private readonly view: PlanView) {
    const { summary } = view;
    const facts = [
      `${counted(summary.tables, "table")} on ${summary.cluster}`, `planner ${summary.planner}`, `cost model ${summary.cost_model}`,
      `${counted(summary.batch_size, "sample")} per device`,
    ].join(" · ");
    this.drawTitle();
    this.drawNote();
    this.element.append(
      h("div", { class: "title-row" },
        h("div", null, this.title, h("p", { class: "note" }, facts), this.origin()),
        h("div", { class: "buttons" },
          h("a", { class: "button plain", href: api.fileOf(summary.id), download: "", id: "download-plan" }, "Download plan"),
          h("a", { class: "button plain", href: api.reportOf(summary.id), download: "", id: "download-report" }, "Download report"),
          h("a", { class: "button plain", href: `#/compare/${summary.id}` }, "Compare"),
          button("Duplicate", () => void this.copy(), "plain", { id: "duplicate" }),
          button("Delete", () => void this.remove(), "danger", { id: "delete" }))),
      this.note, this.trouble, asked(view.question) ?? "",
      summary.unwritten ? h("p", { class: "warning", id: "unwritten" }, `This plan is not in its folder yet: ${summary.unwritten}. It is written as soon as that is possible; until then it is in memory alone.`) : "");
  }

  private origin(): HTMLElement {
    const { summary } = this.view;
    const when = new Date(summary.made * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
    return h("p", { class: "note", id: "origin" }, `From ${summary.origin}, ${when}`,
      summary.parent ? [" · ", h("a", { href: `#/plan/${summary.parent}` }, "the plan that it was made from")] : null);
  }

  private drawTitle(): void {
    replace(this.title, h("div", { class: "named" }, h("h1", null, this.view.summary.name), button("Rename", () => this.rename(), "quiet", { id: "rename" })));
  }

  private rename(): void {
    const name = h("input", { value: this.view.summary.name, maxlength: 200, id: "plan-name" });
    const form = h("form", { class: "row end", onsubmit: (event: Event) => { event.preventDefault(); void this.save({ name: name.value }); } },
      field("Name of the plan", name), h("button", { type: "submit", class: "button primary" }, "Save"),
      button("Cancel", () => this.drawTitle(), "plain"));
    form.addEventListener("keydown", (event) => { if (event.key === "Escape") this.drawTitle(); });
    replace(this.title, h("h1", null, this.view.summary.name), form);
    name.focus();
    name.select();
  }

  private drawNote(): void {
    const { note } = this.view.summary;
    replace(this.note, note ? h("p", { class: "said" }, lines(note)) : null,
      button(note ? "Change the note" : "Add a note", () => this.editNote(), "quiet", { id: "edit-note" }));
  }

  private editNote(): void {
    const note = h("textarea", { rows: 3, maxlength: 10000, id: "plan-note" });
    note.value = this.view.summary.note;
    replace(this.note, field("Note", note), h("div", { class: "buttons" },
      button("Save", () => void this.save({ note: note.value }), "primary", { id: "save-note" }), button("Cancel", () => this.drawNote(), "plain")));
    note.focus();
  }

  private async save(said: { name?: string; note?: string }): Promise<void> {
    await this.tried(async () => {
      Object.assign(this.view.summary, await api.describe(this.view.summary.id, said));
      this.drawTitle();
      this.drawNote();
      document.title = `${this.view.summary.name} · RecSmith`;
      say("It is kept.");
    });
  }

  private async copy(): Promise<void> {
    await this.tried(async () => {
      const made = await api.copy(this.view.summary.id);
      location.hash = `#/plan/${made.id}`;
    });
  }

  private async remove(): Promise<void> {
    await this.tried(async () => {
      await api.remove(this.view.summary.id);
      deleted.add(this.view.summary.id);
      location.hash = "#/compare/";
    });
  }

  private async tried(act: () => Promise<void>): Promise<void> {
    this.trouble.textContent = "";
    await act().catch((error: Error) => (this.trouble.textContent = error.message));
  }
}

/** The request of the plan's search, in a closed section. */
function asked(question: PlanView["question"]): HTMLElement | null {
  if (!question) return null;
  const text = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value).replaceAll('"', "").replaceAll(",", ", "));
  return h("details", { id: "question" }, h("summary", null, "What the search was asked for"),
    h("dl", { class: "keys" }, Object.entries(question).filter(([, value]) => value !== null).map(([key, value]) => [h("dt", null, key.replaceAll("_", " ")), h("dd", null, text(value))])));
}

/** A text with a line break between its lines. */
function lines(text: string): (string | HTMLElement)[] {
  return text.split("\n").flatMap((line, i) => (i ? [h("br"), line] : [line]));
}
