// Light, dark, or as the system says; charts hear of it by the event `themechange`.

import { h } from "./dom";

const NAMES = ["system", "light", "dark"] as const;

export function themeButton(): HTMLElement {
  let at = 0;
  const words = (): string => `Colours: ${NAMES[at]}`;
  const made = h("button", { type: "button", class: "plain", onclick: () => {
    at = (at + 1) % NAMES.length;
    if (at) document.documentElement.dataset.theme = NAMES[at];
    else delete document.documentElement.dataset.theme;
    made.textContent = words();
    document.dispatchEvent(new Event("themechange"));
  } }, words());
  return made;
}
