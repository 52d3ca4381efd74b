// The map of shards: a column for each device, a block for each piece that lies there, as high as it is large.
// Blocks are dragged to another column; a chosen block is moved by a list, or by Alt and the arrow keys.

import { h, replace } from "../../dom";
import { button, field, say, select } from "../controls";
import { bytes, counted, percent, seconds, whole, words } from "../format";
import type { Edit, Piece } from "./edit";
import { pinOf, wish } from "./constraints";
import type { TableData } from "../api";
import { colourOfTower } from "../../charts/towers";

const HEIGHT = 260; // pixels of the fullest column
const MOST_BLOCKS = 2400; // of all columns; the smallest pieces beyond are counted only
const LABELLED = 15; // pixels of a block that has room for a name

/** Whose colour a table has: that of its tower, in a plan that has towers, else of its sharding type. */
const kindOf = (table: TableData): string => (table.tower === null ? table.sharding_type : colourOfTower(table.tower).replaceAll("-", "_"));

export function shardMap(edit: Edit): HTMLElement {
  const map = new ShardMap(edit);
  return map.element;
}

class ShardMap {
  readonly element = h("div", { class: "shardmap" });
  private readonly columns = h("div", { class: "device-columns", role: "list", "aria-label": "Devices" });
  private readonly panel = h("div", { class: "chosen", "aria-live": "polite" });
  private readonly order: Piece[];
  private readonly everywhere: Piece[];
  private readonly most: number;
  private chosen: Piece | null = null;
  private dragged: Piece | null = null;
  private readonly drawn: { signature: string; element: HTMLElement; head: HTMLElement }[] = [];
  private scale = 0;

  constructor(private readonly edit: Edit) {
    const movable = edit.pieces.filter((piece) => piece.table.movable);
    this.everywhere = edit.pieces.filter((piece) => !piece.table.movable);
    this.order = movable.toSorted((a, b) => b.bytes - a.bytes);
    this.most = Math.max(1, Math.floor(MOST_BLOCKS / edit.devices.length));
    this.element.append(this.legend(),
      h("p", { class: "note" }, "Drag a block to another device and see at once what that costs. With the keyboard: choose a block, ",
        "then Alt with the left or right arrow."),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Map of shards" }, this.columns),
      this.shared(), this.panel);
    edit.onChange(() => this.draw());
    this.draw();
  }

  private legend(): HTMLElement {
    const kinds = new Map(this.edit.pieces.map(({ table }) => [table.tower === null ? words(table.sharding_type) : `tower ${table.tower}`, kindOf(table)]));
    return h("ul", { class: "legend" }, [...kinds].sort().map(([name, kind]) => h("li", null, h("span", { class: `swatch kind-${kind}` }), name)));
  }

  private shared(): HTMLElement | string {
    if (!this.everywhere.length) return "";
    const names = this.everywhere.map((piece) => `${piece.table.name} (${words(piece.table.sharding_type)})`);
    return h("details", { class: "everywhere" },
      h("summary", null, `${counted(new Set(this.everywhere.map((piece) => piece.table.name)).size, "table")} on every device`),
      h("p", null, names.slice(0, 200).join(", ")));
  }

  private draw(): void {
    const { edit } = this;
    const focused = (document.activeElement as HTMLElement | null)?.dataset.key;
    const held = edit.devices.map(() => [] as Piece[]);
    for (const piece of this.order) for (let i = 0; i < piece.span; i += 1) held[piece.rank + i]?.push(piece);
    this.scale ||= HEIGHT / Math.max(1, ...held.map((pieces) => pieces.reduce((sum, piece) => sum + piece.bytes, 0)));
    const slowest = Math.max(...edit.devices.map((device) => this.busy(device.rank)));
    held.forEach((pieces, rank) => this.drawColumn(rank, pieces, slowest));
    if (focused) this.columns.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.drawPanel();
  }

  private busy(rank: number): number {
    const device = this.edit.devices[rank]!;
    return device.forward_compute_s + device.backward_compute_s + device.forward_comm_s + device.backward_comm_s;
  }

  /** A column is built anew only where other pieces lie on it; its figures change with every move. */
  private drawColumn(rank: number, pieces: Piece[], slowest: number): void {
    const signature = pieces.map((piece) => piece.key + (piece === this.chosen ? "!" : "")).join("\u0001");
    if (this.drawn[rank]?.signature !== signature) {
      const head = h("div", { class: "device-head" });
      const element = this.column(rank, pieces, head);
      if (this.drawn[rank]) this.drawn[rank].element.replaceWith(element);
      else this.columns.append(element);
      this.drawn[rank] = { signature, element, head };
    }
    const device = this.edit.devices[rank]!;
    const full = device.hbm_bytes / device.hbm_capacity_bytes;
    replace(this.drawn[rank]!.head, h("strong", null, `Device ${rank}`),
      h("span", null, seconds(this.busy(rank))), meter(slowest ? this.busy(rank) / slowest : 0, "time"),
      h("span", { class: full > 1 ? "over" : "" }, `${percent(full)} full`), meter(full, full > 1 ? "bad" : "memory"));
  }

  private column(rank: number, pieces: Piece[], head: HTMLElement): HTMLElement {
    const shown = pieces.slice(0, this.most);
    const made = h("div", { class: "device", role: "listitem", "data-rank": rank }, head,
      h("div", { class: "blocks" }, shown.map((piece) => this.block(piece, piece.bytes * this.scale))),
      pieces.length > shown.length ? h("p", { class: "note" }, `and ${counted(pieces.length - shown.length, "smaller piece")}`) : null);
    made.addEventListener("dragover", (event) => { if (this.dragged) { event.preventDefault(); made.classList.add("over"); } });
    made.addEventListener("dragleave", () => made.classList.remove("over"));
    made.addEventListener("drop", (event) => {
      event.preventDefault();
      if (this.dragged) void this.move(this.dragged, rank).then(() => this.explain(event.clientX, event.clientY));
    });
    return made;
  }

  private block(piece: Piece, height: number): HTMLElement {
    const words = label(piece);
    const made = h("button", {
      type: "button", class: `block kind-${kindOf(piece.table)}`, draggable: "true", "data-key": piece.key,
      "aria-label": `${words}, ${bytes(piece.bytes)}, on device ${piece.rank}`, title: `${words} · ${bytes(piece.bytes)}`,
      "aria-pressed": this.chosen === piece ? "true" : "false",
      onclick: () => { this.chosen = this.chosen === piece ? null : piece; this.draw(); },
      ondragstart: (event: DragEvent) => { this.dragged = piece; event.dataTransfer?.setData("text/plain", piece.table.name); },
      ondragend: () => { this.dragged = null; this.drawn.forEach((each) => each.element.classList.remove("over")); },
      onkeydown: (event: KeyboardEvent) => this.key(event, piece),
    }, height >= LABELLED ? h("span", null, words) : null);
    made.style.height = `${Math.max(3, Math.round(height))}px`;
    return made;
  }

  private key(event: KeyboardEvent, piece: Piece): void {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!event.altKey || step === undefined) return;
    event.preventDefault();
    const count = this.edit.devices.length;
    void this.move(piece, (piece.rank + step * piece.span + count) % count);
  }

  private async move(piece: Piece, rank: number): Promise<void> {
    this.dragged = null;
    this.chosen = piece;
    await this.edit.move(piece, rank);
    say(this.edit.error || `${label(piece)} is on device ${piece.rank}; a step takes ${seconds(this.edit.total)}.`);
  }

  /** Why a block does not lie where it was dropped, beside the pointer. */
  private explain(x: number, y: number): void {
    if (!this.edit.error) return;
    const said = h("p", { class: "refused", role: "alert" }, this.edit.error);
    Object.assign(said.style, { left: `${Math.max(8, Math.min(x + 12, window.innerWidth - 340))}px`, top: `${Math.min(y + 12, window.innerHeight - 120)}px` });
    document.body.querySelector(".refused")?.remove();
    document.body.append(said);
    const gone = () => { said.remove(); document.removeEventListener("pointerdown", gone); document.removeEventListener("keydown", gone); };
    document.addEventListener("pointerdown", gone);
    document.addEventListener("keydown", gone);
  }

  private drawPanel(): void {
    const piece = this.chosen;
    if (!piece) return replace(this.panel, h("p", { class: "note" }, "Choose a block to see its table and what can be done with it."));
    const { table } = piece;
    const devices = this.edit.devices.map((device): [string, string] => [
      String(device.rank), `device ${device.rank} (${percent(device.hbm_bytes / device.hbm_capacity_bytes)} full)`,
    ]);
    const target = select(devices.filter((_, rank) => rank % piece.span === 0), String(piece.rank), (rank) => void this.move(piece, Number(rank)));
    replace(this.panel,
      h("h3", null, label(piece)),
      h("p", null, `${whole(table.rows)} rows × ${table.columns} columns, ${bytes(table.weight_bytes)}; ${words(table.sharding_type)}, `,
        `kernel ${table.compute_kernel}; ${whole(table.ids)} ids a sample.`),
      h("div", { class: "row end" }, field("Lies on", target),
        button("Pin it here", () => wish(this.edit, { kind: "pin", rule: { tables: table.name, pin: pinOf(this.edit, table) } }), "plain"),
        button("Keep it off this device", () => wish(this.edit, { kind: "rule", rule: { tables: table.name, not_ranks: [piece.rank] } }), "plain")));
  }
}

function label(piece: Piece): string {
  return piece.table.widths.length > 1 ? `${piece.table.name}, piece ${piece.piece + 1} of ${piece.table.widths.length}` : piece.table.name;
}

function meter(share: number, kind: string): HTMLElement {
  const fill = h("span", { class: `fill ${kind}` });
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
}
