// Plans as a table of links.

import type { PlanSummary } from "./api";
import { h } from "../dom";
import { button } from "./controls";
import { bytes, percent, seconds } from "./format";

const HEADS = ["Plan", "Step", "Above the bound", "Fullest device", "From"];
const SHOWN = 90; // characters of a note

export function planList(plans: PlanSummary[], mark?: (plan: PlanSummary) => HTMLElement, remove?: (plan: PlanSummary) => void): HTMLElement {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Plans" },
    h("table", { class: "plans" },
      h("thead", null, h("tr", null, mark ? h("th", { scope: "col" }, "Compare") : null,
        HEADS.map((head, i) => h("th", { scope: "col", class: i > 0 && i < 4 ? "number-cell" : null }, head)),
        remove ? h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Delete")) : null)),
      h("tbody", null, plans.map((plan) =>
        h("tr", null,
          mark ? h("td", null, mark(plan)) : null,
          h("td", null, h("a", { href: `#/plan/${plan.id}` }, plan.name), plan.note ? h("small", { class: "said" }, short(plan.note)) : null,
            plan.unwritten ? h("small", { class: "error" }, `Not in the folder yet: ${plan.unwritten}`) : null),
          h("td", { class: "number-cell" }, seconds(plan.total_s)),
          h("td", { class: "number-cell" }, percent(plan.gap)),
          h("td", { class: "number-cell" }, `${bytes(plan.largest_hbm_bytes)} of ${bytes(plan.hbm_capacity_bytes)}`),
          h("td", null, plan.origin),
          remove ? h("td", null, button("Delete", () => remove(plan), "quiet", { "aria-label": `Delete ${plan.name}` })) : null)))));
}

/** Plans that contain every word in their name, note, origin, workload, cluster, planner or cost model. */
export function withWords(plans: PlanSummary[], words: string): PlanSummary[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return plans.filter((plan) => {
    const text = [plan.name, plan.note, plan.origin, plan.workload, plan.cluster, plan.planner, plan.cost_model].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

const short = (note: string): string => (note.length > SHOWN ? `${note.slice(0, SHOWN)}…` : note);
