// A plan as it is being changed: the moves and the changes of its problem, and what they cost.

import { api, type Changes, type DeviceCost, type Move, type PlanView, type Priced, type Slowest, type TableData } from "../api";

/** A column piece as it lies now. rank: the first of the `span` ranks that it covers. */
export interface Piece { key: string; table: TableData; piece: number; rank: number; span: number; bytes: number }

export class Edit {
  readonly moves: Move[] = [];
  changes: Changes = {};
  priced: Priced | null = null;
  error = "";
  readonly pieces: Piece[];
  private readonly heard = new Set<() => void>();
  private asked = 0;

  constructor(readonly view: PlanView) {
    this.pieces = view.data.tables.flatMap((table) => table.widths.map((width, piece): Piece => ({
      key: `${piece}:${table.name}`, table, piece, rank: table.ranks[piece]!, span: table.span,
      bytes: (table.weight_bytes * width) / table.columns / (table.sharding_type === "data_parallel" ? 1 : table.span),
    })));
  }

  get id(): string { return this.view.summary.id; }
  get isChanged(): boolean { return this.moves.length > 0 || Object.keys(this.changes).length > 0; }
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

  /** Move a piece to a device; what is said is said by the server's price. */
  async move(piece: Piece, rank: number): Promise<void> {
    const first = rank - (rank % piece.span);
    if (first === piece.rank || !piece.table.movable) return;
    const before = piece.rank;
    piece.rank = first;
    this.moves.push({ table: piece.table.name, piece: piece.piece, rank: first });
    if (!(await this.price())) {
      piece.rank = before;
      this.moves.pop();
      this.tell();
    }
  }

  async undo(): Promise<void> {
    const last = this.moves.pop();
    if (!last) return;
    const key = `${last.piece}:${last.table}`;
    const piece = this.pieces.find((each) => each.key === key)!;
    const earlier = this.moves.findLast((move) => move.table === last.table && move.piece === last.piece);
    piece.rank = earlier?.rank ?? piece.table.ranks[piece.piece]!;
    await this.price();
  }

  async reset(): Promise<void> {
    this.moves.length = 0;
    this.changes = {};
    for (const piece of this.pieces) piece.rank = piece.table.ranks[piece.piece]!;
    await this.price();
  }

  async change(changes: Changes): Promise<void> {
    this.changes = changes;
    await this.price();
  }

  /** Ask what it costs now; false, with the reason in `error`, where it cannot be run. */
  private async price(): Promise<boolean> {
    const mine = (this.asked += 1);
    this.error = "";
    try {
      const priced = this.isChanged ? await api.price(this.id, this.moves, this.changes) : null;
      if (mine === this.asked) this.priced = priced;
    } catch (error) {
      this.error = (error as Error).message;
    }
    if (mine === this.asked) this.tell();
    return this.error === "";
  }

  private tell(): void {
    for (const hear of this.heard) hear();
  }
}
