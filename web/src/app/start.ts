// The first page: a workload, a cluster, a planner, and the button that starts a search.

import { api, type Changes, type Choices, type ClusterSummary, type Opened, type Rules, type SearchAsked, type Shelves, type WorkloadSummary } from "./api";
import { h, replace, shown } from "../dom";
import { dropZone, onArrival, type Arrival } from "./arrivals";
import { chooseDevices, chosen, clusterWord, isOwnCluster } from "./chosen";
import { button, field, say, select } from "./controls";
import { bytes, counted, whole } from "./format";
import { runList } from "./runList";
import { planList } from "./plans";
import { arrivalList } from "./readAs";
import { choices, kept, search } from "./shelf";

const COMMON = ["auto", "exact", "cost_greedy"]; // planners at the top of the list; research planners are under "more"
const MORE = "more…";
const NONE: Rules = { rules: [], together: [], apart: [], per_rank: [] };

export async function start(into: HTMLElement): Promise<void> {
  const [offered, shelves] = await Promise.all([choices(), kept()]);
  const page = new Start(offered, shelves);
  into.append(page.element);
  onArrival((all, isNew) => page.show(all, isNew), () => page.element.isConnected);
}

class Start {
  readonly element = h("div", { class: "start" });
  private readonly arrivals = h("div");
  private readonly workloads = h("div");
  private readonly cluster = h("div");
  private readonly problem = h("p", { class: "error", role: "alert" });

  constructor(private readonly offered: Choices, private readonly shelves: Shelves) {
    if (!this.allWorkloads().some((each) => each.id === chosen.workload)) chosen.workload = "dlrm-v2";
    if (!this.allClusters().some((each) => each.id === chosen.cluster)) chosen.cluster = "h100";
    this.drawWorkloads();
    this.drawCluster();
    this.element.append(
      h("div", { class: "intro" },
        h("h1", null, "Where should every embedding table go?"),
        h("p", { class: "lead" }, "Choose the tables and the devices. The search shows the fastest plan it has found, next to a ",
          "proven bound that no plan can beat. Everything stays on this machine.")),
      h("section", { class: "card step", "aria-labelledby": "step-1" }, this.title(1, "Tables", "step-1"),
        dropZone("Drop files anywhere on this page or paste text: tables, a cluster, a plan, constraints, a job's log, a printed plan, a sweep, or the online.json of a stream"),
        this.arrivals, this.workloads, this.sampler()),
      h("section", { class: "card step", "aria-labelledby": "step-2" }, this.title(2, "Devices", "step-2"), this.cluster),
      h("section", { class: "card step", "aria-labelledby": "step-3" }, this.title(3, "Search", "step-3"), this.search()),
      h("div", { class: "go" }, button("Find a plan", () => void this.plan(), "primary large", { id: "plan" }), this.problem),
      shelves.plans.length
        ? h("section", { "aria-labelledby": "kept" }, h("h2", { id: "kept" }, "Your plans"), planList(shelves.plans.toReversed().slice(0, 5)))
        : "",
      shelves.runs.length
        ? h("section", { "aria-labelledby": "runs" }, h("h2", { id: "runs" }, "Training runs"), runList(shelves.runs))
        : "",
      shelves.sweeps.length
        ? h("section", { "aria-labelledby": "sweeps" }, h("h2", { id: "sweeps" }, "Your sweeps"),
            h("ul", null, shelves.sweeps.toReversed().map((each) => h("li", null, h("a", { href: `#/sweep/${each.id}` }, each.name), `: ${each.said}`))))
        : "",
      shelves.streams.length
        ? h("section", { "aria-labelledby": "streams" }, h("h2", { id: "streams" }, "Your streams"),
            h("ul", null, shelves.streams.toReversed().map((each) =>
              h("li", null, h("a", { href: `#/stream/${each.id}` }, each.name), `: ${counted(each.arms, "arm")}, ${each.chosen} pays`))))
        : "",
    );
  }

  private title(number: number, words: string, id: string): HTMLElement {
    return h("h2", { id }, h("span", { class: "number", "aria-hidden": "true" }, number), words);
  }

  private allWorkloads(): WorkloadSummary[] {
    return [...this.shelves.workloads.toReversed(), ...this.offered.workloads];
  }

  private allClusters(): ClusterSummary[] {
    return [...this.shelves.clusters.toReversed(), ...this.offered.clusters];
  }

  private drawWorkloads(): void {
    const options = this.allWorkloads().map((each): [string, string] => [
      each.id, `${each.name} · ${counted(each.tables, "table")}, ${bytes(each.weight_bytes)}`,
    ]);
    const batch = h("input", { type: "number", min: 1, onchange: () => (chosen.batch = batch.value === "" ? null : Number(batch.value)) });
    const tell = () => {
      batch.value = String(chosen.batch ?? "");
      batch.placeholder = whole(this.allWorkloads().find((each) => each.id === chosen.workload)?.batch_size ?? 0);
    };
    tell();
    replace(this.workloads,
      h("div", { class: "row" },
        field("Workload", select(options, chosen.workload, (id) => { chosen.workload = id; chosen.batch = null; tell(); })),
        field("Samples per device and step", batch)));
  }

  private sampler(): HTMLElement {
    const tables = h("input", { type: "number", min: 1, max: this.offered.limits.most_tables, value: 200 });
    const trouble = h("p", { class: "error", role: "alert" });
    return h("details", null, h("summary", null, "No file at hand? Draw tables like those of a production model"),
      h("div", { class: "row end" }, field("Number of tables", tables), button("Draw", () => void this.sample(Number(tables.value), trouble))), trouble);
  }

  private async sample(tables: number, trouble: HTMLElement): Promise<void> {
    await guarded(trouble, async () => {
      const made = await api.sample(tables, 0);
      this.shelves.workloads.push(made);
      chosen.workload = made.id;
      this.drawWorkloads();
      say(`${made.tables} tables are drawn and chosen.`);
    });
  }

  /** Show opened files; a new one is chosen. */
  show(all: Arrival[], isNew: boolean): void {
    if (isNew) for (const { opened } of all) if (opened) this.take(opened);
    replace(this.arrivals, arrivalList(all, { offered: this.offered, changed: (workload) => this.replaced(workload) }));
    say(this.arrivals.textContent ?? "");
    if (this.element.isConnected) this.arrivals.scrollIntoView({ block: "nearest" });
  }

  private replaced(workload: WorkloadSummary): void {
    this.shelves.workloads = this.shelves.workloads.map((each) => (each.id === workload.id ? workload : each));
    this.drawWorkloads();
  }

  private take(opened: Opened): void {
    if (opened.workload) {
      if (!this.shelves.workloads.some((each) => each.id === opened.workload!.id)) this.shelves.workloads.push(opened.workload);
      chosen.workload = opened.workload.id;
      chosen.batch = null;
      this.drawWorkloads();
    }
    if (opened.cluster) {
      if (!this.shelves.clusters.some((each) => each.id === opened.cluster!.id)) this.shelves.clusters.push(opened.cluster);
      chosen.cluster = opened.cluster.id;
    }
    if (opened.constraints) Object.assign(chosen, { rules: opened.constraints, rulesName: opened.name });
    if (opened.running && !isOwnCluster()) chooseDevices(opened.running.devices, this.allClusters().find((each) => each.id === chosen.cluster)!.local_world_size);
    if (opened.cluster || opened.constraints || opened.running) this.drawCluster();
  }

  private drawCluster(): void {
    const now = () => this.allClusters().find((each) => each.id === chosen.cluster)!;
    const options = this.allClusters().map((each): [string, string] => [
      each.id, each.id.startsWith("cluster-") ? `${each.name} (your file)` : `${each.id} · ${bytes(each.hbm_bytes)} a device`,
    ]);
    const number = (key: "perHost" | "hosts", most: number) => {
      const made = h("input", { type: "number", min: 1, max: most, onchange: () => { chosen[key] = Math.max(1, Math.round(Number(made.value))); tell(); } });
      return made;
    };
    const [perHost, hosts] = [number("perHost", 64), number("hosts", 512)];
    const sizes = [field("Devices in a host", perHost), field("Hosts", hosts)];
    const note = h("p", { class: "note" });
    const tell = () => {
      const [own, world] = [isOwnCluster(), chosen.perHost * chosen.hosts];
      [perHost.value, hosts.value] = [String(chosen.perHost), String(chosen.hosts)];
      for (const each of sizes) each.hidden = own;
      note.textContent = own ? shown(now().name) : `${counted(world, "device")} with ${bytes(world * now().hbm_bytes)} of memory in all.`;
    };
    tell();
    replace(this.cluster,
      h("div", { class: "row" },
        field("Device", select(options, chosen.cluster, (id) => {
          chosen.cluster = id;
          chosen.perHost = now().local_world_size;
          tell();
        })),
        sizes),
      note,
      chosen.rules
        ? h("p", { class: "chip" }, `Keeps the constraints of ${chosen.rulesName}`,
            button("Remove", () => { chosen.rules = null; this.drawCluster(); }, "quiet"))
        : null);
  }

  private search(): HTMLElement {
    const about = h("p", { class: "note" });
    const tell = () => {
      const planner = this.offered.planners.find((each) => each.name === chosen.planner);
      const needs = planner?.needs ?? "nothing";
      const more = needs === "nothing" ? "" : needs.startsWith("nothing; ") ? ` It ${needs.slice("nothing; ".length)}.` : ` Needs: ${needs}.`;
      about.textContent = planner ? `${planner.about}${more}` : "";
    };
    const named = (all: { name: string }[]): [string, string][] => all.map((each) => [each.name, each.name]);
    const planners = named(this.offered.planners).map(([name]): [string, string] => [name, name === "auto" ? "auto (recommended)" : name]);
    const common = planners.filter(([name]) => COMMON.includes(name) || name === chosen.planner);
    const planner = select([...common, [MORE, MORE]], chosen.planner, (name) => {
      if (name === MORE) {
        replace(planner, planners.map(([key, words]) => h("option", { value: key, selected: key === chosen.planner }, words)));
        planner.showPicker?.call(planner);
        return;
      }
      chosen.planner = name;
      tell();
    });
    const limits: [string, string][] = [["", "until it is done"], ...[5, 10, 20, 60, 120, 300, 600]
      .filter((each) => each <= this.offered.limits.longest_search_s)
      .map((each): [string, string] => [String(each), each < 60 ? `${each} seconds` : counted(each / 60, "minute")])];
    const seed = h("input", { type: "number", min: 0, value: chosen.seed, onchange: () => (chosen.seed = Number(seed.value)) });
    tell();
    return h("div", null,
      h("div", { class: "row" },
        field("Planner", planner),
        field("Search for at most", select(limits, String(chosen.seconds ?? ""), (word) => (chosen.seconds = word ? Number(word) : null)))),
      about,
      h("details", { open: chosen.more, ontoggle: (event: Event) => (chosen.more = (event.currentTarget as HTMLDetailsElement).open) },
        h("summary", null, "More options"),
        h("div", { class: "row" },
          field("Cost model", select(named(this.offered.cost_models), chosen.costModel, (name) => (chosen.costModel = name)),
            "How the time of a step is predicted."),
          field("Seed", seed, "The same seed draws the same numbers.")),
        this.space()));
  }

  /** Rules for plans: sharding types, widths, kernels, exact training, and memory kept free. */
  private space(): HTMLElement {
    const boxes = (title: string, all: string[], on: (name: string) => boolean, keep: (names: string[]) => void) => {
      const inputs = all.map((name) => h("input", { type: "checkbox", checked: on(name), value: name,
        onchange: () => keep(inputs.filter((each) => each.checked).map((each) => each.value)) }));
      return h("fieldset", null, h("legend", null, title), all.map((name, i) => h("label", { class: "check" }, inputs[i]!, name.replaceAll("_", " "))));
    };
    const exact = h("input", { type: "checkbox", checked: chosen.exact, onchange: () => (chosen.exact = exact.checked) });
    const reserve = h("input", { type: "number", min: 0, step: 0.5, value: chosen.reserve ?? "", placeholder: "estimated",
      onchange: () => (chosen.reserve = reserve.value === "" ? null : Math.max(0, Number(reserve.value))) });
    const all = this.offered.sharding_types;
    return h("div", { class: "space" },
      boxes("Sharding types", all, (name) => !chosen.types.length || chosen.types.includes(name), (names) => (chosen.types = names.length === all.length ? [] : names)),
      boxes("Kernels", this.offered.compute_kernels, (name) => chosen.kernels.includes(name), (names) => (chosen.kernels = names)),
      h("div", { class: "row" },
        field("Column widths", select([["any", "any multiple of 4"], ["torchrec", "TorchRec's one width"]], chosen.widths, (name) => (chosen.widths = name))),
        field("Memory kept free, GiB", reserve, "On every device, for what is no table.")),
      h("label", { class: "check" }, exact, "Train exactly as the unsharded model does: no column splits under row-wise optimizers"));
  }

  private async plan(): Promise<void> {
    await guarded(this.problem, async () => {
      const unread = [...this.element.querySelectorAll("input")].find((each) => each.validity.badInput);
      if (unread) throw new Error(`${unread.labels?.[0]?.textContent} is not a number.`);
      const changes: Changes = {
        ...(chosen.batch !== null ? { batch_size: chosen.batch } : {}),
        ...(chosen.reserve !== null ? { reserve_bytes: Math.round(chosen.reserve * 2 ** 30) } : {}),
      };
      const asked: SearchAsked = {
        workload: chosen.workload, cluster: clusterWord(),
        planner: chosen.planner, cost_model: chosen.costModel, seed: chosen.seed, time_limit_s: chosen.seconds,
        space: { widths: chosen.widths, kernels: chosen.kernels, ...(chosen.types.length ? { types: chosen.types } : {}) },
        ...(Object.keys(changes).length ? { changes } : {}),
        ...(chosen.rules || chosen.exact ? { constraints: { ...(chosen.rules ?? NONE), keep_exact: chosen.exact || (chosen.rules?.keep_exact ?? false) } } : {}),
      };
      await search(asked);
    });
  }
}

/** Run an action; if it fails, the reason is shown in its place. */
async function guarded(trouble: HTMLElement, act: () => Promise<void>): Promise<void> {
  trouble.textContent = "";
  await act().catch((error: Error) => (trouble.textContent = error.message));
}
