// What limits the step: for each phase its slowest device, the parts of its time, and its costliest tables.

import { TIME_PARTS } from "../charts/deviceTimes";
import type { Phase, ReportData } from "../data";
import { h } from "../dom";
import { inOneUnit, percent, seconds, timeScale, words } from "../format";
import { partWords } from "./headline";
import { part, swatch } from "./part";

export function bindingPart(data: ReportData): HTMLElement {
  const several = data.phases.length > 1;
  return part("What binds the step",
    several
      ? "A step is a sequence of phases, and in each all devices wait for the slowest one. Making that device faster makes the step faster."
      : "All devices wait for the slowest one. Making that device faster makes the step faster.",
    h("div", { class: "phases" }, data.phases.map((phase, i) => phaseBox(phase, several ? `Phase ${i + 1}: ` : "", data.plan.total_s))));
}

function phaseBox(phase: Phase, number: string, total: number): HTMLElement {
  const parts = phase.parts.filter((each) => each.seconds > 0).toSorted((a, b) => b.seconds - a.seconds);
  const above = phase.mean_s ? phase.seconds / phase.mean_s - 1 : 0;
  return h("article", null,
    h("h3", null, `${number}device ${phase.rank}, ${seconds(phase.seconds)}`),
    h("p", null, `${percent(phase.seconds / total)} of the step; ${percent(above)} above the mean device.`),
    h("div", { class: "strip", "aria-hidden": "true" }, parts.map((each) =>
      h("span", { style: { flexGrow: String((100 * each.seconds) / phase.seconds), background: `var(--chart-${colour(each.part)})` } }))),
    h("ul", { class: "parts" }, parts.map((each) => h("li", null, swatch(colour(each.part)),
      h("span", null, partWords(each.part), fixed(each)), h("b", null, seconds(each.seconds)), h("em", null, percent(each.seconds / phase.seconds))))),
    phase.tables.length ? dearest(phase) : null);
}

const colour = (key: string): string => TIME_PARTS.find(([each]) => each === key)?.[2] ?? "rest";

/** The fixed cost of kernels and collectives, however little work they have. */
function fixed(each: Phase["parts"][number]): string {
  const kinds = [[each.launch_s, "launches"], [each.latency_s, "latency"]] as const;
  const said = kinds.filter(([value]) => value).map(([value, what]) => `${seconds(value)} ${what}`);
  return said.length ? `, of it ${said.join(" and ")}` : "";
}

function dearest(phase: Phase): HTMLElement {
  const most = phase.tables[0]!.seconds;
  const saved = inOneUnit(phase.tables.map((share) => share.seconds), timeScale);
  return h("div", { class: "dearest-box", tabindex: 0, role: "region", "aria-label": `Dearest tables of device ${phase.rank}` },
    h("table", { class: "dearest" },
      h("caption", null, `What device ${phase.rank} would save without a table`),
      h("thead", { class: "visually-hidden" }, h("tr", null, ["Table", "Sharding", "Saved", "Share"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", null, phase.tables.map((share) => h("tr", null, h("th", { scope: "row" }, share.table), h("td", { class: "kind" }, words(share.sharding_type)),
        h("td", { class: "number" }, saved(share.seconds)),
        h("td", { class: "share" }, h("span", { class: "visually-hidden" }, percent(share.seconds / phase.seconds)),
          h("i", { style: { width: `${(100 * share.seconds) / most}%` } })))))));
}
