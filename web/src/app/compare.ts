// Plans side by side: choose some of the kept ones, see their figures and what changes from the first to the others.

import { api, type PlanSummary, type SideBySide } from "./api";
import { h, replace } from "../dom";
import { bytes, change, counted, percent, seconds } from "./format";
import { planList } from "./plans";
import { kept } from "./shelf";

const SHOWN = 100; // changed tables that are listed

export async function compare(into: HTMLElement, word: string): Promise<void> {
  const plans = (await kept()).plans.toReversed();
  const chosen = word.split(",").filter((id) => plans.some((plan) => plan.id === id));
  const result = h("div", { "aria-live": "polite" });
  into.append(h("h1", null, "Your plans"));
  if (!plans.length) {
    into.append(h("p", { class: "lead" }, "There is none yet. ", h("a", { href: "#/" }, "Find a plan"), " or open the file of one there."));
    return;
  }
  into.append(h("p", { class: "lead" }, "Tick two or more to see them side by side."), planList(plans, (plan) => box(plan, chosen), (plan) => void forget(plan)), result);
  if (chosen.length > 1) replace(result, table(await api.compare(chosen)));
}

async function forget(plan: PlanSummary): Promise<void> {
  await api.forget(plan.id);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The plans that the address names: it changes at once, and the page only when their figures have come. */
const named = (): string[] => location.hash.replace("#/compare/", "").split(",").filter(Boolean);

function box(plan: PlanSummary, chosen: string[]): HTMLElement {
  const made = h("input", { type: "checkbox", checked: chosen.includes(plan.id), "aria-label": `Compare ${plan.name}`,
    onchange: () => {
      const others = named().filter((id) => id !== plan.id);
      const now = made.checked ? [...others, plan.id] : others;
      location.hash = `#/compare/${now.join(",")}`;
    } });
  return made;
}

function table(found: SideBySide): HTMLElement {
  const first = found.plans[0]!;
  const rows: [string, (plan: PlanSummary) => string][] = [
    ["Time of a step", (plan) => `${seconds(plan.total_s)} ${plan === first ? "" : `(${change(plan.total_s, first.total_s)})`}`],
    ["Bound", (plan) => seconds(plan.bound_s)],
    ["Above the bound", (plan) => percent(plan.gap)],
    ["Slowest over mean device", (plan) => percent(plan.total_s / plan.mean_s - 1)],
    ["Fullest device", (plan) => `${bytes(plan.largest_hbm_bytes)} of ${bytes(plan.hbm_capacity_bytes)}`],
    ["Cluster", (plan) => plan.cluster],
    ["Tables", (plan) => String(plan.tables)],
    ["Samples per device", (plan) => String(plan.batch_size)],
    ["Planner", (plan) => plan.planner],
    ["Cost model", (plan) => plan.cost_model],
  ];
  return h("div", null,
    h("h2", null, "Side by side"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Comparison" },
      h("table", { class: "compare", id: "comparison" },
        h("thead", null, h("tr", null, h("td"), found.plans.map((plan) => h("th", { scope: "col" }, h("a", { href: `#/plan/${plan.id}` }, plan.name))))),
        h("tbody", null, rows.map(([name, cell]) =>
          h("tr", null, h("th", { scope: "row" }, name), found.plans.map((plan) => h("td", null, cell(plan)))))))),
    settings(found),
    found.differences.map((each) => difference(each, found)));
}

/** What the plans were asked for and do not share. */
function settings(found: SideBySide): HTMLElement {
  const rows = Object.entries(found.settings);
  return h("section", { id: "asked-differently" },
    h("h2", null, "What was asked differently"),
    rows.length
      ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Settings" },
          h("table", { class: "compare" },
            h("thead", null, h("tr", null, h("td"), found.plans.map((plan) => h("th", { scope: "col" }, plan.name)))),
            h("tbody", null, rows.map(([name, values]) => h("tr", null, h("th", { scope: "row" }, name), values.map((value) => h("td", null, value)))))))
      : h("p", null, "Nothing: settings and constraints are the same."));
}

function difference(each: SideBySide["differences"][number], found: SideBySide): HTMLElement {
  const [first, other] = [found.plans[0]!, found.plans.find((plan) => plan.id === each.plan)!];
  const changes = each.changes.slice(0, SHOWN);
  return h("section", null,
    h("h2", null, `From “${first.name}” to “${other.name}”`),
    h("p", null, `${counted(each.changes.length, "table")} ${each.changes.length === 1 ? "changes" : "change"}, ${each.unchanged} stay; `,
      `a running job would move ${bytes(each.moved_bytes)} of weights. `,
      h("a", { href: api.reportOf(other.id, first.id), download: "" }, "Download this comparison as a report")),
    each.other_problem.map((words) => h("p", { class: "warning" }, words)),
    changes.length
      ? h("details", null, h("summary", null, "Which tables"),
          h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Changed tables" },
            h("table", null,
              h("thead", null, h("tr", null, ["Table", "Before", "After", "Moved"].map((head) => h("th", { scope: "col", class: head === "Moved" ? "number-cell" : null }, head)))),
              h("tbody", null, changes.map((row) => h("tr", null,
                h("td", null, row.table), h("td", null, row.before ?? "–"), h("td", null, row.after ?? "–"),
                h("td", { class: "number-cell" }, bytes(row.moved_bytes))))))))
      : null);
}
