// The report of a plan: its data is in the page, and every part of it is drawn from that.

import "../style/theme.css";
import "./report.css";
import type { ReportData } from "../data";
import { append, h, replace } from "../dom";
import { themeButton } from "../theme";
import { advicePart } from "./advice";
import { bindingPart } from "./binding";
import { cachesPart } from "./caches";
import { changesPart } from "./changes";
import { headline } from "./headline";
import { originPart, provedPart, sensitivityPart } from "./origin";
import { memoryPart, timePart } from "./devices";
import { shardsPart } from "./shards";

const data = JSON.parse(document.getElementById("data")!.textContent) as ReportData;
const parts: [id: string, short: string, part: HTMLElement][] = [
  ...(data.against ? [["changes", "Changes", changesPart(data, data.against)] as [string, string, HTMLElement]] : []),
  ["time", "Time", timePart(data)],
  ["binds", "What binds", bindingPart(data)],
  ["memory", "Memory", memoryPart(data)],
  ...(data.caches ? [["caches", "Caches", cachesPart(data.caches)] as [string, string, HTMLElement]] : []),
  ...(data.advice ? [["advice", "What pays", advicePart(data.advice)] as [string, string, HTMLElement]] : []),
  ["shards", "Shards", shardsPart(data)],
  ["bound", "Bound", provedPart(data)],
  ["sensitivity", "Sensitivity", sensitivityPart(data)],
  ["origin", "Origin", originPart(data)],
];
for (const [id, , part] of parts) {
  part.id = id;
  part.querySelector("h2")!.id = `${id}-title`;
  part.setAttribute("aria-labelledby", `${id}-title`);
}

const main = document.getElementById("report")!;
document.body.prepend(h("header", null,
  h("div", { class: "bar" },
    h("p", { class: "brand" }, "RecSmith", h("span", null, data.plan.name)),
    h("nav", { "aria-label": "Parts of the report" }, parts.map(([id, short]) => h("a", { href: `#${id}` }, short))),
    themeButton())));
replace(main, headline(data));
append(main, parts.map(([, , part]) => part));
