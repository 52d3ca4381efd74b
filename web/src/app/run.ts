// A training run, read from its folder while it trains: loss, speed, parts of a step and alarms, beside its plan.

import { Chart } from "../charts/chart";
import { colourOf, curves, type Curve } from "../charts/curves";
import { deviceTimes, ROWS, TIME_PARTS } from "../charts/deviceTimes";
import { h, replace } from "../dom";
import { api, type RunPlan, type RunView } from "./api";
import { counted, digits, percent, seconds, whole } from "./format";
import { when } from "./runList";
import { kept } from "./shelf";

const HEIGHT = 260; // pixels of a chart
const EVERY = 2000; // milliseconds between two readings of the log
const LATE = 60; // seconds without a new log line, after which the page says so

/** The charts of a run, and for each curve its name in the log and on this page. */
const PANELS: [id: string, title: string, up: string, scale: number, parts: [name: string, words: string][]][] = [
  ["loss", "Loss", "log loss", 1, [["train logloss", "Training"], ["test logloss", "Test"]]],
  ["speed", "Samples a second", "samples/s", 1, [["train samples_per_s", "Samples a second"]]],
  ["parts", "Parts of a step", "ms", 1000, [["train step_s", "Whole step"], ["train data_s", "Waiting for data"], ["train forward_s", "Forward"], ["train backward_s", "Backward and update"]]],
];

export async function run(into: HTMLElement, id: string): Promise<() => void> {
  const shown = new Shown(await api.run(id));
  into.append(shown.element);
  let over = false, timer = 0;
  const look = async (): Promise<void> => {
    try {
      shown.draw(await api.run(id));
      shown.said("");
    } catch (error) {
      shown.said((error as Error).message);
    }
    if (!over) timer = window.setTimeout(() => void look(), shown.view.more ? 0 : EVERY);
  };
  timer = window.setTimeout(() => void look(), shown.view.more ? 0 : EVERY);
  return () => { over = true; window.clearTimeout(timer); shown.end(); };
}

class Shown {
  readonly element = h("div", { class: "run" });
  private readonly state = h("p", { class: "lead", id: "state" });
  private readonly figures = h("dl", { class: "figures" });
  private readonly alarms = h("section", { class: "card", "aria-labelledby": "alarms" });
  private readonly trouble = h("p", { class: "error", role: "alert" });
  private readonly panels: { chart: Chart; note: HTMLElement; legend: HTMLElement; panel: (typeof PANELS)[number] }[];
  private readonly plan: Chart | null = null;
  private drawn = "";

  constructor(public view: RunView) {
    this.panels = PANELS.map((panel) => ({
      panel, note: h("p", { class: "note" }), legend: h("ul", { class: "legend" }),
      chart: new Chart(panel[1], HEIGHT, (theme) => curves(this.curves(panel), "step", panel[2], theme)),
    }));
    const { plan } = view;
    if (plan) this.plan = new Chart("Seconds of every device in a step of the embeddings, as predicted", HEIGHT, (theme) => deviceTimes(plan.cost.per_device, plan.bound_s, theme, undefined, plan.cost.sequences_s ?? 0));
    this.element.append(h("h1", null, view.summary.name), this.state, this.trouble, this.figures,
      h("p", { class: "note" }, "A whole step has dense layers and data in it; that of the embeddings is what the plan decides. ",
        `Read from ${view.summary.folder}; nothing is written there.`),
      ...this.panels.slice(0, 1).map((each) => this.card(each)),
      h("div", { class: "columns" }, this.panels.slice(1).map((each) => this.card(each))),
      this.alarms, planCard(view, this.plan));
    this.draw(view);
  }

  private card({ panel: [id, title], chart, note, legend }: Shown["panels"][number]): HTMLElement {
    return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), chart.element, legend, note);
  }

  private curves([, , , scale, parts]: (typeof PANELS)[number]): Curve[] {
    return parts.flatMap(([name, words]) => {
      const found = this.view.curves.find((curve) => curve.name === name);
      return found ? [{ name: words, points: found.points.map(([step, value]): [number, number] => [step, value * scale]) }] : [];
    });
  }

  draw(view: RunView): void {
    this.view = view;
    this.drawState();
    const now = JSON.stringify([view.summary.step, view.curves.map((curve) => curve.points.length), view.alarms.length, view.measured]);
    if (now === this.drawn) return;
    this.drawn = now;
    this.drawFigures();
    for (const { panel, chart, note, legend } of this.panels) {
      const all = this.curves(panel);
      const few = all.every((curve) => curve.points.length < 1);
      note.textContent = few ? "The log has not said any yet." : "";
      chart.element.hidden = few;
      replace(legend, all.length > 1 ? all.map((curve, number) => h("li", null, h("span", { class: "swatch", style: { background: `var(--chart-${colourOf(number)})` } }), curve.name)) : null);
      chart.says(few ? panel[1] : `${panel[1]}: ${all.map(newest).join("; ")}`);
      chart.draw();
    }
    this.drawAlarms();
  }

  said(trouble: string): void {
    this.trouble.textContent = trouble;
  }

  end(): void {
    for (const { chart } of this.panels) chart.end();
    this.plan?.end();
  }

  private drawState(): void {
    const { summary, damaged } = this.view;
    const silent = Date.now() / 1000 - summary.written;
    const state = summary.ended ? "It has ended" : silent > LATE ? `Its log says nothing new since ${when(summary.written)}` : "It trains, and this page follows";
    this.state.textContent = `Step ${whole(summary.step)}. ${state}.${damaged ? ` ${counted(damaged, "line")} of the log could not be read.` : ""}`;
  }

  private drawFigures(): void {
    const { plan, measured } = this.view;
    const loss = this.view.curves.find((curve) => curve.name === "train logloss")?.points.at(-1);
    const shown: [string, string, string][] = [
      ["Predicted, embeddings", seconds(plan?.step_s ?? null), plan ? `${plan.cost_model}; ${plan.gap === null ? "no bound holds for it" : `at most ${percent(plan.gap)} above the bound`}` : ""],
      ["Predicted, whole step", seconds(this.view.predicted_s), this.view.predicted_s === null ? "not told by this job" : "by the job at its start, to a quarter"],
      ["Measured, whole step", seconds(measured?.step_s ?? null), measured ? `mean of the newest ${counted(measured.lines, "line")}` : "no line of training yet"],
      ["Samples a second", measured?.samples_per_s == null ? "–" : digits(measured.samples_per_s), ""],
      ["Log loss", loss ? loss[1].toFixed(4) : "–", loss ? `at step ${whole(loss[0])}` : ""],
    ];
    replace(this.figures, shown.map(([name, value, more]) => h("div", null, h("dt", null, name), h("dd", null, value, more ? h("small", null, more) : null))));
  }

  private drawAlarms(): void {
    const { alarms } = this.view;
    replace(this.alarms, h("h2", { id: "alarms" }, "Alarms"), alarms.length
      ? h("div", { class: "alarms", role: "log", "aria-labelledby": "alarms", tabindex: 0 }, h("ul", null, alarms.toReversed().map((each) =>
          h("li", null, h("strong", null, `Step ${whole(each.step)}: ${each.kind}`), `, since step ${whole(each.since)}. ${each.because}`, each.done ? `. Done: ${each.done}` : ""))))
      : h("p", { class: "note" }, "None so far. A run is watched where its key watch says so; recsmith watch judges the log of any run."));
  }
}

function newest(curve: Curve): string {
  const last = curve.points.at(-1);
  return last ? `${curve.name} ${digits(last[1])} at step ${last[0]}` : curve.name;
}

/** The plan that the run trains under, with a link if it is in the folder of plans. */
function planCard(view: RunView, chart: Chart | null): HTMLElement {
  const { plan } = view;
  const link = h("p", null);
  if (plan) void kept().then(({ plans }) => {
    const same = plans.find((each) => each.digest === plan.digest);
    if (same) replace(link, h("a", { href: `#/plan/${same.id}` }, `Open the plan: ${same.name}`));
  });
  return h("section", { class: "card", "aria-labelledby": "run-plan" }, h("h2", { id: "run-plan" }, "The plan"),
    plan && chart ? [h("p", null, words(plan)), chart.element,
      h("ul", { class: "legend" }, [...TIME_PARTS.map(([, text, colour]) => [text, colour]), ...(plan.cost.sequences_s ? [ROWS] : [])].map(([text, colour]) =>
        h("li", null, h("span", { class: "swatch", style: { background: `var(--chart-${colour})` } }), text!))), link]
      : h("p", { class: "warning" }, `The plan of this run cannot be shown: ${view.trouble}`));
}

const words = (plan: RunPlan): string =>
  `${counted(plan.tables, "table")} on ${plan.cluster}, ${whole(plan.batch_size)} samples a device, planner ${plan.planner}, digest ${plan.digest.slice(0, 16)}.`;
