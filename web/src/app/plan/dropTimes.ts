// While a block is dragged: the step if it were dropped on the device below it, priced by the server.

import { h } from "../../dom";
import { change, seconds } from "../format";
import type { Edit, Piece } from "./edit";

const WAIT_MS = 60; // milliseconds over a device before the request

export class DropTimes {
  private readonly said = h("p", { class: "would" });
  private over: HTMLElement | null = null;
  private timer = 0;

  constructor(private readonly edit: Edit) {}

  /** A block is held over the column of a device. */
  show(piece: Piece, rank: number, column: HTMLElement): void {
    if (this.over === column) return;
    this.hide();
    this.over = column;
    this.timer = window.setTimeout(() => void this.ask(piece, rank, column), WAIT_MS);
  }

  /** The block left a column; without an argument, whichever it was over. */
  hide(column: HTMLElement | null = this.over): void {
    if (column !== this.over) return;
    clearTimeout(this.timer);
    this.said.remove();
    this.over = null;
  }

  private async ask(piece: Piece, rank: number, column: HTMLElement): Promise<void> {
    const before = this.edit.total;
    const words = await this.edit.wouldTake(piece, rank).then(
      (total) => (total === null ? "it lies here" : `a step of ${seconds(total)} (${change(total, before)})`),
      (error: Error) => error.message);
    if (this.over !== column) return;
    this.said.textContent = words;
    column.querySelector(".device-head")!.after(this.said);
  }
}
