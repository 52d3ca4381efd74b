// Where each device spends a step: compute and communication in both directions, and waiting, with the bound as a line.

import type { EChartsCoreOption } from "echarts/core";
import type { DeviceSeconds } from "../data";
import { h } from "../dom";
import { seconds, timeScale } from "../format";
import { axes, bars, hint, limit, lines, type Stack } from "./parts";
import type { Theme } from "./theme";

export const TIME_PARTS: [key: keyof DeviceSeconds, label: string, colour: string][] = [
  ["forward_compute_s", "Forward compute", "forward-compute"],
  ["backward_compute_s", "Backward compute", "backward-compute"],
  ["forward_comm_s", "Forward communication", "forward-comm"],
  ["backward_comm_s", "Backward communication", "backward-comm"],
  ["wait_s", "Waiting for the others", "wait"],
];

/** Seconds that every device spends in addition under any plan: shown as a separate part, if there are any. */
export const ROWS: [label: string, colour: string] = ["Rows of sequence tables", "rest"];

/** beside: seconds of ROWS. bound: seconds that no plan can beat; null if nothing is proved. longest: the end of the axis, if it is not the step. */
export function deviceTimes(devices: DeviceSeconds[], bound: number | null, theme: Theme, longest?: number, beside = 0): EChartsCoreOption {
  const step = Math.max(...devices.map((device) => TIME_PARTS.reduce((sum, [key]) => sum + device[key], beside)));
  const scale = timeScale(longest ?? step);
  const stacks: Stack[] = TIME_PARTS.map(([key, label, colour]) => ({ label, colour, values: devices.map((device) => device[key]) }));
  if (beside) stacks.push({ label: ROWS[0], colour: ROWS[1], values: devices.map(() => beside) });
  return {
    ...axes(theme, devices.map((device) => device.rank), scale.unit, Math.max(step, longest ?? 0, bound ?? 0) / scale.size),
    tooltip: hint(theme, "axis", (index) => {
      return [h("b", null, `Device ${devices[index]!.rank}`),
        lines(stacks.map((each) => [each.colour, each.label, seconds(each.values[index]!)]), theme)];
    }),
    series: [
      ...bars(stacks, theme, scale.size),
      ...(bound ? [limit(`bound ${seconds(bound)}`, devices.map(() => bound), theme, scale.size)] : []),
    ],
  };
}
