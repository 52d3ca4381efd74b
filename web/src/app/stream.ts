// Ways to train on a stream: its arms as curves and as a table, and the arm that pays.

import { Chart } from "../charts/chart";
import { colourOf, curves, type Curve } from "../charts/curves";
import { h } from "../dom";
import { api, type ArmRow } from "./api";
import { counted, NONE } from "./format";

const HEIGHT = 300; // pixels of a chart

export async function stream(into: HTMLElement, id: string): Promise<() => void> {
  const found = await api.stream(id);
  const late = found.rows.map((row): Curve => ({ name: row.name, points: Object.entries(row.late).map(([ahead, ne]) => [Number(ahead), ne]) }));
  const charts = [
    card("NE of each period by the model before it", found.curves, "period", "Too few periods were scored."),
    card("NE by how late a model scores", late, "periods after the newest trained one", "Models were scored at one age alone."),
  ];
  into.append(
    h("h1", null, `${found.summary.chosen} pays`),
    h("p", { class: "lead" }, `${found.because}. From ${found.summary.name}: ${counted(found.rows.length, "arm")}, ${counted(found.summary.seeds, "seed")}.`),
    ...charts.map((each) => each.element), table(found.rows));
  return () => charts.forEach((each) => each.chart?.end());
}

/** A chart under its heading, with a legend of its arms; a sentence if no curve has two points. */
function card(title: string, all: Curve[], across: string, none: string): { element: HTMLElement; chart: Chart | null } {
  const some = all.filter((curve) => curve.points.length > 1);
  const chart = some.length ? new Chart(`${title}: ${some.map(ends).join("; ")}`, HEIGHT, (theme) => curves(all, across, "NE", theme)) : null;
  const legend = all.map((curve, number) => h("li", null, h("span", { class: "swatch", style: { background: `var(--chart-${colourOf(number)})` } }), curve.name));
  const shown = chart ? [chart.element, h("ul", { class: "legend" }, legend)] : [h("p", null, none)];
  return { element: h("section", { class: "card" }, h("h2", null, title), ...shown), chart };
}

/** A description of the curves for readers who cannot see them. */
function ends(curve: Curve): string {
  const [first, last] = [curve.points[0]!, curve.points.at(-1)!];
  return `${curve.name} from ${first[1].toFixed(4)} at ${first[0]} to ${last[1].toFixed(4)} at ${last[0]}`;
}

function table(rows: ArmRow[]): HTMLElement {
  const aheads = [...new Set(rows.flatMap((row) => Object.keys(row.late)))].filter((ahead) => ahead !== "1");
  const heads = ["NE of the next", "Log loss", "Above the best", "Cost", ...aheads.map((ahead) => `NE ${ahead} ahead`)];
  const within = (half: number | null, places: number): string => (half === null ? "" : ` ± ${half.toFixed(places)}`);
  const cells = (row: ArmRow): string[] => [
    row.ne.toFixed(4) + within(row.ne_within, 4), row.logloss.toFixed(5),
    (row.worse < 0 ? "" : "+") + row.worse.toFixed(5) + within(row.worse_within, 5), row.cost.toFixed(2),
    ...aheads.map((ahead) => row.late[ahead]?.toFixed(4) ?? NONE),
  ];
  return h("section", null, h("h2", null, "Arms"),
    h("p", { class: "note" }, "Means over seeds, with 95 % intervals; cost in CPU seconds beside those of incremental."),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Arms" },
      h("table", { class: "arms" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Arm"), heads.map((head) => h("th", { scope: "col", class: "number-cell" }, head)))),
        h("tbody", null, rows.map((row) => h("tr", null, h("th", { scope: "row" }, row.name),
          cells(row).map((cell) => h("td", { class: "number-cell" }, cell))))))));
}
