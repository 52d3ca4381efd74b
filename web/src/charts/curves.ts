// Curves of several arms over the same axis, each in its own colour.

import type { EChartsCoreOption } from "echarts/core";
import { h } from "../dom";
import { digits } from "../format";
import type { Theme } from "./theme";

export interface Curve {
  name: string;
  points: [number, number][];
}

const COLOURS = ["table-wise", "row-wise", "column-wise", "table-column-wise", "table-row-wise", "grid-shard", "data-parallel"];
const ROOM = 0.08; // share of the range left free above and below the curves

/** The name of the colour of the curve with a number. */
export const colourOf = (number: number): string => COLOURS[number % COLOURS.length]!;

/** across, up: labels of the x and y axes. */
export function curves(all: Curve[], across: string, up: string, theme: Theme): EChartsCoreOption {
  const [xs, ys] = [0, 1].map((i) => all.flatMap((curve) => curve.points.map((point) => point[i]!)));
  const [least, most] = ys!.length ? [Math.min(...ys!), Math.max(...ys!)] : [0, 1];
  const room = ROOM * (most - least || Math.abs(most) || 1);
  const text = { color: theme.muted, fontFamily: theme.font, fontSize: 12 };
  return {
    grid: { left: 8, right: 20, top: 34, bottom: 30, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: { type: "value", min: Math.min(...xs!), max: Math.max(...xs!), minInterval: 1, name: across, nameLocation: "middle", nameGap: 28,
      nameTextStyle: text, axisLabel: { ...text, hideOverlap: true }, splitLine: { show: false }, axisLine: { show: true, lineStyle: { color: theme.line } } },
    yAxis: { type: "value", min: least - room, max: most + room, name: up, nameTextStyle: { ...text, align: "left" },
      axisLabel: { ...text, formatter: (value: number) => digits(value, 4), showMinLabel: false, showMaxLabel: false },
      splitLine: { lineStyle: { color: theme.line } }, splitNumber: 4 },
    tooltip: {
      trigger: "item", confine: true, transitionDuration: 0, backgroundColor: theme.surface, borderColor: theme.line, padding: 0,
      extraCssText: "box-shadow:0 4px 16px rgb(0 0 0 / 16%)",
      formatter: (found: { seriesIndex: number; dataIndex: number }) => {
        const curve = all[found.seriesIndex]!, [x, y] = curve.points[found.dataIndex]!;
        return h("div", { class: "hint" }, h("b", null, curve.name), h("p", null, `${across} ${digits(x)}: ${up} ${digits(y)}`));
      },
    },
    series: all.map((curve, number) => ({
      type: "line", name: curve.name, symbolSize: 6, color: theme.series(colourOf(number)),
      lineStyle: { width: 2, color: theme.series(colourOf(number)) }, data: curve.points,
    })),
  };
}
