// Plans as a table of links.

import type { PlanSummary } from "./api";
import { h } from "../dom";
import { button } from "./controls";
import { bytes, percent, seconds } from "./format";

export function planList(plans: PlanSummary[], mark?: (plan: PlanSummary) => HTMLElement, forget?: (plan: PlanSummary) => void): HTMLElement {
  const heads = ["Plan", "Step", "Above the bound", "Fullest device", "From"];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Plans" },
    h("table", { class: "plans" },
      h("thead", null, h("tr", null, mark ? h("th", { scope: "col" }, "Compare") : null, heads.map((head, i) => h("th", { scope: "col", class: i > 0 && i < 4 ? "number-cell" : null }, head)), forget ? h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Forget")) : null)),
      h("tbody", null, plans.map((plan) =>
        h("tr", null,
          mark ? h("td", null, mark(plan)) : null,
          h("td", null, h("a", { href: `#/plan/${plan.id}` }, plan.name)),
          h("td", { class: "number-cell" }, seconds(plan.total_s)),
          h("td", { class: "number-cell" }, percent(plan.gap)),
          h("td", { class: "number-cell" }, `${bytes(plan.largest_hbm_bytes)} of ${bytes(plan.hbm_capacity_bytes)}`),
          h("td", null, plan.origin),
          forget ? h("td", null, button("Forget", () => forget(plan), "quiet", { "aria-label": `Forget ${plan.name}` })) : null)))));
}
