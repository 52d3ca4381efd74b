// Light, dark, or as the system says; charts hear of it by the event `themechange`.

import { h } from "./dom";

const NAMES = ["system", "light", "dark"] as const;

// Paper is light, and charts are drawn for it; this listener comes before theirs.
let onScreen: string | undefined;
window.addEventListener("beforeprint", () => {
  onScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
window.addEventListener("afterprint", () => {
  if (onScreen) document.documentElement.dataset.theme = onScreen;
  else delete document.documentElement.dataset.theme;
});

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
