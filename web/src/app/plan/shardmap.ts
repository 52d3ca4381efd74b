// The map of shards: a column per device, a block per shard, moved by dragging or by keys; devices of a host fold together.
// Blocks are buttons: the Tab key stops at one of them, and arrow keys go to the others.

import { h, replace } from "../../dom";
import { colourOfTower } from "../../charts/towers";
import type { TableData } from "../api";
import { button, say, sayAt, select } from "../controls";
import { bytes, counted, percent, seconds, words } from "../format";
import { DropTimes } from "./dropTimes";
import type { Edit, Piece } from "./edit";
import { Hosts } from "./hosts";
import { label, meter, panelOf } from "./piece";

const HEIGHT = 260; // pixels of the fullest column
const MOST_BLOCKS = 2400; // blocks of all columns; the smallest pieces beyond this are only counted
const MOST_NAMED = 200; // tables on every device that are named
const LABELLED = 15; // least height in pixels of a block that shows its name
const ARROWS: Record<string, [columns: number, rows: number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

type Measure = "bytes" | "seconds";

/** What sets the colour of a table: its tower, if the plan has towers, otherwise its sharding type. */
const kindOf = (table: TableData): string => (table.tower === null ? table.sharding_type : colourOfTower(table.tower).replaceAll("-", "_"));

export function shardMap(edit: Edit): HTMLElement {
  const map = new ShardMap(edit);
  return map.element;
}

class ShardMap {
  readonly element = h("div", { class: "shardmap" });
  private readonly columns = h("div", { class: "device-columns" });
  private readonly panel = h("div", { class: "chosen", "aria-live": "polite" });
  private readonly hosts: Hosts;
  private readonly times: DropTimes;
  private readonly everywhere: Piece[];
  private readonly most: number;
  private order: Piece[] = [];
  private chosen: Piece | null = null;
  private dragged: Piece | null = null;
  private stop: HTMLElement | null = null;
  private drawn: { signature: string; element: HTMLElement; head: HTMLElement }[] = [];
  private measure: Measure = "bytes";
  private scale = 0;

  constructor(private readonly edit: Edit) {
    this.times = new DropTimes(edit);
    this.everywhere = edit.pieces.filter((piece) => !piece.table.movable);
    this.most = Math.max(1, Math.floor(MOST_BLOCKS / edit.devices.length));
    this.hosts = new Hosts(edit, this.columns, (rank) => this.busy(rank), () => this.draw(), (event, rank) => this.dropped(event, rank), () => this.dragged !== null);
    const measures: [string, string][] = [["bytes", "memory"], ["seconds", "time"]];
    const measured = select(measures, this.measure, (name) => void this.ask(name as Measure));
    this.element.append(
      h("div", { class: "map-head" }, this.legend(), h("label", { class: "measure" }, "Blocks as high as their ", measured)),
      h("p", { class: "note how" }, "Drag a block to another device and see at once what that costs. With the keyboard: arrows go from block to block, ",
        "Enter chooses one, and Alt with the left or right arrow moves it."),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Map of shards" }, this.columns),
      ...this.shared(), this.panel);
    this.columns.addEventListener("keydown", (event) => this.walk(event));
    this.columns.addEventListener("focusin", (event) => this.stand(event.target as HTMLElement));
    edit.onChange(() => this.draw());
    this.by("bytes");
  }

  private legend(): HTMLElement {
    const kinds = new Map(this.edit.pieces.map(({ table }) => [table.tower === null ? words(table.sharding_type) : `tower ${table.tower}`, kindOf(table)]));
    return h("ul", { class: "legend" }, [...kinds].sort().map(([name, kind]) => h("li", null, h("span", { class: `swatch kind-${kind}` }), name)));
  }

  /** Tables on every device, separate from the others: copies, and tables split by rows. */
  private shared(): HTMLElement[] {
    const kinds: [string, boolean][] = [["copied to every device", true], ["split by rows over every device", false]];
    return kinds.flatMap(([words, copies]) => {
      const pieces = this.everywhere.filter(({ table }) => (table.sharding_type === "data_parallel") === copies);
      if (!pieces.length) return [];
      const tables = new Map(pieces.map((piece) => [piece.table.name, piece]));
      const size = pieces.reduce((sum, piece) => sum + piece.bytes, 0);
      return [h("details", { class: "everywhere" },
        h("summary", null, `${counted(tables.size, "table")} ${words}, ${bytes(size)} on each`),
        h("div", { class: "buttons" }, [...tables].slice(0, MOST_NAMED).map(([name, piece]) => button(name, () => { this.chosen = piece; this.draw(); }, "quiet"))),
        tables.size > MOST_NAMED ? h("p", { class: "note" }, `and ${tables.size - MOST_NAMED} more, which the table below lists`) : null)];
    });
  }

  private async ask(measure: Measure): Promise<void> {
    try {
      if (measure === "seconds") await this.edit.time();
      this.by(measure);
    } catch (error) {
      replace(this.panel, h("p", { class: "error", role: "alert" }, (error as Error).message));
    }
  }

  /** Draw blocks as high as their memory, or as the time that their device would save without them. */
  private by(measure: Measure): void {
    this.measure = measure;
    this.order = this.edit.pieces.filter((piece) => piece.table.movable).toSorted((a, b) => b[measure] - a[measure]);
    this.scale = 0;
    this.drawn = [];
    this.hosts.clear();
    this.draw();
  }

  private draw(): void {
    const { edit } = this;
    const focused = (document.activeElement as HTMLElement | null)?.dataset.key;
    const held = edit.devices.map(() => [] as Piece[]);
    for (const piece of this.order) for (let i = 0; i < piece.span; i += 1) held[piece.rank + i]?.push(piece);
    this.scale ||= HEIGHT / (Math.max(...held.map((pieces) => pieces.reduce((sum, piece) => sum + piece[this.measure], 0))) || 1);
    const slowest = Math.max(...edit.devices.map((device) => this.busy(device.rank)));
    held.forEach((pieces, rank) => { if (this.hosts.isOpen(rank)) this.drawColumn(rank, pieces, slowest); });
    this.hosts.draw(slowest);
    const key = focused ?? this.stop?.dataset.key;
    const found = key ? this.columns.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`) : null;
    this.stand(found ?? this.columns.querySelector<HTMLElement>(".block"));
    if (focused) found?.focus();
    replace(this.panel, panelOf(edit, this.chosen, (piece, rank) => void this.move(piece, rank)));
  }

  private busy(rank: number): number {
    const device = this.edit.devices[rank]!;
    return device.forward_compute_s + device.backward_compute_s + device.forward_comm_s + device.backward_comm_s;
  }

  /** Rebuild a column only if it has other pieces; update its figures after every move. */
  private drawColumn(rank: number, pieces: Piece[], slowest: number): void {
    const signature = pieces.map((piece) => piece.key + (piece === this.chosen ? "!" : "")).join("\u0001");
    if (this.drawn[rank]?.signature !== signature) {
      const head = h("div", { class: "device-head" });
      const element = this.column(rank, pieces, head);
      if (this.drawn[rank]) this.drawn[rank].element.replaceWith(element);
      else this.hosts.place(rank, element);
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
    const made = h("div", { class: "device", role: "group", "aria-label": `Device ${rank}`, "data-rank": rank }, head,
      h("div", { class: "blocks" }, shown.map((piece) => this.block(piece, piece[this.measure] * this.scale))),
      pieces.length > shown.length ? h("p", { class: "note" }, `and ${counted(pieces.length - shown.length, "smaller piece")}`) : null);
    made.addEventListener("dragover", (event) => {
      if (!this.dragged) return;
      event.preventDefault();
      made.classList.add("over");
      this.times.show(this.dragged, rank, made);
    });
    made.addEventListener("dragleave", (event) => {
      made.classList.remove("over");
      if (!made.contains(event.relatedTarget as Node | null)) this.times.hide(made);
    });
    made.addEventListener("drop", (event) => this.dropped(event, rank));
    return made;
  }

  private dropped(event: DragEvent, rank: number): void {
    if (!this.dragged) return;
    event.preventDefault();
    this.times.hide();
    void this.move(this.dragged, rank).then(() => { if (this.edit.error) sayAt(event.clientX, event.clientY, this.edit.error); });
  }

  private block(piece: Piece, height: number): HTMLElement {
    const words = label(piece);
    const made = h("button", {
      type: "button", class: `block kind-${kindOf(piece.table)}`, draggable: "true", "data-key": piece.key, tabindex: -1,
      "aria-label": `${words}, ${bytes(piece.bytes)}, on device ${piece.rank}`, title: `${words} · ${bytes(piece.bytes)}${piece.seconds ? ` · ${seconds(piece.seconds)}` : ""}`,
      "aria-pressed": this.chosen === piece ? "true" : "false",
      onclick: () => { this.chosen = this.chosen === piece ? null : piece; this.draw(); },
      ondragstart: (event: DragEvent) => { this.dragged = piece; event.dataTransfer?.setData("text/plain", piece.table.name); },
      ondragend: () => { this.dragged = null; this.times.hide(); this.columns.querySelectorAll(".over").forEach((each) => each.classList.remove("over")); },
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
    const rank = (piece.rank + step * piece.span + count) % count;
    this.hosts.open(rank);
    void this.move(piece, rank);
  }

  /** Arrow keys go to the block above or below, or to the same position in the next column that has blocks. */
  private walk(event: KeyboardEvent): void {
    const way = ARROWS[event.key];
    const from = (event.target as HTMLElement).closest<HTMLElement>(".block");
    if (!way || !from || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const columns = [...this.columns.querySelectorAll(".device")].map((each) => [...each.querySelectorAll<HTMLElement>(".block")]).filter((blocks) => blocks.length);
    const column = columns.findIndex((blocks) => blocks.includes(from));
    const row = columns[column]!.indexOf(from);
    const target = columns[column + way[0]];
    (target?.[Math.min(row + way[1], target.length - 1)] ?? from).focus();
  }

  /** Make a block the one that the Tab key stops at. */
  private stand(block: HTMLElement | null): void {
    if (!block?.classList.contains("block") || block === this.stop && block.tabIndex === 0) return;
    if (this.stop) this.stop.tabIndex = -1;
    this.stop = block;
    block.tabIndex = 0;
  }

  private async move(piece: Piece, rank: number): Promise<void> {
    this.dragged = null;
    this.chosen = piece;
    await this.edit.move(piece, rank);
    say(this.edit.error || `${label(piece)} is on device ${piece.rank}; a step takes ${seconds(this.edit.total)}.`);
  }
}
