// What the parts of the report share: a heading with a sentence, legends, and pairs of words and values.

import { h, type Child } from "../dom";

export function part(title: string, sentence: Child, ...children: Child[]): HTMLElement {
  return h("section", null, h("h2", null, title), sentence ? h("p", { class: "lead" }, sentence) : null, children);
}

/** A legend: colours with their labels. */
export function legend(entries: [colour: string, words: string][]): HTMLElement {
  return h("ul", { class: "legend" }, entries.map(([colour, words]) => h("li", null, swatch(colour), words)));
}

export function swatch(colour: string): HTMLElement {
  return h("i", { class: "swatch", style: { background: `var(--chart-${colour})` } });
}

export function facts(pairs: [words: string, value: Child][]): HTMLElement {
  return h("dl", { class: "facts" }, pairs.map(([words, value]) => h("div", null, h("dt", null, words), h("dd", null, value))));
}
