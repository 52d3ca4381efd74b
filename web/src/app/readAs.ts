// What was read from a file, in a line, with a choice for everything that the file did not state.

import { api, type Choices, type Opened, type RunningSummary, type WorkloadSummary } from "./api";
import { h, shown, type Child } from "../dom";
import type { Arrival } from "./arrivals";
import { columnForm } from "./columns";
import { button, field, select } from "./controls";
import { chosen, clusterWord } from "./chosen";
import { counted, whole } from "./format";
import { search } from "./shelf";

/** The first page as this list needs it: its choices, and a function that is called when a workload changes. */
export interface Page { offered: Choices; changed: (workload: WorkloadSummary) => void }

export function arrivalList(all: Arrival[], page: Page): HTMLElement {
  return h("ul", { class: "arrivals", id: "read-as" }, all.map((each) =>
    h("li", null, each.opened ? opened(each.opened, page) : each.rows ? columnForm(each.file, each.rows) : h("p", { class: "error", role: "alert" }, each.error))));
}

function opened(found: Opened, page: Page): HTMLElement {
  return h("div", { class: "arrival" },
    found.workload ? workload(found, found.workload, page) : null,
    found.plan ? h("p", null, h("a", { href: `#/plan/${found.plan.id}` }, found.plan.name), ": a plan") : null,
    found.stream ? h("p", null, h("a", { href: `#/stream/${found.stream.id}` }, found.stream.name), ": how a stream is best learned") : null,
    found.sweep ? h("p", null, h("a", { href: `#/sweep/${found.sweep.id}` }, found.sweep.name), `: a sweep; ${found.sweep.said}`) : null,
    found.cluster ? h("p", null, h("strong", null, found.name), ` read as ${found.cluster.name}`) : null,
    found.constraints ? h("p", null, h("strong", null, found.name), " read as constraints, which the search keeps") : null,
    found.running ? running(found.running, found.name) : null,
    found.notes.map((note) => h("p", { class: "note" }, note)));
}

/** "clicks.csv read as 1,935 tables, fp32, sgd (assumed)", and selects for what was assumed. */
function workload(found: Opened, read: WorkloadSummary, page: Page): Child {
  const mark = (name: string): string => (read.assumed.includes(name) ? " (assumed)" : "");
  const told = (): string => [
    counted(read.tables, "table"), read.data_types.join(" and ") + mark("data_type"), read.optimizer + mark("optimizer"),
    `${whole(read.batch_size)} samples a device${mark("batch_size")}`, ...(read.numbered ? [`${counted(read.numbered, "name")} numbered`] : []),
  ].join(", ");
  const facts = h("span", { class: "facts" }, told());
  const trouble = h("p", { class: "error", role: "alert" });
  const tell = (said: Parameters<typeof api.tell>[1]) => void api.tell(read.id, said).then((now) => {
    found.workload = read = now;
    facts.textContent = shown(told());
    trouble.textContent = "";
    page.changed(now);
  }, (error: Error) => (trouble.textContent = error.message));
  const named = (all: string[]): [string, string][] => all.map((each) => [each, each]);
  const batch = h("input", { type: "number", min: 1, value: read.batch_size, onchange: () => tell({ batch_size: Number(batch.value) }) });
  return [
    h("p", null, h("strong", null, found.name), " read as ", facts),
    read.assumed.length ? h("div", { class: "row" },
      read.assumed.includes("data_type") ? field("Data type of the tables", select(named(page.offered.data_types), read.data_types[0]!, (name) => tell({ data_type: name }))) : null,
      read.assumed.includes("optimizer") ? field("Optimizer", select(named(page.offered.optimizers), read.optimizer, (name) => tell({ optimizer: name }))) : null,
      read.assumed.includes("batch_size") ? field("Samples per device, of this file", batch) : null) : null,
    trouble,
  ];
}

/** The plan of a running job: its cost on the chosen devices, compared with a new plan for the same tables. */
function running(found: RunningSummary, name: string): Child {
  const trouble = h("p", { class: "error", role: "alert" });
  const compare = async (): Promise<void> => {
    trouble.textContent = "";
    try {
      const plan = await api.running(found.id, chosen.workload, clusterWord());
      await search({ plan: plan.id, name: `${plan.workload || plan.name.replace(/, running$/, "")}, planned anew`, planner: chosen.planner, cost_model: chosen.costModel, seed: chosen.seed, time_limit_s: chosen.seconds }, plan.id);
    } catch (error) {
      trouble.textContent = (error as Error).message;
    }
  };
  return [
    h("p", null, h("strong", null, name), ` holds the running plan of ${counted(found.tables, "table")} on ${counted(found.devices, "device")}`),
    h("p", { class: "note" }, "Choose its tables and the kind of device below, then compare it with a plan of RecSmith."),
    h("div", { class: "buttons" }, button("Compare it with a new plan", () => void compare(), "primary", { class: "button primary compare-running" })),
    trouble,
  ];
}
