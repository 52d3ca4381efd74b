// Where each device spends a step: compute and communication of both directions, and wait, with the bound as a line.

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
  ["wait_s", "Wait for the others", "wait"],
];

/** bound: seconds that no plan can beat; null where nothing is proved. longest: what the axis reaches, if not the step. */
export function deviceTimes(devices: DeviceSeconds[], bound: number | null, theme: Theme, longest?: number): EChartsCoreOption {
  const step = Math.max(...devices.map((device) => TIME_PARTS.reduce((sum, [key]) => sum + device[key], 0)));
  const scale = timeScale(longest ?? step);
  const stacks: Stack[] = TIME_PARTS.map(([key, label, colour]) => ({ label, colour, values: devices.map((device) => device[key]) }));
  return {
    ...axes(theme, devices.map((device) => device.rank), scale.unit, Math.max(step, longest ?? 0, bound ?? 0) / scale.size),
    tooltip: hint(theme, "axis", (index) => {
      const device = devices[index]!;
      return [h("b", null, `Device ${device.rank}`),
        lines(TIME_PARTS.map(([key, label, colour]) => [colour, label, seconds(device[key])]), theme)];
    }),
    series: [
      ...bars(stacks, theme, scale.size),
      ...(bound ? [limit(`bound ${seconds(bound)}`, devices.map(() => bound), theme, scale.size)] : []),
    ],
  };
}
