// What the charts and the report read: the data of a plan, as src/recsmith/web/report_data.py writes it.
// Seconds and bytes everywhere; units are chosen where numbers are shown (format.ts).

/** Seconds that a device spends in each part of a step; parts and wait add up to the step. Also a device of a priced plan. */
export interface DeviceSeconds {
  rank: number;
  forward_compute_s: number;
  backward_compute_s: number;
  forward_comm_s: number;
  backward_comm_s: number;
  wait_s: number;
}

/** Memory of a device: what it holds of each part, in the order of the parts' names, and what it could hold. */
export interface DeviceMemory {
  rank: number;
  bytes: number[];
  capacity: number;
}

/** `count` ranks from `first` on. */
export type RankRun = [first: number, count: number];

/** Columns [a, b) of a table and where they lie: one rank whole, or several by blocks of rows, or as copies. */
export interface Piece {
  columns: [number, number];
  ranks: RankRun[];
  /** Rows of a block, the first rank's first; null where every rank holds all rows. */
  block: number | null;
}

export interface TableData {
  name: string;
  rows: number;
  columns: number;
  element_bytes: number;
  sharding_type: string;
  compute_kernel: string;
  pieces: Piece[];
  /** Ids that the batch of one device looks up in a step. */
  ids: number;
  /** Seconds by which the device that pays most for the table were faster without it. */
  seconds: number;
  /** Its number, where the plan has towers. */
  tower: number | null;
}

/** One shard of the map: where it lies, and how much it weighs. */
export interface Shard {
  table: TableData;
  rank: number;
  rows: [number, number];
  columns: [number, number];
  bytes: number;
}

/** A device of a plan's cost. */
export interface DeviceCost extends DeviceSeconds {
  hbm_bytes: number;
  hbm_capacity_bytes: number;
}

export interface Bound {
  value_s: number | null;
  kind: string;
  space: string;
}

/** What a plan costs, and where it comes from. */
export interface ShownPlan {
  name: string;
  digest: string;
  planner: string;
  cost_model: string;
  cluster: string;
  total_s: number;
  bound: Bound;
  gap: number | null;
  devices: DeviceCost[];
  notes: string[];
  sequences_s?: number;
  typically: string;
}

/** A phase of the step: the rank that all wait for, the parts of its time, and the tables that cost it most. */
export interface Phase {
  rank: number;
  seconds: number;
  mean_s: number;
  parts: { part: keyof DeviceSeconds; seconds: number; launch_s: number; latency_s: number }[];
  tables: { table: string; sharding_type: string; seconds: number }[];
}

export interface Change {
  table: string;
  before: string;
  after: string;
  moved_bytes: number;
}

export interface Difference {
  other: ShownPlan;
  changes: Change[];
  unchanged: number;
  moved_bytes: number;
  other_problem: string[];
}

/** How many lookups find their row in a cache, by the share of every table's rows that caches hold. */
export interface CacheCurve {
  tables: number;
  policy: string;
  planned_bytes: number;
  planned_hits: number;
  /** static: null where no kernel keeps the rows that are read most. */
  points: { share: number; bytes: number; lru: number; static: number | null }[];
}

/** Advice in words, as src/recsmith/reports/advice.py puts it. */
export interface Advice {
  sentence: string;
  about: string[];
  error: string;
  verdicts: { verdict: string; title: string; switches: ToldSwitch[] }[];
  together: string;
}

export interface ToldSwitch {
  name: string;
  why: string;
  facts: [word: string, said: string][];
}

export interface ReportData {
  schema: string;
  made_by: string;
  plan: ShownPlan;
  workload: { name: string; digest: string; tables: number; weight_bytes: number; batch_size: number; optimizer: string };
  phases: Phase[];
  memory_parts: string[];
  memory: DeviceMemory[];
  tables: TableData[];
  sensitivity: { median_s: number; p95_s: number; off: number; draws: number };
  against: Difference | null;
  /** Of tables outside device memory. */
  caches: CacheCurve | null;
  /** Which changes pay, where that was asked. */
  advice: Advice | null;
}
