// The plan at a glance: the cost of a step, how far it is from the best, what limits it, and whether it fits.

import { TIME_PARTS } from "../charts/deviceTimes";
import type { Phase, ReportData } from "../data";
import { h, withCode, type Child } from "../dom";
import { bytes, counted, percent, seconds } from "../format";

/** The phase that takes most of the step, and the largest part of it. */
export function binding(phases: Phase[]): { phase: Phase; part: Phase["parts"][number] } {
  const phase = phases.reduce((a, b) => (b.seconds > a.seconds ? b : a));
  return { phase, part: phase.parts.reduce((a, b) => (b.seconds > a.seconds ? b : a)) };
}

export const partWords = (key: string): string => TIME_PARTS.find(([each]) => each === key)?.[1] ?? key;

export function headline(data: ReportData): HTMLElement {
  const { plan, workload, memory } = data;
  const { phase, part } = binding(data.phases);
  const used = memory.map((device) => device.bytes.reduce((sum, size) => sum + size, 0));
  const shares = used.map((size, i) => size / memory[i]!.capacity);
  const fullest = shares.indexOf(Math.max(...shares));
  const over = shares[fullest]! > 1;
  return h("section", { class: "headline", "aria-labelledby": "title" },
    h("h1", { id: "title" }, `${seconds(plan.total_s)} a step`, best(data)),
    h("p", { class: "lead" }, `${counted(workload.tables, "embedding table")} with ${bytes(workload.weight_bytes)} of weights on `,
      `${counted(memory.length, "device")} (${plan.cluster}). Device ${phase.rank} sets the pace; `,
      `the largest part of its time is ${partWords(part.part).toLowerCase()}. Seconds are predicted, not measured: cost model ${plan.cost_model}.`),
    h("dl", { class: "figures" },
      figure("Step", seconds(plan.total_s), `${plan.typically ? `${plan.typically}; ` : ""}its embedding part, forward and backward`),
      plan.bound.value_s && plan.gap !== null
        ? figure("Above the proven bound", percent(plan.gap), `no plan in the space takes less than ${seconds(plan.bound.value_s)} under this cost model`)
        : figure("Above the proven bound", "–", plan.bound.value_s ? "the plan lies outside the bound's space" : "nothing is proved"),
      figure("What binds", partWords(part.part), `${percent(part.seconds / plan.total_s)} of the step, on device ${phase.rank}`),
      figure("Fullest device", percent(shares[fullest]!), `${bytes(used[fullest]!)} of ${bytes(memory[fullest]!.capacity)} on device ${fullest}`, over)),
    plan.notes.map((words) => h("p", { class: "note" }, withCode(words))));
}

function best({ plan }: ReportData): string {
  if (plan.gap === null) return "";
  return plan.gap < 1e-8 ? ", proven the best" : `, at most ${percent(plan.gap)} above the best`;
}

function figure(words: string, value: Child, below: string, bad = false): HTMLElement {
  return h("div", { class: bad ? "bad" : "" }, h("dt", null, words), h("dd", null, h("strong", null, value), h("span", null, below)));
}
