// Which changes pay, as `recsmith advise` says: changes worth switching on are open, the others in a closed section.

import type { Advice, ToldSwitch } from "./data";
import { h } from "./dom";

export function adviceList(advice: Advice): HTMLElement {
  return h("div", { class: "advice" },
    h("p", null, sentence(advice.sentence)),
    advice.verdicts.map(({ verdict, title, switches }) => {
      const items = switches.map((each) => h("li", null, h("strong", null, each.name), `: ${each.why}`, facts(each)));
      if (verdict === "no" || verdict === "cannot") return h("details", null, h("summary", null, `${title} (${switches.length})`), h("ul", null, items));
      return h("div", null, h("h3", null, title), h(verdict === "pays" ? "ol" : "ul", null, items));
    }),
    advice.together ? h("div", null, h("h3", null, "Together"), h("p", null, `${advice.together}.`)) : null,
    [...advice.about, advice.error].map((words) => h("p", { class: "small" }, sentence(words))));
}

function facts({ facts }: ToldSwitch): HTMLElement | null {
  return facts.length ? h("dl", null, facts.map(([word, said]) => [h("dt", null, word), h("dd", null, said)])) : null;
}

const sentence = (words: string): string => `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
