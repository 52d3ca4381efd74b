// The present choices of the first page; they are kept while other views are open.

import type { Rules } from "./api";

interface Chosen {
  workload: string; cluster: string; perHost: number; hosts: number; planner: string; costModel: string; seed: number;
  seconds: number | null; batch: number | null; types: string[]; kernels: string[]; widths: string; exact: boolean; reserve: number | null;
  rules: Rules | null; rulesName: string;
  more: boolean; // whether more options are shown
}

export const chosen: Chosen = {
  workload: "dlrm-v2", cluster: "h100", perHost: 8, hosts: 1, planner: "auto", costModel: "best", seed: 0, seconds: null,
  batch: null, types: [], kernels: ["fused", "dense"], widths: "any", exact: false, reserve: null, rules: null, rulesName: "", more: false,
};

/** Whether the cluster is from a file, which fixes its number of devices. */
export const isOwnCluster = (): boolean => chosen.cluster.startsWith("cluster-");

/** The cluster as a search request names it. */
export const clusterWord = (): string => (isOwnCluster() ? chosen.cluster : `${chosen.cluster}:${chosen.perHost}x${chosen.hosts}`);

/** Choose as many devices as a running plan has: whole hosts if that many fill them, otherwise one host. */
export function chooseDevices(devices: number, perHost: number): void {
  const isWhole = devices > perHost && devices % perHost === 0;
  chosen.perHost = isWhole ? perHost : devices;
  chosen.hosts = isWhole ? devices / perHost : 1;
}
