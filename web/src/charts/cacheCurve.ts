// Hit rate of caches by the bytes of weights that they hold; the plan is a point.

import type { EChartsCoreOption } from "echarts/core";
import type { CacheCurve } from "../data";
import { h } from "../dom";
import { bytes, digits, percent } from "../format";
import { hint, lines } from "./parts";
import type { Theme } from "./theme";

export const POLICIES: [key: "lru" | "static", words: string, colour: string][] = [
  ["lru", "Rows read last stay (lru)", "forward-compute"],
  ["static", "Rows read most stay (static)", "forward-comm"],
];

export const shownPolicies = (curve: CacheCurve): typeof POLICIES =>
  POLICIES.filter(([key]) => curve.points.every((point) => point[key] !== null));

export function cacheCurve(curve: CacheCurve, theme: Theme): EChartsCoreOption {
  const text = { color: theme.muted, fontFamily: theme.font, fontSize: 12 };
  const { points } = curve;
  return {
    grid: { left: 8, right: 28, top: 34, bottom: 30, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: { type: "log", logBase: 2, min: points[0]!.bytes, max: points.at(-1)!.bytes, name: "cached weights", nameLocation: "middle", nameGap: 28, nameTextStyle: text,
      axisLabel: { ...text, formatter: (value: number) => bytes(value), hideOverlap: true }, splitLine: { show: false },
      axisLine: { show: true, lineStyle: { color: theme.line } } },
    yAxis: { type: "value", min: 0, max: 100, interval: 25, name: "lookups that hit, %", nameTextStyle: { ...text, align: "left" },
      axisLabel: { ...text, formatter: (value: number) => digits(value, 3) }, splitLine: { lineStyle: { color: theme.line } } },
    tooltip: hint(theme, "axis", (index) => {
      const point = points[index];
      return point ? [h("b", null, `${percent(point.share)} of the rows, ${bytes(point.bytes)}`),
        lines(shownPolicies(curve).map(([key, words, colour]) => [colour, words, percent(point[key]!, 3)]), theme)] : [];
    }),
    series: [
      ...shownPolicies(curve).map(([key, words, colour]) => ({
        type: "line", name: words, symbolSize: 6, color: theme.series(colour), lineStyle: { width: 2.5, color: theme.series(colour) },
        data: points.map((point) => [point.bytes, 100 * point[key]!]),
      })),
      { type: "line", name: "this plan", symbol: "diamond", symbolSize: 14, color: theme.bound, z: 5, data: [[curve.planned_bytes, 100 * curve.planned_hits]],
        label: { show: true, position: curve.policy === "static" ? "top" : "bottom", formatter: "this plan", color: theme.bound, fontFamily: theme.font, fontSize: 12, fontWeight: 600 } },
    ],
  };
}
