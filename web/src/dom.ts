// Elements from data: text is always inserted as text, so no name becomes markup.

const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu;

export type Child = Node | string | number | null | undefined | false | Child[];

/** Text with every control character written out, such as \x1b, as recsmith/_printable.py does. */
export function shown(text: string): string {
  return text.replace(CONTROL, (sign) => {
    const code = sign.codePointAt(0)!;
    if (sign === "\n") return "\\n";
    if (sign === "\t") return "\\t";
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** An element: `on...` are listeners, other properties are attributes; null and false omit one. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Record<string, unknown> | null = null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value as EventListener);
    else if (name === "style") Object.assign(made.style, value);
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

/** Replace an element's children; the focus is kept as keepFocus does. */
export function replace(into: Element, ...children: Child[]): void {
  keepFocus(into, () => {
    into.replaceChildren();
    append(into, children);
  });
}

/** Draw an element again; if the focus was in it, the control with the same label, id or text gets it back, or else the first. */
export function keepFocus(into: Element, draw: () => void): void {
  const had = into.contains(document.activeElement) ? nameOf(document.activeElement!) : null;
  draw();
  if (had === null) return;
  const controls = [...into.querySelectorAll<HTMLElement>("button:not(:disabled), input:not(:disabled), select, textarea, a[href], summary, [tabindex='0']")];
  (controls.find((each) => nameOf(each) === had) ?? controls[0])?.focus();
}

/** How a control is recognised when it is drawn again: by its id, its label for screen readers, or its text. */
function nameOf(control: Element): string {
  const label = control.id ? document.querySelector(`label[for="${CSS.escape(control.id)}"]`) : null;
  return label?.textContent ?? (control.id || control.getAttribute("aria-label") || control.textContent || control.tagName);
}

/** Text in which options such as --keep-exact, and text in backticks, are shown as code. */
export function withCode(text: string): Child {
  return text.split(/(`[^`]+`|--[a-z-]+)/).map((piece, i) => (i % 2 ? h("code", null, piece.replaceAll("`", "")) : piece));
}
