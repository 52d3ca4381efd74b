// Hosts of the map: with 16 devices or more their columns fold into one, which shows the slowest and the fullest device.

import { h, replace } from "../../dom";
import { button } from "../controls";
import { counted, percent, seconds } from "../format";
import type { Edit } from "./edit";
import { meter } from "./piece";

const FOLDED_FROM = 16; // number of devices
const SPRING_MS = 500; // milliseconds that a block is held over a folded host until it opens

interface Host { first: number; group: HTMLElement; columns: HTMLElement; head: HTMLElement; isOpen: boolean }

export class Hosts {
  private readonly all: Host[] = [];
  private readonly local: number;

  constructor(
    private readonly edit: Edit, into: HTMLElement, private readonly busy: (rank: number) => number,
    private readonly redraw: () => void, private readonly drop: (event: DragEvent, rank: number) => void, private readonly isDragging: () => boolean,
  ) {
    const { hosts, local_world_size: local } = edit.view.data;
    const folds = hosts > 1 && edit.devices.length >= FOLDED_FROM;
    this.local = folds ? local : edit.devices.length;
    for (let first = 0; first < edit.devices.length; first += this.local) this.all.push(this.host(first, folds));
    if (folds) {
      into.classList.add("folding");
      this.open(edit.slowest.rank);
    }
    into.append(...this.all.map((host) => host.group));
  }

  /** Whether the columns of a device's host are shown. */
  isOpen(rank: number): boolean { return this.at(rank).isOpen; }

  open(rank: number): void { this.at(rank).isOpen = true; }

  place(rank: number, column: HTMLElement): void { this.at(rank).columns.append(column); }

  clear(): void { for (const host of this.all) replace(host.columns); }

  /** slowest: seconds of the slowest device of all. */
  draw(slowest: number): void {
    if (this.all.length > 1) this.all.forEach((host, number) => this.drawHead(host, number, slowest));
  }

  private at(rank: number): Host { return this.all[Math.floor(rank / this.local)]!; }

  private ranks(host: Host): number[] { return Array.from({ length: this.local }, (_, i) => host.first + i); }

  private filled(rank: number): number {
    const device = this.edit.devices[rank]!;
    return device.hbm_bytes / device.hbm_capacity_bytes;
  }

  private host(first: number, folds: boolean): Host {
    const [head, columns] = [h("div", { class: "host-head" }), h("div", { class: "host-columns" })];
    const group = h("div", folds ? { class: "host", role: "group", "aria-label": `Host ${first / this.local}` } : { class: "host" }, folds ? head : null, columns);
    const host: Host = { first, group, columns, head, isOpen: !folds };
    if (folds) this.listen(host);
    return host;
  }

  /** A block held over a folded host opens it after a moment; dropped there, it goes to the host's emptiest device. */
  private listen(host: Host): void {
    let timer = 0;
    const leave = () => { clearTimeout(timer); timer = 0; host.group.classList.remove("over"); };
    host.group.addEventListener("dragover", (event) => {
      if (host.isOpen || !this.isDragging()) return;
      event.preventDefault();
      host.group.classList.add("over");
      timer ||= window.setTimeout(() => { leave(); this.toggle(host, true); }, SPRING_MS);
    });
    host.group.addEventListener("dragleave", (event) => { if (!host.group.contains(event.relatedTarget as Node | null)) leave(); });
    host.group.addEventListener("drop", (event) => {
      if (host.isOpen) return;
      leave();
      this.drop(event, this.ranks(host).reduce((best, rank) => (this.filled(rank) < this.filled(best) ? rank : best)));
    });
  }

  private toggle(host: Host, isOpen: boolean): void {
    host.isOpen = isOpen;
    this.redraw();
    host.head.querySelector("button")?.focus();
  }

  private drawHead(host: Host, number: number, slowest: number): void {
    const ranks = this.ranks(host);
    const [time, full] = [Math.max(...ranks.map(this.busy)), Math.max(...ranks.map((rank) => this.filled(rank)))];
    host.columns.hidden = !host.isOpen;
    host.group.classList.toggle("folded", !host.isOpen);
    const had = host.head.contains(document.activeElement);
    replace(host.head,
      button(`Host ${number}`, () => this.toggle(host, !host.isOpen), "quiet", { "aria-expanded": host.isOpen ? "true" : "false" }),
      host.isOpen ? null : [
        h("span", null, counted(ranks.length, "device")),
        h("span", null, seconds(time)), meter(slowest ? time / slowest : 0, "time"),
        h("span", { class: full > 1 ? "over" : "" }, `${percent(full)} full`), meter(full, full > 1 ? "bad" : "memory")]);
    if (had) host.head.querySelector("button")?.focus();
  }
}
