// A sweep over numbers of devices: where more of them stop to pay, as curves and as a table.

import { Chart } from "../charts/chart";
import { colourOf, curves, type Curve } from "../charts/curves";
import { h } from "../dom";
import { api, type SweepPoint, type SweepView } from "./api";
import { counted, digits, NONE, percent, seconds, whole } from "./format";

const HEIGHT = 300; // pixels of the chart

export async function sweep(into: HTMLElement, id: string): Promise<() => void> {
  const found = await api.sweep(id);
  const all = series(found);
  const planned = all.filter(([, points]) => points.some((point) => point.samples_per_s !== null));
  const lines = planned.map(([name, points]): Curve => ({
    name, points: points.flatMap((point): [number, number][] => (point.samples_per_s === null ? [] : [[point.devices, point.samples_per_s]])),
  }));
  const chart = lines.length ? new Chart(`Samples a second by devices: ${lines.map(ends).join("; ")}`, HEIGHT, (theme) => curves(lines, "devices", "samples/s", theme)) : null;
  into.append(
    h("h1", null, heading(found)),
    h("p", { class: "lead" }, `From ${found.summary.name}: ${counted(found.points.length, "point")}, planner ${found.planner}, cost model ${found.cost_model}. Steps are those of the embeddings, predicted.`),
    found.left ? h("p", { class: "warning" }, `The sweep was ended early: ${counted(found.left, "point")} ${found.left === 1 ? "is" : "are"} not there.`) : "",
    h("section", { class: "card", "aria-labelledby": "knee" }, h("h2", { id: "knee" }, "Where more devices stop to pay"),
      h("ul", null, (found.knees.length ? found.knees : ["No series has two points with a plan."]).map((words) => h("li", null, words))),
      found.fewest.length ? [h("h3", null, "The fewest devices for the step"), h("ul", null, found.fewest.map((words) => h("li", null, words)))] : null),
    h("section", { class: "card", "aria-labelledby": "speed" }, h("h2", { id: "speed" }, "Samples a second"), chart?.element ?? h("p", null, "No point has a plan."),
      h("ul", { class: "legend" }, lines.map((line, number) => h("li", null, h("span", { class: "swatch", style: { background: `var(--chart-${colourOf(number)})` } }), line.name)))),
    table(all), h("p", { class: "note" }, `Bounds are valid for: ${found.space}.`));
  return () => chart?.end();
}

function heading(found: SweepView): string {
  const knees = found.points.filter((point) => point.knee);
  if (knees.length === 1) return `${counted(knees[0]!.devices, "device")} pay best`;
  return knees.length ? "Where more devices stop to pay" : "A sweep without a knee";
}

/** Points of one device type, batch and group, by the words for them. */
function series(found: SweepView): [string, SweepPoint[]][] {
  const all = new Map<string, SweepPoint[]>();
  for (const point of found.points) {
    const name = `${point.device}:${point.per_host}, ${whole(point[found.fixed])} samples ${found.fixed === "batch_size" ? "a device" : "a step"}${point.group_size ? `, groups of ${point.group_size}` : ""}`;
    all.set(name, [...(all.get(name) ?? []), point]);
  }
  return [...all];
}

const ends = (curve: Curve): string => `${curve.name} from ${digits(curve.points[0]![1])} at ${curve.points[0]![0]} to ${digits(curve.points.at(-1)![1])} at ${curve.points.at(-1)![0]}`;

function table(all: [string, SweepPoint[]][]): HTMLElement {
  const heads = ["Devices", "Step", "Bound", "Above the bound", "Fullest device", "Samples a second", "Device seconds a million samples"];
  const cells = (point: SweepPoint): string[] => (point.error === null
    ? [seconds(point.total_s), seconds(point.bound_s), percent(point.gap), percent(point.memory_share), point.samples_per_s === null ? NONE : digits(point.samples_per_s),
        point.device_s_per_million === null ? NONE : digits(point.device_s_per_million)]
    : []);
  return h("section", { "aria-labelledby": "points" }, h("h2", { id: "points" }, "Every point"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Points" }, all.map(([name, points]) =>
      h("table", { class: "arms" }, h("caption", null, name),
        h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col", class: "number-cell" }, head)))),
        h("tbody", null, points.map((point) => h("tr", { class: point.knee ? "knee" : null },
          h("th", { scope: "row", class: "number-cell" }, whole(point.devices), point.knee ? h("small", null, " the knee") : null),
          point.error === null ? cells(point).map((cell) => h("td", { class: "number-cell" }, cell)) : h("td", { colspan: heads.length - 1 }, point.error))))))));
}
