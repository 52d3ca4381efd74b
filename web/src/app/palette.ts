// Ctrl-K opens any view by a few letters; ? lists the keys.

import { h, replace } from "../dom";
import { button, field, onlyShows } from "./controls";
import { withWords } from "./plans";
import { kept } from "./shelf";

interface Place { name: string; hash: string }

const MOST = 12; // places listed at most
const PAGES: Place[] = [{ name: "New plan", hash: "#/" }, { name: "Your plans", hash: "#/compare/" }];
const KEYS: [string, string][] = [
  ["Ctrl K", "go to a plan or a page by some letters of its name"],
  ["?", "this list"],
  ["Tab, arrows", "in the map of shards: Tab stops there once, arrows go from block to block"],
  ["Enter", "choose a block of the map, and see its table"],
  ["Alt ← →", "move the block to the device beside"],
  ["Ctrl Z", "take the last change of a plan back"],
  ["Ctrl Shift Z, Ctrl Y", "do it again"],
  ["Ctrl V", "open what was copied: tables, a plan, a log"],
  ["Esc", "close what is open"],
];

export function listenForKeys(): void {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLElement && event.target.closest("input:not([type=range], [type=checkbox]), textarea, select") !== null;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      void go();
    } else if (event.key === "?" && !isTyping) {
      event.preventDefault();
      help();
    }
  });
}

/** Show a dialog, which is removed when it is closed. */
function open(label: string, ...content: (Node | string)[]): HTMLDialogElement {
  document.querySelector("dialog")?.remove();
  const dialog = h("dialog", { "aria-label": label, onclose: () => dialog.remove(), onclick: (event: Event) => { if (event.target === dialog) dialog.close(); } });
  dialog.append(...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function help(): void {
  open("Keys", h("h2", null, "Keys"), h("dl", { class: "keys" }, KEYS.map(([key, does]) => [h("dt", null, h("kbd", null, key)), h("dd", null, does)])),
    button("Close", () => document.querySelector("dialog")?.close()));
}

async function go(): Promise<void> {
  const list = h("ul", { class: "places" });
  const input = h("input", { type: "search", autocomplete: "off", placeholder: "Some letters of a plan or a page" });
  const dialog = open("Go to", field("Go to", input), list);
  input.focus();
  const plans = (await kept().catch(() => ({ plans: [] }))).plans.toReversed();
  const found = (): Place[] => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const pages = PAGES.filter((page) => (page.hash !== "#/" || !onlyShows()) && words.every((word) => page.name.toLowerCase().includes(word)));
    return [...withWords(plans, input.value).map((plan) => ({ name: plan.name, hash: `#/plan/${plan.id}` })), ...pages].slice(0, MOST);
  };
  const draw = (): void => {
    const places = found();
    replace(list, places.map((place) => h("li", null, h("a", { href: place.hash, onclick: () => dialog.close() }, place.name))),
      places.length ? null : h("li", null, "Nothing is called so."));
  };
  input.addEventListener("input", draw);
  dialog.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = at + (event.key === "ArrowDown" ? 1 : -1);
      (next < 0 ? input : links[Math.min(next, links.length - 1)] ?? input).focus();
    } else if (event.key === "Enter" && document.activeElement === input && links[0]) {
      event.preventDefault();
      links[0].click();
    }
  });
  draw();
}
