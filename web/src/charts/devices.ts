// Where each device spends a step, stacked, with the bound as a line; and what its memory holds.

import type { DeviceCost } from "../app/api";
import { bytes, seconds } from "../app/format";
import { Figure, axis, colour } from "./base";

export const PARTS: [keyof DeviceCost, string, string][] = [
  ["forward_compute_s", "Forward compute", "part-1"],
  ["backward_compute_s", "Backward compute", "part-2"],
  ["forward_comm_s", "Forward communication", "part-3"],
  ["backward_comm_s", "Backward communication", "part-4"],
  ["wait_s", "Wait for the others", "part-5"],
];

export function stepChart(devices: () => DeviceCost[], bound: () => number | null): Figure {
  return new Figure("Seconds of every device in a step, by part", 300, () => {
    const all = devices();
    const least = bound();
    return {
      type: "bar",
      data: {
        labels: all.map((device) => device.rank),
        datasets: [
          ...(least === null ? [] : [{ type: "line" as const, label: "Bound", data: all.map(() => least), borderColor: colour("bound"),
            backgroundColor: colour("bound"), borderDash: [6, 4], borderWidth: 2, pointRadius: 0, pointStyle: "line", stack: "bound" }]),
          ...PARTS.map(([key, label, name]) => ({ label, data: all.map((device) => device[key]), pointStyle: "rect", backgroundColor: colour(name),
            stack: "step", maxBarThickness: 64, categoryPercentage: 0.86, barPercentage: 0.95 })),
        ],
      },
      options: {
        interaction: { mode: "index", intersect: false },
        scales: {
          x: { stacked: true, ...axis("Device", String), grid: { display: false }, ticks: { color: colour("muted") } },
          y: { stacked: true, ...axis("Time of a step", seconds) },
        },
        plugins: {
          legend: legend(),
          tooltip: { callbacks: { title: (items) => `Device ${items[0]?.label}`,
            label: (item) => `${item.dataset.label}: ${seconds(item.parsed.y)}` } },
        },
      },
    };
  });
}

/** Bytes between two lines of the grid: a power of two, for sizes are read in those. */
function round(devices: DeviceCost[]): number {
  const most = Math.max(1, ...devices.map((device) => Math.max(device.hbm_bytes, device.hbm_capacity_bytes)));
  return 2 ** Math.ceil(Math.log2(most / 6));
}

function legend(): object {
  return { position: "bottom", labels: { color: colour("ink"), usePointStyle: true, boxWidth: 14, boxHeight: 9 } };
}

export function memoryChart(devices: () => DeviceCost[]): Figure {
  return new Figure("Memory of every device against its capacity", 300, () => {
    const all = devices();
    return {
      type: "bar",
      data: {
        labels: all.map((device) => device.rank),
        datasets: [
          { type: "line" as const, label: "Capacity", data: all.map((device) => device.hbm_capacity_bytes), borderColor: colour("bound"),
            backgroundColor: colour("bound"), borderDash: [6, 4], borderWidth: 2, pointRadius: 0, pointStyle: "line" },
          { label: "Tables", data: all.map((device) => device.hbm_bytes), pointStyle: "rect", maxBarThickness: 64, categoryPercentage: 0.86,
            backgroundColor: all.map((device) => colour(device.hbm_bytes > device.hbm_capacity_bytes ? "bad" : "accent")) },
        ],
      },
      options: {
        interaction: { mode: "index", intersect: false },
        scales: {
          x: { ...axis("Device", String), grid: { display: false }, ticks: { color: colour("muted") } },
          y: { beginAtZero: true, ...axis("Memory", bytes, { ticks: { color: colour("muted"), stepSize: round(all), callback: (value: number | string) => bytes(Number(value)) } }) },
        },
        plugins: {
          legend: legend(),
          tooltip: { callbacks: { title: (items) => `Device ${items[0]?.label}`,
            label: (item) => `${item.dataset.label}: ${bytes(item.parsed.y ?? 0)}` } },
        },
      },
    };
  });
}
