// Files that are dropped anywhere on the page or chosen, and pasted text. The server reads all of
// them; the page shows the result, or why it cannot be read, where it came in.

import { api, type Opened } from "./api";
import { h } from "../dom";
import { ownColumns, type Rows } from "./columns";
import { say, sayAt, onlyShows } from "./controls";

/** A file with what the server read in it, or why it could not. rows: rows of a table file whose columns have other names. */
export interface Arrival { file: string; opened: Opened | null; error: string; rows: Rows | null }

/** Shows a file on the first page. isNew: whether it was not shown before. */
type Show = (all: Arrival[], isNew: boolean) => void;

let show: Show = () => {};
let isThere = (): boolean => false;
let latest: Arrival[] = [];
let isNew = false;

/** Let the first page show opened files as long as it exists; files that were opened before are passed to it. */
export function onArrival(shows: Show, there: () => boolean): void {
  [show, isThere] = [shows, there];
  if (latest.length) show(latest, isNew);
  isNew = false;
}

/** Open files. x, y: where they were dropped, to place the message about those that cannot be read. */
export async function take(files: File[], x: number, y: number): Promise<void> {
  if (!files.length) return;
  if (onlyShows()) return sayAt(x, y, "This address only shows: files are not taken here.");
  say(`Reading ${files.length === 1 ? files[0]!.name : `${files.length} files`}…`);
  const all = await Promise.all(files.map(read));
  const plans = all.flatMap(({ opened }) => (opened?.plan ? [opened.plan.id] : []));
  const shown = all.flatMap(({ opened }) => (opened?.stream ? [`#/stream/${opened.stream.id}`] : opened?.sweep ? [`#/sweep/${opened.sweep.id}`] : [])).slice(0, 1);
  if (plans.length + shown.length === all.length) {
    location.hash = shown.length ? shown[0]! : plans.length > 1 ? `#/compare/${plans.join(",")}` : `#/plan/${plans[0]}`;
    return;
  }
  const wrong = all.filter((each) => each.error);
  if (isThere() || wrong.length < all.length || wrong.some((each) => each.rows)) {
    [latest, isNew] = [all, !isThere()];
    if (isNew) location.hash = "#/";
    else show(all, true);
  } else sayAt(x, y, wrong.map((each) => each.error).join(" "));
}

async function read(file: File): Promise<Arrival> {
  try {
    return { file: file.name, opened: await api.open(file, null), error: "", rows: null };
  } catch (error) {
    return { file: file.name, opened: null, error: (error as Error).message, rows: await ownColumns(file) };
  }
}

/** Handle everything that is dropped on the page or pasted into it. */
export function listenForArrivals(): void {
  const hasFiles = (event: DragEvent): boolean => Boolean(event.dataTransfer?.types.includes("Files"));
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    void take([...event.dataTransfer!.files], event.clientX, event.clientY);
  });
  document.addEventListener("paste", (event) => {
    const target = event.target as HTMLElement;
    if (target.closest("input, textarea, [contenteditable]") || !event.clipboardData) return;
    const text = event.clipboardData.getData("text/plain");
    const files = event.clipboardData.files.length ? [...event.clipboardData.files] : text.trim() ? [new File([text], "pasted")] : [];
    if (files.length) event.preventDefault();
    void take(files, window.innerWidth / 2 - 160, 60);
  });
}

/** An area that lists what can be dropped, with a button that opens files. */
export function dropZone(words: string): HTMLElement {
  const input = h("input", { type: "file", multiple: true, class: "visually-hidden", tabindex: -1, "aria-hidden": "true",
    onchange: () => {
      const box = zone.getBoundingClientRect();
      void take([...(input.files ?? [])], box.left, box.bottom);
      input.value = "";
    } });
  const zone = h("div", { class: "drop" },
    h("p", null, words), h("button", { type: "button", class: "button plain", onclick: () => input.click() }, "Choose files"), input);
  return zone;
}
