// Elements from data: whatever is text stays text, and no name becomes markup.

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

type Child = Node | string | number | null | undefined | false | Child[];
type Props = Record<string, unknown>;

/** Text with every control character written out, such as \x1b. */
export function shown(text: string): string {
  return text.replace(CONTROL, (sign) => `\\x${sign.charCodeAt(0).toString(16).padStart(2, "0")}`);
}

/** An element: `on...` are listeners, other properties are attributes; null and false leave one out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props | null = null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value as EventListener);
    else if (name === "value" && "value" in made) (made as HTMLInputElement).value = String(value);
    else made.setAttribute(name, value === true ? "" : shown(String(value)));
  }
  append(made, children);
  return made;
}

export function append(to: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(to, child);
    else to.append(child instanceof Node ? child : shown(String(child)));
  }
}

export function replace(into: Element, ...children: Child[]): void {
  into.replaceChildren();
  append(into, children);
}

/** Tell a screen reader. */
export function say(words: string): void {
  const place = document.getElementById("says");
  if (place) place.textContent = shown(words);
}

/** A field: its label above it, a hint below. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  const id = control.id || `field-${(field.count += 1)}`;
  control.id = id;
  const note = hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null;
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

export function button(words: string, onClick: () => void, kind = "plain", props: Props = {}) {
  return h("button", { type: "button", class: `button ${kind}`, onclick: onClick, ...props }, words);
}

/** Call a function once nothing has asked for it for so many milliseconds. */
export function settled<T extends unknown[]>(run: (...words: T) => void, ms: number): (...words: T) => void {
  let timer = 0;
  return (...words) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => run(...words), ms);
  };
}
