// The server's JSON API, as /api/openapi.json describes it.

import type { Advice } from "../data";

export interface WorkloadSummary {
  id: string; name: string; tables: number; weight_bytes: number; batch_size: number; optimizer: string;
  data_types: string[]; numbered: number; assumed: string[];
}
export interface ClusterSummary {
  id: string; name: string; device: string; hosts: number; local_world_size: number; hbm_bytes: number;
  reserve_bytes: number; intra_host_bandwidth: number; inter_host_bandwidth: number;
}
export interface Named { name: string; about: string; needs: string }
export interface Choices {
  version: string; folder: string | null; read_only: boolean; data_types: string[]; optimizers: string[]; workloads: WorkloadSummary[]; clusters: ClusterSummary[]; planners: Named[]; cost_models: Named[];
  sharding_types: string[]; compute_kernels: string[];
  limits: { upload_bytes: number; most_tables: number; most_devices: number; longest_search_s: number; kept_plans: number };
}
export interface PlanSummary {
  id: string; name: string; note: string; origin: string; parent: string | null; unwritten: string; made: number; workload: string; cluster: string; tables: number;
  devices: number; batch_size: number; planner: string; cost_model: string; total_s: number; bound_s: number | null;
  gap: number | null; mean_s: number; largest_hbm_bytes: number; hbm_capacity_bytes: number; overfull: number[];
  digest: string; elapsed_s: number | null; iterations: number | null; truncated: boolean; notes: string[];
}
export interface DeviceCost {
  rank: number; forward_compute_s: number; backward_compute_s: number; forward_comm_s: number; backward_comm_s: number;
  wait_s: number; hbm_bytes: number; hbm_capacity_bytes: number;
}
export interface StepCost { total_s: number; per_device: DeviceCost[]; sequences_s?: number }
export interface TableData {
  name: string; rows: number; columns: number; weight_bytes: number; ids: number; sharding_type: string;
  compute_kernel: string; widths: number[]; ranks: number[]; span: number; movable: boolean;
  tower: number | null;
}
export interface PlanData {
  cost: StepCost; bound: { value_s: number | null; kind: string; space: string }; tables: TableData[];
  inexact: string[]; batch_size: number; optimizer: string; hosts: number; local_world_size: number;
}
export interface Pin { sharding_type: string; ranks: number[]; compute_kernel?: string; widths?: number[]; cache?: { load_factor: number } | null }
export interface TableRule { tables: string; ranks?: number[] | null; not_ranks?: number[] | null; pin?: Pin | null; [other: string]: unknown }
export interface Group { tables: string[]; per?: string }
export interface Rules {
  rules: TableRule[]; together: Group[]; apart: Group[]; per_rank: unknown[]; memory?: string; keep_exact?: boolean;
}
export interface Slowest { rank: number; step_share: number | null; part: string; part_share: number; over_mean: number }
export interface Space { types: string[]; widths: string; kernels: string[]; cache_factors?: number[] }
export interface Fix { text: string; changes: Changes | null; space: Space | null }
export interface PlanView {
  notes: string[]; typically: string; slowest: Slowest; valid_for: string; devices_per_host: number | null;
  summary: PlanSummary; cluster: ClusterSummary; constraints: Record<string, unknown>; data: PlanData;
  draft: Draft; question: Record<string, unknown> | null;
}
export interface PlacementData {
  table: string; sharding_type: string; compute_kernel: string; ranks: number[]; widths: number[];
  cache: { load_factor: number } | null;
}
export interface Changes {
  batch_size?: number; hbm_bytes?: number; reserve_bytes?: number; hosts?: number; local_world_size?: number; intra_host_bandwidth?: number;
  inter_host_bandwidth?: number; optimizer?: string;
}
export interface Move { table: string; piece: number; rank: number }
/** One step of a draft: either a piece that moves, or all changes of the problem from this step on. */
export interface Step { move?: Move | null; changes?: Changes | null }
export interface Draft { steps: Step[]; done: number; version: string; plan: string }
export interface Priced {
  cost: StepCost; bound_s: number | null; gap: number | null; slowest: Slowest; overfull: number[]; broken: string[];
  placements: PlacementData[];
}
export interface TableAlone { table: string; step_s: number; without_s: number; other: string | null; other_s: number | null }
export interface SearchState { id: string; state: string; name: string; plan: string | null; error: string | null }
export interface SearchEvent {
  seq: number; kind: string; elapsed_s: number; total_s: number | null; bound_s: number | null; waiting: number | null;
  error: string | null; plan: PlanSummary | null; fixes: Fix[];
}
export interface SearchAsked {
  workload?: string; cluster?: string; plan?: string; start?: boolean; name?: string; changes?: Changes;
  constraints?: Rules; space?: Partial<Space>; planner?: string; cost_model?: string; seed?: number;
  time_limit_s?: number | null;
}
export interface StreamSummary { id: string; name: string; arms: number; seeds: number; chosen: string }
export interface ArmRow {
  name: string; ne: number; ne_within: number | null; logloss: number; worse: number; worse_within: number | null;
  cost: number; late: Record<string, number>;
}
export interface StreamView {
  summary: StreamSummary; because: string; rows: ArmRow[]; curves: { name: string; points: [number, number][] }[];
}
export interface SweepSummary { id: string; name: string; points: number; said: string }
export interface SweepPoint {
  device: string; per_host: number; devices: number; hosts: number; batch_size: number; global_batch_size: number; outcome: string; error: string | null;
  total_s: number | null; bound_s: number | null; gap: number | null; memory_share: number | null; samples_per_s: number | null;
  device_s_per_million: number | null; knee: boolean; truncated: boolean; group_size: number | null;
}
export interface SweepView {
  summary: SweepSummary; planner: string; cost_model: string; space: string; fixed: "batch_size" | "global_batch_size"; left: number; knees: string[]; fewest: string[];
  points: SweepPoint[];
}
export interface RunSummary { id: string; name: string; folder: string; step: number; ended: boolean; written: number }
export interface RunPlan {
  digest: string; cluster: string; tables: number; devices: number; batch_size: number; planner: string; cost_model: string; step_s: number;
  bound_s: number | null; gap: number | null; cost: StepCost;
}
export interface MeasuredStep {
  lines: number; step_s: number; samples_per_s: number | null; data_s: number | null; forward_s: number | null; backward_s: number | null;
}
export interface RunView {
  summary: RunSummary; plan: RunPlan | null; trouble: string; predicted_s: number | null; measured: MeasuredStep | null; curves: { name: string; points: [number, number][] }[];
  alarms: { step: number; since: number; kind: string; because: string; done: string }[]; damaged: number; more: boolean;
}
export interface RunningSummary { id: string; name: string; tables: number; devices: number }
export interface Opened {
  kind: "workload" | "cluster" | "plan" | "constraints" | "stream" | "sweep" | "running"; name: string; notes: string[]; running: RunningSummary | null; workload: WorkloadSummary | null;
  cluster: ClusterSummary | null; plan: PlanSummary | null; constraints: Rules | null; stream: StreamSummary | null; sweep: SweepSummary | null;
}
export interface Shelves {
  workloads: WorkloadSummary[]; clusters: ClusterSummary[]; plans: PlanSummary[]; streams: StreamSummary[]; sweeps: SweepSummary[]; runs: RunSummary[];
  deleted: { id: string; name: string }[]; unread: { file: string; why: string }[];
}
export interface SideBySide {
  plans: PlanSummary[];
  settings: Record<string, string[]>;
  differences: {
    plan: string; changed: number; unchanged: number; moved_bytes: number; other_problem: string[];
    changes: { table: string; before: string | null; after: string | null; moved_bytes: number }[];
  }[];
}

async function ask<T>(method: string, path: string, body?: BodyInit, kind = "application/json"): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, { method, body, headers: body === undefined ? {} : { "content-type": kind } });
  } catch {
    throw new Error("The server does not answer; start `recsmith serve` again and open the address that it prints.");
  }
  const text = await answer.text();
  const data = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Error(data?.error ?? `the server answers ${answer.status}`);
  return data as T;
}

const get = <T>(path: string) => ask<T>("GET", path);
const post = <T>(path: string, body: unknown = {}) => ask<T>("POST", path, JSON.stringify(body));
const at = encodeURIComponent;

export const api = {
  choices: () => get<Choices>("/api/choices"),
  kept: () => get<Shelves>("/api/kept"),
  open: (file: File, batch: number | null) =>
    ask<Opened>("POST", `/api/files?name=${at(file.name)}&assume=true${batch ? `&batch_size=${batch}` : ""}`, file, "application/octet-stream"),
  tell: (id: string, said: { optimizer?: string; data_type?: string; batch_size?: number }) =>
    ask<WorkloadSummary>("PATCH", `/api/workloads/${at(id)}`, JSON.stringify(said)),
  running: (id: string, workload: string, cluster: string) => post<PlanSummary>(`/api/running/${at(id)}/plan`, { workload, cluster }),
  sample: (tables: number, seed: number) => post<WorkloadSummary>("/api/samples", { tables, seed }),
  search: (asked: SearchAsked) => post<SearchState>("/api/searches", asked),
  searches: () => get<{ searches: SearchState[] }>("/api/searches"),
  searchState: (id: string) => get<SearchState>(`/api/searches/${at(id)}`),
  stop: (id: string) => post<SearchState>(`/api/searches/${at(id)}/stop`),
  cancel: (id: string) => ask<SearchState>("DELETE", `/api/searches/${at(id)}`),
  plan: (id: string) => get<PlanView>(`/api/plans/${at(id)}`),
  describe: (id: string, said: { name?: string; note?: string }) => ask<PlanSummary>("PATCH", `/api/plans/${at(id)}`, JSON.stringify(said)),
  copy: (id: string) => post<PlanSummary>(`/api/plans/${at(id)}/copies`),
  remove: (id: string) => ask<null>("DELETE", `/api/plans/${at(id)}`),
  restore: (id: string) => post<PlanSummary>(`/api/plans/${at(id)}/restore`),
  draft: (id: string, steps: Step[], done: number, base: string) =>
    ask<Draft>("PUT", `/api/plans/${at(id)}/draft`, JSON.stringify({ steps, done, base })),
  price: (id: string, moves: Move[], changes?: Changes) => post<Priced>(`/api/plans/${at(id)}/price`, { moves, changes }),
  keep: (id: string, moves: Move[], changes: Changes | undefined, name: string) =>
    post<PlanSummary>(`/api/plans/${at(id)}/edits`, { moves, changes, name }),
  seconds: (id: string) => get<{ seconds: Record<string, number> }>(`/api/plans/${at(id)}/seconds`),
  table: (id: string, name: string) => get<TableAlone>(`/api/plans/${at(id)}/table?name=${at(name)}`),
  stream: (id: string) => get<StreamView>(`/api/streams/${at(id)}`),
  sweep: (id: string) => get<SweepView>(`/api/sweeps/${at(id)}`),
  run: (id: string) => get<RunView>(`/api/runs/${at(id)}`),
  compare: (ids: string[]) => get<SideBySide>(`/api/comparison?${ids.map((id) => `plan=${at(id)}`).join("&")}`),
  advice: (id: string) => get<Advice>(`/api/plans/${at(id)}/advice`),
  fileOf: (id: string) => `/api/plans/${at(id)}/file`,
  reportOf: (id: string, against?: string) => `/api/plans/${at(id)}/report${against ? `?against=${at(against)}` : ""}`,
};

/** Receive the events of a search until it ends; the browser reconnects if the connection breaks. */
export function listen(id: string, hear: (event: SearchEvent) => void): () => void {
  const source = new EventSource(`/api/searches/${at(id)}/events`);
  const kinds = ["queued", "started", "bound", "improved", "done", "failed", "cancelled"];
  for (const kind of kinds)
    source.addEventListener(kind, (message) => {
      const event = JSON.parse((message as MessageEvent<string>).data) as SearchEvent;
      if (["done", "failed", "cancelled"].includes(kind)) source.close();
      hear(event);
    });
  return () => source.close();
}
