// Training runs as a list of links.

import type { RunSummary } from "./api";
import { h } from "../dom";
import { whole } from "./format";

export function runList(runs: RunSummary[]): HTMLElement {
  return h("ul", { class: "runs" }, runs.map((run) =>
    h("li", null, h("a", { href: `#/run/${run.id}` }, run.name), `: step ${whole(run.step)}, ${run.ended ? "ended" : `last heard of ${when(run.written)}`}`)));
}

/** A time in words. seconds: Unix time. */
export function when(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "medium" });
}
