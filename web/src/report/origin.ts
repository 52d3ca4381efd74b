// What is proved, how much the cost depends on the pooling factors, and how the plan was made.

import type { ReportData } from "../data";
import { h } from "../dom";
import { bytes, change, percent, seconds, whole } from "../format";
import { facts, part } from "./part";

export function provedPart({ plan }: ReportData): HTMLElement {
  const { bound } = plan;
  if (!bound.value_s) return part("The bound", "Nothing is proved about how much better another plan could be.", facts([["Why", bound.kind]]));
  const distance = plan.gap === null
    ? "This plan lies outside that space, so the bound says nothing about it."
    : plan.gap < 1e-8 ? "This plan reaches it." : `This plan takes ${seconds(plan.total_s)}, at most ${percent(plan.gap)} above the best.`;
  return part("The bound", `No plan in the space below takes less than ${seconds(bound.value_s)} under cost model ${plan.cost_model}. ${distance}`,
    facts([["Bound", seconds(bound.value_s)], ["Proved by", bound.kind],
      ...bound.space.split("; ").map((words): [string, string] => spaceFact(words))]));
}

/** `widths any` of a space as a pair of words. */
function spaceFact(words: string): [string, string] {
  const [, name = "", value = ""] = /^(widths|kernels|memory|cache factors) (.*)$/.exec(words) ?? [];
  return name ? [`Space: ${name}`, value] : ["Space", words];
}

export function sensitivityPart({ plan, sensitivity }: ReportData): HTMLElement {
  const { median_s, p95_s, off, draws } = sensitivity;
  return part("If the pooling factors are off",
    `Pooling factors are never known exactly. Here every table's factor is drawn at random, up to ${percent(off)} higher or lower, ${whole(draws)} times; the placement stays as it is.`,
    facts([["As predicted", seconds(plan.total_s)], ["Median of the draws", `${seconds(median_s)} (${change(median_s, plan.total_s)})`],
      ["Exceeded by one draw of twenty", `${seconds(p95_s)} (${change(p95_s, plan.total_s)})`]]));
}

export function originPart(data: ReportData): HTMLElement {
  const { plan, workload } = data;
  const code = (text: string): HTMLElement => h("code", null, text);
  return part("Where this comes from", null, facts([
    ["Plan", code(plan.digest)], ["Workload", code(workload.digest)],
    ["Tables", `${workload.name ? `${workload.name}: ` : ""}${whole(workload.tables)}, ${bytes(workload.weight_bytes)}`],
    ["Batch", `${whole(workload.batch_size)} samples per device and step`], ["Optimizer", workload.optimizer],
    ["Cluster", plan.cluster], ["Planner", plan.planner], ["Cost model", `${plan.cost_model}; predicted, not measured`],
    ["Written by", data.made_by],
  ]));
}
