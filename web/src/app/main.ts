// Which view stands at which address: #/, #/search/<id>, #/plan/<id>, #/compare/<id>,<id>, #/stream/<id>.

import { h, replace } from "../dom";
import { say } from "./controls";
import { start } from "./start";
import { watch } from "./watch";
import { planPage } from "./plan/page";
import { compare } from "./compare";
import { stream } from "./stream";
import { listenForArrivals } from "./arrivals";
import { mayLeave } from "./leaving";
import { listenForKeys } from "./palette";
import { themeButton } from "../theme";

export type Leave = () => void;
type View = (into: HTMLElement, word: string) => Promise<Leave | void>;

const VIEWS: Record<string, View> = { "": start, search: watch, plan: planPage, compare, stream };

let leave: Leave | void;
let turn = 0;
let stands = ""; // the address of the view that is shown

async function show(): Promise<void> {
  const [name = "", word = ""] = location.hash.replace(/^#\/?/, "").split("/", 2);
  if (name === "main") return;
  if (location.hash !== stands && !mayLeave()) {
    history.replaceState(null, "", stands || "#/");
    return;
  }
  stands = location.hash;
  const mine = (turn += 1);
  leave?.();
  leave = undefined;
  const into = h("div", { class: "view" });
  for (const link of document.querySelectorAll<HTMLAnchorElement>("#top nav a"))
    link.toggleAttribute("aria-current", link.dataset.view === name || (name === "search" && link.dataset.view === ""));
  try {
    const left = await (VIEWS[name] ?? start)(into, decodeURIComponent(word));
    if (mine !== turn) return left?.();
    leave = left;
  } catch (error) {
    replace(into, h("h1", null, "This cannot be shown"), h("p", { class: "error", role: "alert" }, (error as Error).message),
      h("p", null, h("a", { href: "#/" }, "Plan something new")));
  }
  const main = document.getElementById("main")!;
  main.replaceChildren(into);
  const heading = into.querySelector("h1");
  document.title = heading ? `${heading.textContent} · RecSmith` : "RecSmith";
  say(heading?.textContent ?? "");
  window.scrollTo(0, 0);
}

replace(
  document.getElementById("top")!,
  h("a", { class: "brand", href: "#/" }, h("img", { src: "/icon.svg", alt: "", width: 24, height: 24 }), "RecSmith"),
  h("nav", { "aria-label": "Pages" },
    h("a", { href: "#/", "data-view": "" }, "New plan"),
    h("a", { href: "#/compare/", "data-view": "compare" }, "Your plans")),
  themeButton(localStorage),
);
window.addEventListener("hashchange", () => void show());
listenForArrivals();
listenForKeys();
void show();
