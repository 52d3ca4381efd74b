// A table of any number of rows: sorted by a click on a heading, filtered by a function; only the visible rows are drawn.

import { h, replace, type Child } from "./dom";
import { inOneUnit, whole, type Scale } from "./format";

export interface Column<Row> {
  head: string;
  /** The sort key; numbers are aligned right, and the first click sorts the largest to the top. */
  key: (row: Row) => string | number;
  cell?: (row: Row) => Child;
  numeric?: boolean;
  /** The quantity of `key`, if all cells share one unit. */
  unit?: (value: number) => Scale;
}

const ROW_HEIGHT = 36; // pixels; the style sheet gives rows the same
const BEYOND = 8; // rows that are drawn above and below the visible ones
const PRINTED = 60; // rows on paper
const VISIBLE = 12; // rows of the visible part at most

export class Grid<Row> {
  readonly element: HTMLElement;
  private readonly body = h("tbody");
  private readonly heads: HTMLTableCellElement[];
  private readonly count = h("p", { class: "count", role: "status" });
  private readonly view: HTMLElement;
  private readonly table: HTMLTableElement;
  private readonly columns: Column<Row>[];
  private shown: Row[];
  private keep: (row: Row) => boolean = () => true;
  private by = -1;
  private down = false;
  private drawn = "";

  constructor(label: string, private readonly rows: Row[], columns: Column<Row>[], private readonly marked: (row: Row) => boolean = () => false) {
    this.shown = rows;
    this.columns = columns.map((column) => {
      if (!column.unit) return column;
      const words = inOneUnit(rows.map((row) => Number(column.key(row))), column.unit);
      return { ...column, cell: (row) => words(Number(column.key(row))) };
    });
    this.heads = columns.map((column, i) =>
      h("th", { scope: "col", class: column.numeric ? "number" : "", "aria-sort": "none" },
        h("button", { type: "button", onclick: () => this.sort(i) }, column.head)));
    this.table = h("table", { class: "grid", "aria-rowcount": rows.length + 1 }, h("caption", { class: "visually-hidden" }, label),
      h("thead", null, h("tr", { "aria-rowindex": 1 }, this.heads)), this.body);
    this.view = h("div", { class: "window", tabindex: 0, role: "region", "aria-label": label, onscroll: () => this.draw() }, this.table);
    this.view.style.maxHeight = `${(VISIBLE + 1) * ROW_HEIGHT + 2}px`;
    this.element = h("div", { class: "grid-box" }, this.view, this.count);
    window.addEventListener("beforeprint", () => this.draw(true));
    window.addEventListener("afterprint", () => this.refresh());
    this.refresh();
  }

  filter(keep: (row: Row) => boolean): void {
    this.keep = keep;
    this.view.scrollTop = 0;
    this.refresh();
  }

  sort(column: number, down = this.by === column ? !this.down : Boolean(this.columns[column]!.numeric)): void {
    [this.by, this.down] = [column, down];
    this.heads.forEach((head, i) => head.setAttribute("aria-sort", i === column ? (down ? "descending" : "ascending") : "none"));
    this.refresh();
  }

  /** Draw again, after the data or the marked rows have changed. */
  refresh(): void {
    const column = this.columns[this.by];
    this.shown = this.rows.filter(this.keep);
    if (column) {
      const sign = this.down ? -1 : 1;
      const keyed = this.shown.map((row) => ({ row, key: column.key(row) }));
      const names = new Intl.Collator("en", { numeric: true });
      keyed.sort((a, b) => sign * (typeof a.key === "number" ? a.key - Number(b.key) : names.compare(a.key, String(b.key))));
      this.shown = keyed.map(({ row }) => row);
    }
    this.count.textContent = this.shown.length === this.rows.length ? `${whole(this.rows.length)} rows` : `${whole(this.shown.length)} of ${whole(this.rows.length)} rows`;
    this.drawn = "";
    this.draw();
  }

  private draw(print = false): void {
    const first = print ? 0 : Math.max(0, Math.floor(this.view.scrollTop / ROW_HEIGHT) - BEYOND);
    const last = Math.min(this.shown.length, print ? PRINTED : first + VISIBLE + 2 * BEYOND);
    if (this.drawn === `${first} ${last}`) return;
    this.drawn = `${first} ${last}`;
    const focused = (document.activeElement as HTMLElement | null)?.closest("tr")?.getAttribute("aria-rowindex");
    const within = this.body.contains(document.activeElement);
    const rows = this.shown.slice(first, last).map((row, i) =>
      h("tr", { "aria-rowindex": first + i + 2, class: this.marked(row) ? "marked" : "" },
        this.columns.map((column, c) => h(c ? "td" : "th", { class: column.numeric ? "number" : "", scope: c ? null : "row" }, column.cell ? column.cell(row) : String(column.key(row))))));
    replace(this.body, space(first, this.columns.length), rows, print ? null : space(this.shown.length - last, this.columns.length));
    if (within) this.body.querySelector<HTMLElement>(`tr[aria-rowindex="${focused}"] button`)?.focus({ preventScroll: true });
  }
}

/** Empty space for the rows that are not drawn. */
function space(rows: number, columns: number): HTMLElement | null {
  return rows > 0 ? h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: columns, style: { height: `${rows * ROW_HEIGHT}px` } })) : null;
}
