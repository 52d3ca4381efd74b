// What changed from another plan to this one: figures side by side, the devices of both, and the tables that differ.

import type { Change, Difference, ReportData, ShownPlan } from "../data";
import { h } from "../dom";
import { bytes, change, counted, percent, seconds, sizeScale } from "../format";
import { Grid } from "../grid";
import { timeChart, timeLegend } from "./devices";
import { part } from "./part";

export function changesPart({ plan }: ReportData, against: Difference): HTMLElement {
  const { other, changes } = against;
  const comparable = !against.other_problem.length;
  const longest = Math.max(plan.total_s, other.total_s);
  const moves = changes.length
    ? `${counted(changes.length, "table is", "tables are")} placed differently, ${against.unchanged.toLocaleString("en")} alike; ${bytes(against.moved_bytes)} of weights move to other devices.`
    : "All tables are placed alike.";
  return part(`Against ${other.name}`, [comparable ? `The step changes by ${change(plan.total_s, other.total_s)}, from ${seconds(other.total_s)} to ${seconds(plan.total_s)}. ` : "", moves],
    against.other_problem.map((words) => h("p", { class: "note" }, `${words.charAt(0).toUpperCase()}${words.slice(1)}; the two steps do not compare.`)),
    sides(other, plan, comparable), timeLegend(plan),
    h("div", { class: "pair" },
      h("figure", null, h("figcaption", null, `Before: ${other.name}`), timeChart(other, 220, longest)),
      h("figure", null, h("figcaption", null, `Now: ${plan.name}`), timeChart(plan, 220, longest))),
    changes.length ? changeTable(changes) : null);
}

function sides(before: ShownPlan, now: ShownPlan, comparable: boolean): HTMLElement {
  const fullest = (plan: ShownPlan): number => Math.max(...plan.devices.map((device) => device.hbm_bytes / device.hbm_capacity_bytes));
  const waiting = (plan: ShownPlan): number => plan.devices.reduce((sum, device) => sum + device.wait_s, 0) / plan.devices.length / plan.total_s;
  const gap = (plan: ShownPlan): string => (plan.gap === null ? "–" : percent(plan.gap));
  const rows: [string, string, string, string][] = [
    ["Step", seconds(before.total_s), seconds(now.total_s), comparable ? change(now.total_s, before.total_s) : ""],
    ["Above the bound", gap(before), gap(now), ""],
    ["Devices wait", percent(waiting(before)), percent(waiting(now)), ""],
    ["Fullest device", percent(fullest(before)), percent(fullest(now)), ""],
    ["Planner", before.planner, now.planner, ""],
  ];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Both plans side by side" }, h("table", { class: "sides" },
    h("thead", null, h("tr", null, h("td"), ["Before", "Now", "Change"].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", null, rows.map(([head, ...cells]) => h("tr", null, h("th", { scope: "row" }, head), cells.map((cell) => h("td", null, cell)))))));
}

function changeTable(changes: Change[]): HTMLElement {
  const grid = new Grid<Change>("Tables that are placed differently", changes, [
    { head: "Table", key: (each) => each.table },
    { head: "Before", key: (each) => each.before },
    { head: "Now", key: (each) => each.after },
    { head: "Moves", key: (each) => each.moved_bytes, unit: sizeScale, numeric: true },
  ]);
  const search = h("input", { type: "search", id: "change-search", placeholder: "Table or placement", oninput: () => {
    const asked = search.value.toLowerCase();
    grid.filter((each) => `${each.table} ${each.before} ${each.after}`.toLowerCase().includes(asked));
  } });
  return h("div", null, h("div", { class: "asks" }, h("label", { for: "change-search" }, "Search the changes"), search), grid.element);
}
