// Fields, buttons and lists of the page, with labels for screen readers.

import { h, shown } from "../dom";

/** Announce a text to screen readers. */
export function say(words: string): void {
  const place = document.getElementById("says");
  if (place) place.textContent = shown(words);
}

/** Show why an action was refused next to it, until the next press of a key or a button. */
export function sayAt(x: number, y: number, words: string): void {
  const said = h("p", { class: "refused", role: "alert" }, words);
  Object.assign(said.style, { left: `${Math.max(8, Math.min(x + 12, window.innerWidth - 340))}px`, top: `${Math.max(8, Math.min(y + 12, window.innerHeight - 120))}px` });
  document.body.querySelector(".refused")?.remove();
  document.body.append(said);
  const gone = () => { said.remove(); document.removeEventListener("pointerdown", gone); document.removeEventListener("keydown", gone); };
  document.addEventListener("pointerdown", gone);
  document.addEventListener("keydown", gone);
}

/** A field: its label above it, a hint below. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  const id = control.id || `field-${(field.count += 1)}`;
  control.id = id;
  const note = hint ? h("p", { class: "note", id: `${id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}
field.count = 0;

export function select(options: [string, string][], value: string, onChange?: (value: string) => void) {
  const made = h(
    "select",
    { onchange: () => onChange?.(made.value) },
    options.map(([key, words]) => h("option", { value: key, selected: key === value }, words)),
  );
  return made;
}

export function button(words: string, onClick: () => void, kind = "plain", props: Record<string, unknown> = {}) {
  return h("button", { type: "button", class: `button ${kind}`, onclick: onClick, ...props }, words);
}

/** Call a function once it has not been requested for this many milliseconds. */
export function settled<T extends unknown[]>(run: (...words: T) => void, ms: number): (...words: T) => void {
  let timer = 0;
  return (...words) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => run(...words), ms);
  };
}

/** Whether the address that was opened allows no changes. */
export const onlyShows = (): boolean => document.documentElement.hasAttribute("data-only-shows");
