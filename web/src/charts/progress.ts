// A search over time: the best step so far, and the bound as a line below it.

import type { EChartsCoreOption } from "echarts/core";
import { h } from "../dom";
import { digits, seconds, timeScale } from "../format";
import { hint, lines } from "./parts";
import type { Theme } from "./theme";

/** Seconds since the search began, and the best step by then. */
export interface Point {
  x: number;
  y: number;
}

const ROOM = 0.12; // share of the range of steps left free above and below the lines

/** bound: seconds that no plan can beat; null while nothing is proved. now: seconds of the search. */
export function progress(points: Point[], bound: number | null, now: number, theme: Theme): EChartsCoreOption {
  const last = points.at(-1);
  const end = Math.max(now, last?.x ?? 0, 0.5);
  const steps = [...points.map((point) => point.y), ...(bound ? [bound] : [])];
  const [least, most] = steps.length ? [Math.min(...steps), Math.max(...steps)] : [0, 1e-3];
  const room = ROOM * (most - least || most);
  const scale = timeScale(most);
  const text = { color: theme.muted, fontFamily: theme.font, fontSize: 12 };
  const label = { show: true, position: "insideEndTop", formatter: `bound ${seconds(bound ?? 0)}: no plan is faster`, color: theme.bound, fontFamily: theme.font, fontSize: 12 };
  return {
    grid: { left: 8, right: 24, top: 34, bottom: 30, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: { type: "value", min: 0, max: end, name: "seconds of search", nameLocation: "middle", nameGap: 28, nameTextStyle: text,
      axisLabel: { ...text, formatter: (value: number) => digits(value, 3), hideOverlap: true, showMaxLabel: false }, splitLine: { show: false },
      axisLine: { show: true, lineStyle: { color: theme.line } } },
    yAxis: { type: "value", min: Math.max(0, least - room) / scale.size, max: (most + room) / scale.size, name: `step, ${scale.unit}`,
      nameTextStyle: { ...text, align: "left" }, axisLabel: { ...text, formatter: (value: number) => digits(value, 3), showMinLabel: false, showMaxLabel: false },
      splitLine: { lineStyle: { color: theme.line } }, splitNumber: 4 },
    tooltip: hint(theme, "axis", (index) => {
      const point = points[Math.min(index, points.length - 1)];
      return point ? [h("b", null, `After ${digits(point.x, 3)} s`), lines([["forward-compute", "Best step", seconds(point.y)]], theme)] : [];
    }),
    series: [{
      type: "line", name: "best plan so far", step: "end", symbolSize: 7, color: theme.accent, lineStyle: { width: 2.5, color: theme.accent },
      data: [...points, ...(last ? [{ ...last, x: end }] : [])].map((point) => [point.x, point.y / scale.size]),
      markLine: bound ? { silent: true, symbol: "none", lineStyle: { color: theme.bound, type: [6, 4], width: 1.5 }, label, data: [{ yAxis: bound / scale.size }] } : undefined,
    }],
  };
}
