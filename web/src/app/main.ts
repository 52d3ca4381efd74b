// The view for each address: #/, #/search/<id>, #/plan/<id>, #/compare/<id>,<id>, #/stream/<id>,
// #/sweep/<id>, #/run/<id>. An address that only shows has no page for new plans and no controls that change anything.

import { h, keepFocus, replace } from "../dom";
import { say } from "./controls";
import { start } from "./start";
import { watch } from "./watch";
import { planPage } from "./plan/page";
import { compare } from "./compare";
import { stream } from "./stream";
import { sweep } from "./sweep";
import { run } from "./run";
import { choices } from "./shelf";
import { listenForArrivals } from "./arrivals";
import { mayLeave } from "./leaving";
import { listenForKeys } from "./palette";
import { themeButton } from "../theme";

export type Leave = () => void;
type View = (into: HTMLElement, word: string) => Promise<Leave | void>;

const VIEWS: Record<string, View> = { "": start, search: watch, plan: planPage, compare, stream, sweep, run };

let leave: Leave | void;
let turn = 0;
let drawn = ""; // the name of the view that is shown
let stands = ""; // the address of the view that is shown

const isFirst = (address: string): boolean => ["", "#", "#/"].includes(address);

async function show(): Promise<void> {
  const [name = "", word = ""] = location.hash.replace(/^#\/?/, "").split("/", 2);
  if (name === "main") return;
  if (turn && isFirst(location.hash) && isFirst(stands) && location.hash !== stands) {
    stands = location.hash; // another form of the first page's address, which is shown already
    return;
  }
  if (location.hash !== stands && !mayLeave()) {
    history.replaceState(null, "", stands || "#/");
    return;
  }
  stands = location.hash;
  const mine = (turn += 1);
  const { read_only: onlyShows } = await choices().catch(() => ({ read_only: false }));
  if (mine !== turn) return;
  if (onlyShows !== document.documentElement.hasAttribute("data-only-shows")) lock(onlyShows);
  leave?.();
  leave = undefined;
  const into = h("div", { class: "view" });
  for (const link of document.querySelectorAll<HTMLAnchorElement>("#top nav a"))
    link.toggleAttribute("aria-current", link.dataset.view === name || (name === "search" && link.dataset.view === ""));
  try {
    const view = VIEWS[name] ?? start;
    const left = await (onlyShows && view === start ? compare : view)(into, decodeURIComponent(word));
    if (mine !== turn) return left?.();
    leave = left;
  } catch (error) {
    replace(into, h("h1", null, "This cannot be shown"), h("p", { class: "error", role: "alert" }, (error as Error).message),
      h("p", null, h("a", { href: "#/" }, "Plan something new")));
  }
  const main = document.getElementById("main")!;
  const isSame = name === "compare" && name === drawn; // plans are ticked one after the other
  drawn = name;
  if (isSame) keepFocus(main, () => main.replaceChildren(into));
  else main.replaceChildren(into);
  const heading = into.querySelector("h1");
  document.title = heading ? `${heading.textContent} · RecSmith` : "RecSmith";
  say(heading?.textContent ?? "");
  if (!isSame) window.scrollTo(0, 0);
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

/** An address that only shows: controls that change something are hidden, and files are not accepted. */
function lock(onlyShows: boolean): void {
  document.documentElement.toggleAttribute("data-only-shows", onlyShows);
  if (onlyShows) document.querySelector("#top nav")?.before(h("span", { class: "chip", id: "only-shows" }, "Only to look at"));
}

listenForArrivals();
listenForKeys();
void show();
