// Common parts of the charts: axes, tooltips and the line of a limit. Tooltips are elements, never markup.

import { h, type Child } from "../dom";
import type { Theme } from "./theme";

/** A named series: its label, the name of its colour, and a number for each device. */
export interface Stack {
  label: string;
  colour: string;
  values: number[];
}

/** most: the value that the vertical axis must reach, in its unit. */
export function axes(theme: Theme, ranks: number[], unit: string, most: number): object {
  const text = { color: theme.muted, fontFamily: theme.font, fontSize: 12 };
  return {
    grid: { left: 8, right: 12, top: 30, bottom: 26, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    xAxis: {
      type: "category", data: ranks, name: "device", nameLocation: "middle", nameGap: 26, nameTextStyle: text,
      axisLabel: { ...text, hideOverlap: true }, axisTick: { show: false }, axisLine: { lineStyle: { color: theme.line } },
    },
    yAxis: {
      type: "value", max: ({ max }: { max: number }) => roundedUp(Math.max(max, most)), name: unit, nameTextStyle: { ...text, align: "right" }, axisLabel: { ...text, showMaxLabel: false },
      splitLine: { showMaxLine: false, lineStyle: { color: theme.line } }, splitNumber: 4,
    },
  };
}

/** The axis ends a little above the largest value, so that a limit and its label have room. */
function roundedUp(value: number): number {
  return Number((value * 1.12).toPrecision(3)) || 1;
}

/** Stacked bars, one per device. */
export function bars(stacks: Stack[], theme: Theme, size: number): object[] {
  const many = (stacks[0]?.values.length ?? 0) > 48;
  return stacks.map((stack) => ({
    type: "bar", name: stack.label, stack: "all", barMaxWidth: 56, barCategoryGap: many ? "12%" : "28%",
    itemStyle: { color: theme.series(stack.colour) }, data: stack.values.map((value) => value / size),
    emphasis: { disabled: true },
  }));
}

/** A dashed line across all devices, at one height or at each device's own, with its label at the right end. */
export function limit(label: string, values: number[], theme: Theme, size: number): object {
  const even = values.every((value) => value === values[0]);
  const style = { color: theme.bound, type: [6, 4], width: 1.5 };
  const words = { show: true, formatter: label, color: theme.bound, fontFamily: theme.font, fontSize: 12, fontWeight: 600, backgroundColor: theme.surface, padding: [2, 5], borderRadius: 3 };
  if (!even)
    return { type: "line", name: label, step: "middle", symbol: "none", data: values.map((value) => value / size), lineStyle: style, color: theme.bound };
  return {
    type: "line", name: label, data: [], symbol: "none",
    markLine: {
      silent: true, symbol: "none", lineStyle: style, label: { ...words, position: "insideEndTop" },
      data: [{ yAxis: (values[0] ?? 0) / size }], z: 5,
    },
  };
}

/** A tooltip for the element under the pointer; `content` makes its lines. */
export function hint(theme: Theme, trigger: "axis" | "item", content: (index: number) => Child[]): object {
  return {
    trigger, confine: true, transitionDuration: 0, backgroundColor: theme.surface, borderColor: theme.line, padding: 0,
    axisPointer: { type: "shadow" }, extraCssText: "box-shadow:0 4px 16px rgb(0 0 0 / 16%)",
    formatter: (found: { dataIndex: number } | { dataIndex: number }[]) =>
      h("div", { class: "hint" }, content((Array.isArray(found) ? found[0] : found)?.dataIndex ?? 0)),
  };
}

/** Rows of a tooltip: a colour, a label and a number. */
export function lines(rows: [colour: string | null, words: string, value: string][], theme: Theme): Child {
  return h("dl", null, rows.map(([colour, words, value]) => [
    h("dt", null, colour && h("i", { style: { background: theme.series(colour) } }), words), h("dd", null, value)]));
}
