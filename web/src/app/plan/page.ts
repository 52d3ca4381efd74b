// A plan: what it costs, where its shards lie, and what to try next.

import { Chart } from "../../charts/chart";
import { deviceTimes, TIME_PARTS } from "../../charts/deviceTimes";
import { memoryBars } from "../../charts/memoryBars";
import { api, type DeviceCost } from "../api";
import { h, replace } from "../../dom";
import { button, say } from "../controls";
import { bytes, change, counted, percent, seconds } from "../format";
import { constraintsPanel } from "./constraints";
import { Edit } from "./edit";
import { shardMap } from "./shardmap";
import { shardTable } from "./table";
import { whatIf } from "./whatif";

export async function planPage(into: HTMLElement, id: string): Promise<() => void> {
  const edit = new Edit(await api.plan(id));
  const page = new Page(edit);
  into.append(page.element);
  return page.begin();
}

const HEIGHT = 300; // pixels of a chart
const IN_USE = [{ label: "Memory in use", colour: "weights" }];

function keys(series: [words: string, colour: string][]): HTMLElement {
  return h("ul", { class: "legend" }, series.map(([words, colour]) =>
    h("li", null, h("span", { class: "swatch", style: { background: `var(--chart-${colour})` } }), words)));
}

class Page {
  readonly element = h("div", { class: "plan" });
  private readonly figures = h("dl", { class: "figures", "aria-live": "polite" });
  private readonly verdict = h("p", { class: "lead" });
  private readonly trouble = h("div", { role: "alert" });
  private readonly tools = h("div", { class: "edit-bar", hidden: true });
  private readonly steps = new Chart("Seconds of every device in a step, by part", HEIGHT, (theme) => deviceTimes(this.edit.devices, this.edit.bound, theme));
  private readonly memory = new Chart("Memory of every device against its capacity", HEIGHT, (theme) => memoryBars(this.edit.memory, IN_USE, theme));

  constructor(private readonly edit: Edit) {
    const { summary, data } = edit.view;
    const about = [
      `${counted(summary.tables, "table")} on ${summary.cluster}`, `planner ${summary.planner}`, `cost model ${summary.cost_model}`,
      `${counted(summary.batch_size, "sample")} per device`,
    ].join(" · ");
    this.element.append(
      h("div", { class: "title-row" },
        h("div", null, h("h1", null, summary.name), h("p", { class: "note" }, about)),
        h("div", { class: "buttons" },
          h("a", { class: "button plain", href: api.fileOf(edit.id), download: "", id: "download-plan" }, "Download plan"),
          h("a", { class: "button plain", href: api.reportOf(edit.id), download: "", id: "download-report" }, "Download report"),
          h("a", { class: "button plain", href: `#/compare/${edit.id}` }, "Compare"))),
      this.figures, this.verdict, this.trouble, this.tools,
      ...summary.notes.map((note) => h("p", { class: "note" }, note)),
      h("div", { class: "columns" },
        h("section", { class: "card", "aria-labelledby": "steps" }, h("h2", { id: "steps" }, "Where each device spends a step"), this.steps.element, keys(TIME_PARTS.map(([, words, colour]) => [words, colour])),
          h("p", { class: "note" }, "The step ends when the slowest device does. The dashed line is the bound: no plan of this space is faster.")),
        h("section", { class: "card", "aria-labelledby": "memory" }, h("h2", { id: "memory" }, "What each device holds"), this.memory.element, keys(IN_USE.map((part) => [part.label, part.colour])),
          h("p", { class: "note" }, "Weights, optimizer states and buffers of the tables on each device."))),
      h("section", { class: "card", "aria-labelledby": "map" }, h("h2", { id: "map" }, "Where the shards lie"), shardMap(edit)),
      h("div", { class: "columns" },
        h("section", { class: "card", "aria-labelledby": "whatif" }, h("h2", { id: "whatif" }, "What if…"), whatIf(edit)),
        h("section", { class: "card", "aria-labelledby": "rules" }, h("h2", { id: "rules" }, "What the plan must keep"), constraintsPanel(edit))),
      h("section", { class: "card", "aria-labelledby": "tables" }, h("h2", { id: "tables" }, "Every table"), shardTable(edit)),
      h("p", { class: "note" }, data.bound.space ? `The bound holds for this space: ${data.bound.space}.` : ""));
    edit.onChange(() => this.draw());
    this.drawFigures();
  }

  begin(): () => void {
    return () => { this.steps.end(); this.memory.end(); };
  }

  private draw(): void {
    this.drawFigures();
    this.steps.draw();
    this.memory.draw();
  }

  private drawFigures(): void {
    const { edit } = this;
    const { summary } = edit.view;
    const most = edit.devices.reduce((most, device) => (filled(device) > filled(most) ? device : most));
    const shift = edit.priced ? change(edit.total, summary.total_s) : "";
    const shown: [string, string, string][] = [
      ["Time of a step", seconds(edit.total), shift && `${shift} from ${seconds(summary.total_s)}`],
      ["Bound", seconds(edit.bound), "no plan is faster"],
      ["Above the bound", percent(edit.gap), edit.gap === null && edit.priced?.broken.length ? "not a legal plan" : ""],
      ["Fullest device", percent(filled(most)),
        `${bytes(most.hbm_bytes)} of ${bytes(most.hbm_capacity_bytes)}`],
    ];
    replace(this.figures, shown.map(([name, value, more]) =>
      h("div", null, h("dt", null, name), h("dd", null, value, more ? h("small", null, more) : null))));
    this.verdict.textContent = verdict(edit);
    this.drawTrouble();
  }

  private drawTrouble(): void {
    const { edit } = this;
    const said = edit.error ? [edit.error] : edit.priced?.broken ?? [];
    replace(this.trouble, said.map((words) => h("p", { class: "error" }, words)));
    this.tools.hidden = !edit.isChanged;
    const count = edit.moves.length;
    replace(this.tools,
      h("span", { id: "effect" }, `${seconds(edit.total)} a step, ${change(edit.total, edit.view.summary.total_s)}; fullest device ${percent(fullest(edit))}`,
        h("small", null, count ? `${counted(count, "move")} by hand` : "Another problem, the same shards")),
      button("Undo", () => void edit.undo(), "plain", { disabled: count === 0, id: "undo" }),
      button("Back to the plan", () => void edit.reset(), "plain"),
      button("Keep as a new plan", () => void this.keep(), "primary", { id: "keep" }));
  }

  private async keep(): Promise<void> {
    try {
      const kept = await api.keep(this.edit.id, this.edit.moves, this.edit.changes, "");
      say("The changed plan is kept.");
      location.hash = `#/plan/${kept.id}`;
    } catch (error) {
      replace(this.trouble, h("p", { class: "error" }, (error as Error).message));
    }
  }
}

function filled(device: DeviceCost): number {
  return device.hbm_bytes / device.hbm_capacity_bytes;
}

function fullest(edit: Edit): number {
  return Math.max(...edit.devices.map(filled));
}

function verdict(edit: Edit): string {
  const busy = (device: (typeof edit.devices)[number]) =>
    device.forward_compute_s + device.backward_compute_s + device.forward_comm_s + device.backward_comm_s;
  const slowest = edit.devices.reduce((most, device) => (busy(device) > busy(most) ? device : most));
  const parts: [string, number][] = [
    ["forward compute", slowest.forward_compute_s], ["backward compute", slowest.backward_compute_s],
    ["forward communication", slowest.forward_comm_s], ["backward communication", slowest.backward_comm_s],
  ];
  const [name, most] = parts.reduce((a, b) => (b[1] > a[1] ? b : a));
  const share = busy(slowest) ? Math.round((100 * most) / busy(slowest)) : 0;
  const near = edit.gap !== null && edit.gap < 0.01 ? "There is next to nothing left to gain. " : "";
  return `${near}Device ${slowest.rank} is the busiest, and ${share} % of its time is ${name}.`;
}
