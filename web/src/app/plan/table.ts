// Every table with its placement: searchable, sortable, a screenful at a time.

import type { TableData } from "../api";
import { h, replace } from "../../dom";
import { button, field, say } from "../controls";
import { bytes, counted, digits, seconds, whole } from "../format";
import type { Edit } from "./edit";

const STEP = 100; // rows that are shown at once
const TIME = "Time";
const AT_ONCE = 200; // with at most this many tables their times are requested with the page, with more by a click on the heading
const NUMBERS = ["Rows", "Columns", "Weights", TIME, "Ids per sample", "Pieces"]; // columns of numbers, aligned right

type Column = [string, (table: TableData) => string | number, ((table: TableData) => string)?];

export function shardTable(edit: Edit): HTMLElement {
  const { tables } = edit.view.data;
  const places = () => {
    const found = new Map<TableData, number[]>();
    for (const piece of edit.pieces) found.set(piece.table, [...(found.get(piece.table) ?? []), piece.rank]);
    return found;
  };
  let ranks = places();
  const times = new Map<TableData, number>();
  const time = async (): Promise<void> => {
    if (times.size) return;
    await edit.time();
    for (const { table, seconds: s } of edit.pieces) times.set(table, Math.max(s, times.get(table) ?? 0));
    draw();
  };
  const trouble = (error: Error) => say(error.message);
  const where = (table: TableData) =>
    table.movable ? `${table.span > 1 ? "from device " : ""}${(ranks.get(table) ?? []).slice(0, 12).join(", ")}` : "every device";
  const columns: Column[] = [
    ["Table", (table) => table.name],
    ["Rows", (table) => table.rows, (table) => whole(table.rows)],
    ["Columns", (table) => table.columns],
    ["Weights", (table) => table.weight_bytes, (table) => bytes(table.weight_bytes)],
    [TIME, (table) => times.get(table) ?? 0, (table) => (times.has(table) ? seconds(times.get(table)!) : "…")],
    ["Ids per sample", (table) => table.ids, (table) => digits(table.ids)],
    ["Sharding", (table) => table.sharding_type, (table) => table.sharding_type.replaceAll("_", " ")],
    ["Kernel", (table) => table.compute_kernel],
    ["Pieces", (table) => table.widths.length],
    ["Devices", (table) => ranks.get(table)?.[0] ?? 0, where],
  ];
  let [sorted, down, most] = [3, true, STEP];
  const body = h("tbody");
  const head = h("tr");
  const foot = h("div", { class: "buttons" });
  const search = h("input", { type: "search", placeholder: "Part of a name, or a sharding type", oninput: () => { most = STEP; draw(); } });

  function draw(): void {
    const word = search.value.trim().toLowerCase();
    const key = columns[sorted]![1];
    const found = tables.filter((table) => !word || `${table.name} ${table.sharding_type.replaceAll("_", " ")}`.toLowerCase().includes(word));
    found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    replace(head, columns.map(([name], i) => h("th", { scope: "col", class: NUMBERS.includes(name) ? "number-cell" : null, "aria-sort": i === sorted ? (down ? "descending" : "ascending") : "none" },
      button(name, () => { if (name === TIME) void time().catch(trouble); [sorted, down] = [i, i === sorted ? !down : i > 0]; draw(); }, "quiet"))));
    replace(body, found.slice(0, most).map((table) => h("tr", null, columns.map(([name, value, words]) =>
      h("td", { class: NUMBERS.includes(name) ? "number-cell" : null }, words ? words(table) : value(table))))));
    replace(foot, h("span", { class: "note" }, `${counted(Math.min(most, found.length), "table")} of ${whole(found.length)}. ${times.size ? "" : "Choose the head of column Time to compute it. "}Time: how much faster the slowest device of the table would be without it, in the plan as it was found.`),
      found.length > most ? button("Show more", () => { most += STEP; draw(); }, "plain") : null);
  }

  edit.onChange(() => { ranks = places(); draw(); });
  draw();
  if (tables.length <= AT_ONCE) void time().catch(trouble);
  return h("div", null, field("Search", search),
    h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Tables" }, h("table", { class: "tables" }, h("thead", null, head), body)), foot);
}
