// A search as it goes: the best step so far against time, and the bound as a line below it.

import { seconds } from "../app/format";
import { Figure, axis, colour } from "./base";

export interface Point { x: number; y: number }

export function progressChart(points: Point[], bound: () => number | null, now: () => number): Figure {
  return new Figure("The best step so far against time", 300, () => {
    const last = points.at(-1);
    const end = Math.max(now(), last?.x ?? 0, 0.5);
    const steps = last ? [...points, { x: end, y: last.y }] : [];
    const least = bound();
    return {
      type: "line",
      data: {
        datasets: [
          { label: "Best plan so far", data: steps, stepped: true, borderColor: colour("accent"), backgroundColor: colour("accent"),
            borderWidth: 2.5, pointRadius: steps.map((_, i) => (i < points.length ? 3 : 0)) },
          ...(least === null ? [] : [{ label: "Bound: no plan is faster", data: [{ x: 0, y: least }, { x: end, y: least }],
            borderColor: colour("bound"), borderDash: [6, 4], borderWidth: 2, pointRadius: 0 }]),
        ],
      },
      options: {
        parsing: false,
        scales: {
          x: { type: "linear", min: 0, max: end, ...axis("Search time", (value) => `${Number(value.toPrecision(3))} s`) },
          y: { ...axis("Time of a step", seconds), grace: "8%" },
        },
        plugins: {
          legend: { labels: { color: colour("ink"), usePointStyle: true, pointStyle: "line" } },
          tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${seconds(item.parsed.y)}`,
            title: (items) => `${Number((items[0]?.parsed.x ?? 0).toFixed(2))} s` } },
        },
      },
    };
  });
}
