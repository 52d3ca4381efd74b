// Light, dark, or the system's choice; the event `themechange` notifies charts.

import { h } from "./dom";

const NAMES = ["system", "light", "dark"] as const;
const KEY = "recsmith-colours";

// Pages print on light paper, so charts are drawn light; this listener must run before theirs.
let onScreen: string | undefined;
window.addEventListener("beforeprint", () => {
  onScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
window.addEventListener("afterprint", () => {
  if (onScreen) document.documentElement.dataset.theme = onScreen;
  else delete document.documentElement.dataset.theme;
});

/** keep: where the choice is stored; a page without a server cannot store it. */
export function themeButton(keep?: Storage): HTMLElement {
  let at = Math.max(0, NAMES.findIndex((name) => name === keep?.getItem(KEY)));
  const words = (): string => `Colours: ${NAMES[at]}`;
  const made = h("button", { type: "button", class: "plain", onclick: () => {
    at = (at + 1) % NAMES.length;
    keep?.setItem(KEY, NAMES[at]!);
    apply(NAMES[at]!);
    made.textContent = words();
  } }, words());
  if (at) apply(NAMES[at]!);
  return made;
}

function apply(name: string): void {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  document.dispatchEvent(new Event("themechange"));
}
