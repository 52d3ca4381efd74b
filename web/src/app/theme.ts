// Light, dark, or as the system says; charts hear of it and draw themselves anew.

import {  } from "../dom";
import { button } from "./controls";

const NAMES = ["auto", "light", "dark"] as const;
type Theme = (typeof NAMES)[number];
const KEY = "recsmith-theme";

function current(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "auto";
}

function apply(): void {
  const theme = current();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("themechange"));
}

export function themeButton(): HTMLElement {
  const words = () => ({ auto: "Colours: system", light: "Colours: light", dark: "Colours: dark" })[current()];
  const made = button(words(), () => {
    const next = NAMES[(NAMES.indexOf(current()) + 1) % NAMES.length]!;
    localStorage.setItem(KEY, next);
    apply();
    made.textContent = words();
  }, "quiet");
  return made;
}

apply();
