// Light, dark, or as the system says; charts are drawn anew when it changes.

import { button } from "./dom";

const NAMES = ["auto", "light", "dark"] as const;
type Theme = (typeof NAMES)[number];
const KEY = "recsmith-theme";

const heard = new Set<() => void>();

function current(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "auto";
}

function apply(): void {
  const theme = current();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const redraw of heard) redraw();
}

/** Call a function whenever the colours change; the returned one ends that. */
export function onTheme(redraw: () => void): () => void {
  heard.add(redraw);
  return () => heard.delete(redraw);
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

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
apply();
