// Constraints of a plan: rules as a list, a form to add one, and a new search with them.

import type { Changes, Group, Pin, Rules, TableData, TableRule } from "../api";
import { h, replace } from "../../dom";
import { button, field, say, select } from "../controls";
import { counted } from "../format";
import { search } from "../shelf";
import type { Edit } from "./edit";

type Wish = { kind: "pin" | "rule"; rule: TableRule } | { kind: "together"; rule: Group } | { kind: "apart"; rule: Group };

const panels = new WeakMap<Edit, Panel>();

/** Add a rule from another part of the page. */
export function wish(edit: Edit, wanted: Wish): void {
  panels.get(edit)?.add(wanted);
}

export function constraintsPanel(edit: Edit): HTMLElement {
  const panel = new Panel(edit);
  panels.set(edit, panel);
  return panel.element;
}

/** A rule that pins the pieces of a table where they are now. */
export function pinOf(edit: Edit, table: TableData): Pin {
  const pieces = edit.pieces.filter((piece) => piece.table === table);
  const ranks = pieces.flatMap((piece) => Array.from({ length: piece.span }, (_, i) => piece.rank + i));
  const pin: Pin = { sharding_type: table.sharding_type, compute_kernel: table.compute_kernel, ranks };
  return table.widths.length > 1 ? { ...pin, widths: table.widths } : pin;
}

/** Start a search for a plan's problem, changed, under rules, and open its page. */
export async function replan(edit: Edit, rules: Rules | null, changes: Changes): Promise<void> {
  const { name, workload } = edit.view.summary;
  const devices = (changes.hosts ?? 1) * (changes.local_world_size ?? 0);
  await search({
    plan: edit.id, name: devices ? `${workload || "tables"} on ${counted(devices, "device")}` : `${name}, planned anew`, time_limit_s: null, planner: "auto",
    cost_model: edit.view.summary.cost_model, ...(rules ? { constraints: rules } : {}),
    ...(Object.keys(changes).length ? { changes } : {}),
  });
}

class Panel {
  readonly element = h("div");
  private readonly list = h("ul", { class: "rules" });
  private readonly trouble = h("p", { class: "error", role: "alert", hidden: true });
  private readonly tables = h("input", { list: "table-names", placeholder: "such as user_*", autocomplete: "off" });
  readonly rules: Rules;

  constructor(private readonly edit: Edit) {
    const own = edit.view.constraints as Partial<Rules>;
    this.rules = {
      rules: own.rules ?? [], together: own.together ?? [], apart: own.apart ?? [], per_rank: own.per_rank ?? [],
      memory: own.memory ?? "real", keep_exact: own.keep_exact ?? false,
    };
    this.element.append(this.list, this.form(), h("div", { class: "buttons" },
      button("Plan again with these rules", () => void this.plan(), "primary", { id: "replan" })), this.trouble);
    this.draw();
  }

  add(wanted: Wish): void {
    if (wanted.kind === "together") this.rules.together.push(wanted.rule);
    else if (wanted.kind === "apart") this.rules.apart.push(wanted.rule);
    else this.rules.rules.push(wanted.rule);
    say("A rule was added; plan again to keep it.");
    this.draw();
  }

  private draw(): void {
    const { rules, together, apart } = this.rules;
    const rows = [
      ...rules.map((rule, i) => this.row(words(rule), () => rules.splice(i, 1))),
      ...together.map((each, i) => this.row(`${each.tables.join(", ")}: together on the same devices`, () => together.splice(i, 1))),
      ...apart.map((each, i) => this.row(`${each.tables.join(", ")}: no two on the same device`, () => apart.splice(i, 1))),
    ];
    replace(this.list, rows.length ? rows : h("li", { class: "note" }, "None yet: the search may place every table anywhere."));
  }

  private row(text: string, drop: () => void): HTMLElement {
    return h("li", null, h("span", null, text), button("Remove", () => { drop(); this.draw(); if (!this.list.contains(document.activeElement)) this.tables.focus(); }, "quiet", { "aria-label": `Remove the rule ${text}` }));
  }

  private form(): HTMLElement {
    const names = h("datalist", { id: "table-names" }, this.edit.view.data.tables.slice(0, 2000).map((table) => h("option", { value: table.name })));
    const { tables } = this;
    const ranks = h("input", { placeholder: "such as 0, 1", inputmode: "numeric", autocomplete: "off" });
    const ranksField = field("Devices", ranks);
    const kinds: [string, string][] = [
      ["ranks", "only on these devices"], ["not_ranks", "not on these devices"], ["pin", "stay where they are now"],
      ["together", "together on the same devices"], ["apart", "no two on the same device"],
    ];
    const kind = select(kinds, "ranks", (value) => (ranksField.hidden = !value.endsWith("ranks")));
    const add = () => {
      try {
        this.read(kind.value, tables.value, ranks.value).forEach((each) => this.add(each));
        [tables.value, ranks.value] = ["", ""];
        this.fail("");
      } catch (error) {
        this.fail((error as Error).message);
      }
    };
    return h("div", { class: "row end" }, names, field("Tables", tables), field("Rule", kind), ranksField, button("Add rule", add, "plain", { id: "add-rule" }));
  }

  private read(kind: string, tables: string, ranks: string): Wish[] {
    const named = tables.split(",").map((word) => word.trim()).filter(Boolean);
    if (!named.length) throw new Error("Name the tables that the rule is about.");
    if (kind === "together" || kind === "apart") {
      if (named.length < 2 && !named[0]!.includes("*")) throw new Error("Name at least two tables, with commas between them.");
      return [{ kind, rule: { tables: named } }];
    }
    if (kind === "pin") {
      const found = this.edit.view.data.tables.filter((table) => named.includes(table.name));
      if (!found.length) throw new Error("No table is called so; pins take whole names.");
      return found.map((table): Wish => ({ kind: "pin", rule: { tables: table.name, pin: pinOf(this.edit, table) } }));
    }
    const numbers = ranks.split(",").map((word) => (/^\d+$/.test(word.trim()) ? Number(word) : NaN));
    if (numbers.some((each) => !(each < this.edit.devices.length)))
      throw new Error(`Name devices by their numbers, 0 to ${this.edit.devices.length - 1}.`);
    return named.map((name): Wish => ({ kind: "rule", rule: { tables: name, [kind]: numbers } }));
  }

  private async plan(): Promise<void> {
    await replan(this.edit, this.rules, this.edit.changes).catch((error: Error) => this.fail(error.message));
  }

  private fail(message: string): void {
    this.trouble.hidden = message === "";
    this.trouble.textContent = message;
  }
}

function words(rule: TableRule): string {
  const said = Object.entries(rule).filter(([key, value]) => key !== "tables" && key !== "optional" && value !== null);
  const parts = said.map(([key, value]) => {
    if (key === "pin") {
      const pin = value as Pin;
      return pin.ranks.length > 8 ? `stays ${pin.sharding_type.replaceAll("_", " ")} on ${counted(pin.ranks.length, "device")}`
        : `stays ${pin.sharding_type.replaceAll("_", " ")} on device ${pin.ranks.join(", ")}`;
    }
    if (key === "ranks") return `only on device ${(value as number[]).join(", ")}`;
    if (key === "not_ranks") return `not on device ${(value as number[]).join(", ")}`;
    return `${key.replaceAll("_", " ")} ${Array.isArray(value) ? value.join(", ") : String(value)}`;
  });
  return `${rule.tables}: ${parts.join("; ")}`;
}
