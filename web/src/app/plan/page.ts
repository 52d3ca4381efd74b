// A plan: what it costs, where its shards are placed, and what to try next.

import { Chart } from "../../charts/chart";
import { deviceTimes, ROWS, TIME_PARTS } from "../../charts/deviceTimes";
import { memoryBars } from "../../charts/memoryBars";
import { api, type DeviceCost } from "../api";
import { h, replace, withCode } from "../../dom";
import { button, say } from "../controls";
import { bytes, change, counted, percent, seconds } from "../format";
import { guardLeaving } from "../leaving";
import { aboutPlan } from "./about";
import { whatPays } from "./advice";
import { constraintsPanel, replan } from "./constraints";
import { Edit } from "./edit";
import { shardMap } from "./shardmap";
import { shardTable } from "./table";
import { whatIf } from "./whatif";

export async function planPage(into: HTMLElement, id: string): Promise<() => void> {
  const edit = new Edit(await api.plan(id));
  await edit.open();
  const page = new Page(edit);
  into.append(page.element);
  return page.begin();
}

const HEIGHT = 300; // pixels of a chart
const ROOM = 12; // pixels between the focused element and the bar
const NEARLY_FULL = 0.9; // share of a device's memory from which it counts as nearly full
const KEPT_FREE = 0.1; // share of a device's memory that the offered reserve keeps free
const IN_USE = [{ label: "Memory in use", colour: "weights" }];

function keys(series: [words: string, colour: string][]): HTMLElement {
  return h("ul", { class: "legend" }, series.map(([words, colour]) =>
    h("li", null, h("span", { class: "swatch", style: { background: `var(--chart-${colour})` } }), words)));
}

class Page {
  readonly element = h("div", { class: "plan" });
  private readonly figures = h("dl", { class: "figures", "aria-live": "polite" });
  private readonly verdict = h("p", { class: "lead" });
  private readonly trouble = h("div", { role: "alert" });
  private readonly full = h("div", { class: "full" });
  private readonly tools = h("div", { class: "edit-bar", hidden: true });
  private readonly steps = new Chart("Seconds of every device in a step, by part", HEIGHT, (theme) => deviceTimes(this.edit.devices, this.edit.bound, theme, undefined, this.edit.beside));
  private readonly memory = new Chart("Memory of every device against its capacity", HEIGHT, (theme) => memoryBars(this.edit.memory, IN_USE, theme));

  constructor(private readonly edit: Edit) {
    const { summary } = edit.view;
    this.element.append(
      aboutPlan(edit.view),
      this.figures, this.verdict, this.trouble, this.tools,
      this.full,
      ...[...edit.view.notes, ...summary.notes].map((note) => h("p", { class: "note known" }, withCode(note))),
      h("div", { class: "columns" },
        h("section", { class: "card", "aria-labelledby": "steps" }, h("h2", { id: "steps" }, "Where each device spends a step"), this.steps.element, keys([...TIME_PARTS.map(([, words, colour]): [string, string] => [words, colour]), ...(edit.beside ? [ROWS] : [])]),
          h("p", { class: "note" }, "The step ends when the slowest device does. The dashed line is the bound: no plan of this space is faster.")),
        h("section", { class: "card", "aria-labelledby": "memory" }, h("h2", { id: "memory" }, "What each device holds"), this.memory.element, keys(IN_USE.map((part) => [part.label, part.colour])),
          h("p", { class: "note" }, "Weights, optimizer states and buffers of the tables on each device."))),
      h("section", { class: "card", "aria-labelledby": "map" }, h("h2", { id: "map" }, "Where the shards are"), shardMap(edit)),
      h("div", { class: "columns" },
        h("section", { class: "card", "aria-labelledby": "whatif" }, h("h2", { id: "whatif" }, "What if…"), whatIf(edit)),
        h("section", { class: "card", "aria-labelledby": "rules" }, h("h2", { id: "rules" }, "Constraints"), constraintsPanel(edit))),
      h("section", { class: "card", "aria-labelledby": "pays" }, h("h2", { id: "pays" }, "What pays"), whatPays(edit.id)),
      h("section", { class: "card", "aria-labelledby": "tables" }, h("h2", { id: "tables" }, "Every table"), shardTable(edit)),
      h("p", { class: "note" }, edit.view.valid_for ? `The bound is valid for: ${edit.view.valid_for}.` : ""));
    edit.onChange(() => this.draw());
    this.drawFigures();
  }

  begin(): () => void {
    const undo = (event: KeyboardEvent) => {
      const typed = event.target instanceof HTMLElement && ["SELECT", "TEXTAREA"].includes(event.target.tagName)
        || (event.target instanceof HTMLInputElement && event.target.type !== "range");
      const key = event.key.toLowerCase();
      if (!"zy".includes(key) || !(event.ctrlKey || event.metaKey) || event.altKey || typed) return;
      event.preventDefault();
      if (key === "z" && !event.shiftKey) void this.edit.undo().then(() => say("The last change is taken back."));
      else void this.edit.redo().then(() => say("The change is done again."));
    };
    document.addEventListener("keydown", undo);
    const release = guardLeaving(() => (this.edit.unkept ? "Your last moves by hand could not be kept. Leave this plan and lose them?" : ""));
    const clear = (event: FocusEvent) => this.clearOfBar(event.target as HTMLElement);
    document.addEventListener("focusin", clear);
    return () => { document.removeEventListener("focusin", clear); document.removeEventListener("keydown", undo); release(); this.steps.end(); this.memory.end(); };
  }

  /** Scroll so that the focused element is not hidden by the bar. */
  private clearOfBar(focused: HTMLElement): void {
    if (this.tools.hidden || this.tools.contains(focused) || !this.element.contains(focused)) return;
    const [own, bar] = [focused.getBoundingClientRect(), this.tools.getBoundingClientRect()];
    if (own.bottom > bar.top && own.top < bar.bottom) window.scrollBy(0, own.bottom - bar.top + ROOM);
  }

  private draw(): void {
    this.drawFigures();
    this.steps.draw();
    this.memory.draw();
  }

  private drawFigures(): void {
    const { edit } = this;
    const { summary } = edit.view;
    const most = edit.devices.reduce((most, device) => (filled(device) > filled(most) ? device : most));
    const shift = edit.priced ? change(edit.total, summary.total_s) : "";
    const shown: [string, string, string][] = [
      ["Time of a step", seconds(edit.total), shift ? `${shift} from ${seconds(summary.total_s)}` : edit.view.typically],
      ["Bound", seconds(edit.bound), "no plan is faster"],
      ["Above the bound", percent(edit.gap), edit.gap === null && edit.priced?.broken.length ? "not a legal plan" : ""],
      ["Fullest device", percent(filled(most)),
        `${bytes(most.hbm_bytes)} of ${bytes(most.hbm_capacity_bytes)}`],
    ];
    replace(this.figures, shown.map(([name, value, more]) =>
      h("div", null, h("dt", null, name), h("dd", null, value, more ? h("small", null, more) : null))));
    this.verdict.textContent = verdict(edit);
    this.drawFull(most);
    this.drawTrouble();
  }

  /** A warning if the fullest device is nearly full, with a button that leaves room. */
  private drawFull(most: DeviceCost): void {
    const share = filled(most);
    const reserve = Math.round(most.hbm_capacity_bytes * KEPT_FREE);
    replace(this.full, share > NEARLY_FULL ? h("p", { class: "warning" },
      share > 1 ? `Device ${most.rank} needs ${percent(share)} of its memory: no job can run this plan, and it cannot be kept. `
        : `Device ${most.rank} is ${percent(share)} full: a batch with more ids, or another release of a library, may not fit. `,
      button(`Plan again with ${bytes(reserve)} kept free`, () => void replan(this.edit, null, { ...this.edit.changes, reserve_bytes: this.edit.view.cluster.reserve_bytes + reserve })
        .catch((error: Error) => replace(this.trouble, h("p", { class: "error" }, error.message))), "plain", { id: "reserve" })) : null);
  }

  private drawTrouble(): void {
    const { edit } = this;
    const said = edit.error ? [edit.error] : edit.priced?.broken ?? [];
    const told = [edit.unkept, edit.isOfAnother ? "The file of this plan has changed since these moves were made by hand; they are shown on the plan as it is now." : ""];
    replace(this.trouble, [...said, ...told].filter(Boolean).map((words) => h("p", { class: "error" }, words)));
    this.tools.hidden = !edit.isChanged && !edit.canUndo && !edit.canRedo;
    const count = edit.moves.length;
    replace(this.tools,
      h("span", { id: "effect" }, `${seconds(edit.total)} a step, ${change(edit.total, edit.view.summary.total_s)}; fullest device ${percent(fullest(edit))}`,
        h("small", null, count ? `${counted(count, "move")} by hand` : edit.isChanged ? "Another problem, the same shards" : "As it was planned; what was taken back can be done again")),
      button("Undo", () => void edit.undo(), "plain", { disabled: !edit.canUndo, id: "undo", "aria-keyshortcuts": "Control+Z", title: "Ctrl+Z" }),
      button("Redo", () => void edit.redo(), "plain", { disabled: !edit.canRedo, id: "redo", "aria-keyshortcuts": "Control+Shift+Z Control+Y", title: "Ctrl+Shift+Z" }),
      edit.isChanged ? button("Back to the plan", () => void edit.reset(), "plain", { id: "reset" }) : button("Forget them", () => void edit.clear(), "plain", { id: "forget" }),
      button("Keep as a new plan", () => void this.keep(), "primary", { id: "keep", disabled: !edit.isChanged || fullest(edit) > 1 }));
  }

  private async keep(): Promise<void> {
    try {
      const kept = await api.keep(this.edit.id, this.edit.moves, this.edit.changes, "");
      say("The changed plan is kept.");
      await this.edit.clear();
      location.hash = `#/plan/${kept.id}`;
    } catch (error) {
      replace(this.trouble, h("p", { class: "error" }, (error as Error).message));
    }
  }
}

function filled(device: DeviceCost): number {
  return device.hbm_bytes / device.hbm_capacity_bytes;
}

function fullest(edit: Edit): number {
  return Math.max(...edit.devices.map(filled));
}

/** What limits the step, in the words of the terminal and the report. */
function verdict(edit: Edit): string {
  const { rank, step_share: share, part, part_share: most } = edit.slowest;
  const near = edit.gap !== null && edit.gap < 0.01 ? "There is next to nothing left to gain. " : "";
  const whole = share === null ? "" : `for ${Math.round(100 * share)} % of the step, `;
  return `${near}Device ${rank} is the slowest ${whole}mostly ${part.replace(/_s$/, "").replaceAll("_", " ")} (${Math.round(100 * most)} %).`;
}
