// Where each device spends its time, and what uses its memory; under each chart its figures.

import { Chart } from "../charts/chart";
import { deviceTimes, ROWS, TIME_PARTS } from "../charts/deviceTimes";
import { memoryBars, type MemoryPart } from "../charts/memoryBars";
import type { ReportData, ShownPlan } from "../data";
import { h } from "../dom";
import { bytes, percent, seconds, sizeScale, timeScale } from "../format";
import { Grid, type Column } from "../grid";
import { legend, part } from "./part";

export function timeChart(plan: ShownPlan, height: number, longest = plan.total_s): HTMLElement {
  const { devices, bound } = plan;
  const waits = devices.map((device) => device.wait_s);
  const label = `Seconds of ${devices.length} devices in a step of ${seconds(plan.total_s)}; the longest wait is ` +
    `${seconds(Math.max(...waits))}${bound.value_s ? `; the bound is ${seconds(bound.value_s)}` : ""}.`;
  return new Chart(label, height, (theme) => deviceTimes(devices, bound.value_s, theme, longest, plan.sequences_s)).element;
}

export const timeLegend = (plan: ShownPlan): HTMLElement =>
  legend([...TIME_PARTS.map(([, words, colour]): [string, string] => [colour, words]), ...(plan.sequences_s ? [[ROWS[1], ROWS[0]] as [string, string]] : [])]);

export function timePart({ plan }: ReportData): HTMLElement {
  const busy = plan.devices.map((device) => plan.total_s - device.wait_s);
  const idle = 1 - busy.reduce((sum, each) => sum + each, 0) / busy.length / plan.total_s;
  return part("Where each device spends the step",
    `Every bar is one step. Devices wait ${percent(Math.max(0, idle))} of it on average; the dashed line is the bound, below which no plan in the space can come.`,
    timeLegend(plan), timeChart(plan, 300),
    figures("Seconds of every device", plan.devices, [
      { head: "Device", key: (device) => device.rank, numeric: true },
      ...TIME_PARTS.map(([key, head]): Column<ShownPlan["devices"][number]> => ({ head, key: (device) => device[key], unit: timeScale, numeric: true })),
    ]));
}

export function memoryPart(data: ReportData): HTMLElement {
  const used = data.memory.map((device) => device.bytes.reduce((sum, size) => sum + size, 0));
  const inUse = data.memory_parts.map((_, i) => data.memory.some((device) => device.bytes[i]));
  const devices = data.memory.map((device) => ({ ...device, bytes: device.bytes.filter((_, i) => inUse[i]) }));
  const parts: MemoryPart[] = data.memory_parts.filter((_, i) => inUse[i]).map((name) => ({ label: upper(name), colour: colourOf(name) }));
  const largest = Math.max(...used);
  const label = `Memory of ${devices.length} devices; the fullest holds ${bytes(largest)}.`;
  return part("Memory against capacity",
    `What every device holds at the peak of a step. The fullest has ${bytes(Math.min(...devices.map((device, i) => device.capacity - used[i]!)))} to spare.`,
    legend(parts.map((each) => [each.colour, each.label])),
    new Chart(label, 260, (theme) => memoryBars(devices, parts, theme)).element,
    figures("Memory of every device", devices, [
      { head: "Device", key: (device) => device.rank, numeric: true },
      ...parts.map((each, i): Column<(typeof devices)[number]> => ({ head: each.label, key: (device) => device.bytes[i]!, unit: sizeScale, numeric: true })),
      { head: "Capacity", key: (device) => device.capacity, unit: sizeScale, numeric: true },
      { head: "In use", key: (device) => total(device.bytes) / device.capacity, cell: (device) => percent(total(device.bytes) / device.capacity), numeric: true },
    ]));
}

const total = (sizes: number[]): number => sizes.reduce((sum, size) => sum + size, 0);
const upper = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);
const colourOf = (name: string): string => (name === "weights and optimizer state" ? "weights" : name.replaceAll(" ", "-"));

/** A chart's numbers, drawn when the section is opened. */
export function figures<Row>(title: string, rows: Row[], columns: Column<Row>[]): HTMLElement {
  const box = h("div");
  const made = h("details", { class: "numbers", ontoggle: () => {
    if (made.open && !box.firstChild) box.append(new Grid(title, rows, columns).element);
  } }, h("summary", null, title), box);
  return made;
}
