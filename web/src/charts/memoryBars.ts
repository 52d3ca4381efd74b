// The bytes of each device's memory, by part, compared with its capacity.

import type { EChartsCoreOption } from "echarts/core";
import type { DeviceMemory } from "../data";
import { h } from "../dom";
import { bytes, percent, sizeScale } from "../format";
import { axes, bars, hint, limit, lines, type Stack } from "./parts";
import type { Theme } from "./theme";

/** The label and the colour of a part, such as `weights`. */
export interface MemoryPart {
  label: string;
  colour: string;
}

export function memoryBars(devices: DeviceMemory[], parts: MemoryPart[], theme: Theme): EChartsCoreOption {
  const used = devices.map((device) => device.bytes.reduce((sum, part) => sum + part, 0));
  const capacity = devices.map((device) => device.capacity);
  const most = Math.max(...used, ...capacity);
  const scale = sizeScale(most);
  const stacks: Stack[] = parts.map((part, i) => ({ ...part, values: devices.map((device) => device.bytes[i] ?? 0) }));
  return {
    ...axes(theme, devices.map((device) => device.rank), scale.unit, most / scale.size),
    tooltip: hint(theme, "axis", (index) => {
      const device = devices[index]!;
      return [h("b", null, `Device ${device.rank}`),
        lines([...parts.map((part, i): [string, string, string] => [part.colour, part.label, bytes(device.bytes[i] ?? 0)]),
          [null, "In use", `${bytes(used[index]!)} of ${bytes(device.capacity)}, ${percent(used[index]! / device.capacity)}`]], theme)];
    }),
    series: [...bars(stacks, theme, scale.size), limit(words(capacity), capacity, theme, scale.size)],
  };
}

function words(capacity: number[]): string {
  return capacity.every((each) => each === capacity[0]) ? `capacity ${bytes(capacity[0] ?? 0)}` : "capacity";
}
