// The data that charts and report read: a plan, as src/recsmith/web/report_data.py writes it.
// In seconds and bytes; units are chosen when numbers are shown (format.ts).

/** Seconds that a device spends in each part of a step; parts and wait add up to the step. Also for a device of a priced plan. */
export interface DeviceSeconds {
  rank: number;
  forward_compute_s: number;
  backward_compute_s: number;
  forward_comm_s: number;
  backward_comm_s: number;
  wait_s: number;
}

/** Memory of a device: bytes of each part, in the order of the parts' names, and its capacity. */
export interface DeviceMemory {
  rank: number;
  bytes: number[];
  capacity: number;
}

/** `count` ranks, beginning with `first`. */
export type RankRun = [first: number, count: number];

/** Columns [a, b) of a table and their ranks: one rank, or several with blocks of rows or with copies. */
export interface Piece {
  columns: [number, number];
  ranks: RankRun[];
  /** Rows of each rank's block, in the order of the ranks; null if every rank holds all rows. */
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
  /** Lookups of one device's batch per step. */
  ids: number;
  /** By how many seconds the device that spends most on the table would be faster without it. */
  seconds: number;
  /** Number of its tower, if the plan has towers. */
  tower: number | null;
}

/** One shard of the map: where it is placed, and its size. */
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

/** What a plan costs, and how it was made. */
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

/** A phase of the step: its slowest rank, the parts of that rank's time, and its costliest tables. */
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

/** The predicted hit rate of caches, by the cached share of every table's rows. */
export interface CacheCurve {
  tables: number;
  policy: string;
  planned_bytes: number;
  planned_hits: number;
  /** static: null if no kernel caches the rows that are read most. */
  points: { share: number; bytes: number; lru: number; static: number | null }[];
}

/** Advice in words, from src/recsmith/reports/advice.py. */
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
  /** Hit rates of tables outside device memory. */
  caches: CacheCurve | null;
  /** Which changes pay, if that was asked. */
  advice: Advice | null;
}
