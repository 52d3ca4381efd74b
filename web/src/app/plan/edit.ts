// A plan while it is changed: its moves and the changes of its problem, step by step, and what they cost. The server
// keeps the steps as a draft, so that they are still there when the page is opened again.

import { onlyShows } from "../controls";
import { api, type Changes, type DeviceCost, type Move, type PlanView, type Priced, type Slowest, type Step, type TableAlone, type TableData } from "../api";

/** A column piece as placed now. rank: the first of the `span` ranks that it covers. seconds: by how much its device would be faster without it, in the stored plan; 0 until requested. */
export interface Piece { key: string; table: TableData; piece: number; rank: number; span: number; bytes: number; seconds: number }

export class Edit {
  priced: Priced | null = null;
  error = "";
  /** Why the last steps could not be stored; empty if they are. */
  unkept = "";
  readonly pieces: Piece[];
  private steps: Step[];
  private done: number;
  private version: string;
  private knob = "";
  private turn: Promise<unknown> = Promise.resolve();
  private keeping: Promise<unknown> = Promise.resolve();
  private isKept = true;
  private readonly heard = new Set<() => void>();

  constructor(readonly view: PlanView) {
    this.pieces = view.data.tables.flatMap((table) => table.widths.map((width, piece): Piece => ({
      key: `${piece}:${table.name}`, table, piece, rank: table.ranks[piece]!, span: table.span,
      bytes: (table.weight_bytes * width) / table.columns / (table.sharding_type === "data_parallel" ? 1 : table.span),
      seconds: 0,
    })));
    this.steps = view.draft.steps.map(({ move, changes }) => (move ? { move } : { changes: given(changes ?? {}) }));
    this.done = view.draft.done;
    this.version = view.draft.version;
  }

  /** Show the stored draft, if there is one. */
  async open(): Promise<void> {
    this.place();
    if (this.isChanged) await this.price();
  }

  get id(): string { return this.view.summary.id; }
  get moves(): Move[] { return this.now.flatMap((step) => (step.move ? [step.move] : [])); }
  get changes(): Changes { return this.now.findLast((step) => step.changes)?.changes ?? {}; }
  get isChanged(): boolean { return this.moves.length > 0 || Object.keys(this.changes).length > 0; }
  get canUndo(): boolean { return this.done > 0; }
  get canRedo(): boolean { return this.done < this.steps.length; }
  /** Whether the plan's file has changed since the steps were made. */
  get isOfAnother(): boolean { return this.done > 0 && this.view.draft.plan !== "" && this.view.draft.plan !== this.view.summary.digest; }
  private readonly alone = new Map<string, Promise<TableAlone>>();
  /** Request what a table costs the step of the unchanged plan, once. */
  aloneOf(table: string): Promise<TableAlone> {
    const found = this.alone.get(table) ?? api.table(this.id, table);
    this.alone.set(table, found);
    return found;
  }
  /** Request what every piece costs its device, once. */
  async time(): Promise<void> {
    if (this.pieces.some((piece) => piece.seconds)) return;
    const { seconds } = await api.seconds(this.id);
    for (const piece of this.pieces) piece.seconds = ((seconds[piece.table.name] ?? 0) * piece.table.widths[piece.piece]!) / Math.max(...piece.table.widths);
  }

  get devices(): DeviceCost[] { return (this.priced?.cost ?? this.view.data.cost).per_device; }
  get memory(): { rank: number; bytes: number[]; capacity: number }[] {
    return this.devices.map((device) => ({ rank: device.rank, bytes: [device.hbm_bytes], capacity: device.hbm_capacity_bytes }));
  }
  get total(): number { return (this.priced?.cost ?? this.view.data.cost).total_s + this.beside; }
  get beside(): number { return (this.priced?.cost ?? this.view.data.cost).sequences_s ?? 0; }
  get bound(): number | null { return this.priced ? this.priced.bound_s : this.view.data.bound.value_s; }
  get gap(): number | null { return this.priced ? this.priced.gap : this.view.summary.gap; }

  get slowest(): Slowest { return this.priced?.slowest ?? this.view.slowest; }

  onChange(hear: () => void): void { this.heard.add(hear); }

  /** Move a piece to a device; the server's price reports the result. */
  async move(piece: Piece, rank: number): Promise<void> {
    const first = rank - (rank % piece.span);
    if (first === piece.rank || !piece.table.movable || onlyShows()) return;
    await this.go(() => [[...this.now, { move: { table: piece.table.name, piece: piece.piece, rank: first } }], this.done + 1]);
  }

  private readonly asked = new Map<string, Promise<number>>();
  /** Seconds of a step if a piece were on a device, all else unchanged; null if it is there already. Fails if it may not be there. */
  async wouldTake(piece: Piece, rank: number): Promise<number | null> {
    const first = rank - (rank % piece.span);
    if (first === piece.rank) return null;
    const moves = [...this.moves, { table: piece.table.name, piece: piece.piece, rank: first }];
    const key = JSON.stringify([moves, this.changes]);
    const found = this.asked.get(key) ?? api.price(this.id, moves, this.changes).then(({ cost }) => cost.total_s + (cost.sequences_s ?? 0));
    this.asked.set(key, found);
    found.catch(() => this.asked.delete(key));
    return found;
  }

  /** Change the problem. knob: the control that was turned; turning it further is part of the same step. */
  async change(changes: Changes, knob: string): Promise<void> {
    await this.go(() => {
      const same = this.knob === knob && this.now.at(-1)?.changes;
      const kept = same ? this.now.slice(0, -1) : this.now;
      return [[...kept, { changes }], kept.length + 1];
    }, knob);
  }

  async undo(): Promise<void> {
    await this.go(() => [this.steps, Math.max(0, this.done - 1)]);
  }

  async redo(): Promise<void> {
    await this.go(() => [this.steps, Math.min(this.steps.length, this.done + 1)]);
  }

  /** Undo all steps; they can be redone. */
  async reset(): Promise<void> {
    await this.go(() => [this.steps, 0]);
  }

  /** Drop the steps, as after they became a plan; if the last ones could not be stored, the stored draft is left as it is. */
  async clear(): Promise<void> {
    await this.keeping;
    if (this.unkept) this.unkept = "";
    else await this.go(() => [[], 0]);
    await this.keeping;
  }

  private get now(): Step[] { return this.steps.slice(0, this.done); }

  /** Set new steps, one change after the other; they are reverted if they cannot be run. */
  private go(next: () => [Step[], number], knob = ""): Promise<void> {
    const made = this.turn.then(async () => {
      const before: [Step[], number] = [this.steps, this.done];
      [this.steps, this.done] = next();
      this.place();
      if (!(await this.price())) {
        [this.steps, this.done] = before;
        this.place();
        this.tell();
        return;
      }
      this.knob = knob;
      if (this.steps !== before[0] || this.done !== before[1]) this.keepSoon();
    });
    this.turn = made;
    return made;
  }

  private place(): void {
    const ranks = new Map(this.moves.map((move) => [`${move.piece}:${move.table}`, move.rank]));
    for (const piece of this.pieces) piece.rank = ranks.get(piece.key) ?? piece.table.ranks[piece.piece]!;
  }

  /** Store the present steps, one request after the other; the next change need not wait for it. */
  private keepSoon(): void {
    this.isKept = false;
    this.keeping = this.keeping.then(async () => {
      if (this.isKept) return;
      this.isKept = true;
      await this.keep();
    });
  }

  private async keep(): Promise<void> {
    const was = this.unkept;
    try {
      this.version = (await api.draft(this.id, this.steps, this.done, this.version)).version;
      this.unkept = "";
    } catch (error) {
      this.unkept = (error as Error).message;
    }
    if (was !== this.unkept) this.tell();
  }

  /** Request the present cost; returns false, with the reason in `error`, if the steps cannot be run. */
  private async price(): Promise<boolean> {
    this.error = "";
    try {
      this.priced = this.isChanged ? await api.price(this.id, this.moves, this.changes) : null;
    } catch (error) {
      this.error = (error as Error).message;
      return false;
    }
    this.tell();
    return true;
  }

  private tell(): void {
    for (const hear of this.heard) hear();
  }
}

/** The fields of changes that are set: answers contain the others as null. */
function given(changes: Changes): Changes {
  return Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== null)) as Changes;
}
