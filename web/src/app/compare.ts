// All plans: search by words, delete and undo; ticked plans side by side, compared with the base plan.

import { api, type PlanSummary, type Shelves, type SideBySide } from "./api";
import { h, replace } from "../dom";
import { button, field, select } from "./controls";
import { bytes, change, counted, digits, percent, seconds, whole } from "./format";
import { runList } from "./runList";
import { planList, withWords } from "./plans";
import { choices, deleted, kept } from "./shelf";

const SHOWN = 100; // changed tables that are listed
const MILLION = 1e6;
let words = ""; // the search text

export async function compare(into: HTMLElement, word: string): Promise<void> {
  const [shelves, { folder }] = await Promise.all([kept(), choices()]);
  const plans = shelves.plans.toReversed();
  const chosen = word.split(",").filter((id) => plans.some((plan) => plan.id === id));
  const trouble = h("p", { class: "error", role: "alert" });
  const result = h("div", { "aria-live": "polite" });
  into.append(h("h1", null, "Your plans"), trouble, ...undos(shelves, trouble));
  if (!plans.length) into.append(h("p", { class: "lead" }, "There is none yet. ", h("a", { href: "#/" }, "Find a plan"), " or open the file of one there."));
  else {
    const list = h("div");
    const search = h("input", { type: "search", value: words, placeholder: "Words of a name, a note, a workload, a cluster", oninput: () => draw() });
    const draw = (): void => {
      words = search.value;
      const found = withWords(plans, words);
      replace(list, found.length ? planList(found, (plan) => box(plan, chosen), (plan) => void remove(plan, trouble)) : h("p", { id: "none" }, "No plan has all of these words."));
    };
    draw();
    into.append(h("p", { class: "lead" }, "Tick two or more to see them side by side."), field("Search your plans", search), list, result);
  }
  if (shelves.runs.length) into.append(h("section", { "aria-labelledby": "runs" }, h("h2", { id: "runs" }, "Training runs"), runList(shelves.runs)));
  into.append(h("p", { class: "note", id: "folder" }, folder ? `They lie in ${folder}, a file a plan, which every command reads.`
    : "They are kept in memory, until the server ends; download what is worth keeping."),
    ...shelves.unread.map((each) => h("p", { class: "warning" }, `${each.file} cannot be read: ${each.why}`)), gone(shelves, trouble) ?? "");
  if (chosen.length > 1) replace(result, table(await api.compare(chosen)));
}

const again = (): boolean => window.dispatchEvent(new HashChangeEvent("hashchange"));

async function remove(plan: PlanSummary, trouble: HTMLElement): Promise<void> {
  await tried(trouble, async () => {
    await api.remove(plan.id);
    deleted.add(plan.id);
    again();
  });
}

async function restore(id: string, trouble: HTMLElement): Promise<void> {
  await tried(trouble, async () => {
    await api.restore(id);
    deleted.delete(id);
    again();
  });
}

async function tried(trouble: HTMLElement, act: () => Promise<void>): Promise<void> {
  await act().catch((error: Error) => (trouble.textContent = error.message));
}

/** The plans that were deleted on this page, each with a button that restores it. */
function undos({ deleted: all }: Shelves, trouble: HTMLElement): HTMLElement[] {
  return all.filter((each) => deleted.has(each.id)).map((each) =>
    h("p", { class: "chip undo", role: "status" }, `“${each.name}” is deleted`, button("Undo", () => void restore(each.id, trouble), "plain", { "aria-label": `Undo: ${each.name}` })));
}

/** All deleted plans, in a closed section. */
function gone({ deleted: all }: Shelves, trouble: HTMLElement): HTMLElement | null {
  return all.length
    ? h("details", { id: "deleted" }, h("summary", null, `Deleted (${all.length})`), h("ul", { class: "rules" }, all.toReversed().map((each) =>
        h("li", null, h("span", null, each.name), button("Restore", () => void restore(each.id, trouble), "quiet", { "aria-label": `Restore ${each.name}` })))))
    : null;
}

/** Ids of the plans in the address, which changes at once; the page changes when their figures have arrived. */
const named = (): string[] => location.hash.replace("#/compare/", "").split(",").filter(Boolean);

function box(plan: PlanSummary, chosen: string[]): HTMLElement {
  const made = h("input", { type: "checkbox", checked: chosen.includes(plan.id), "aria-label": `Compare ${plan.name}`,
    onchange: () => {
      const others = named().filter((id) => id !== plan.id);
      const now = made.checked ? [...others, plan.id] : others;
      location.hash = `#/compare/${now.join(",")}`;
    } });
  return made;
}

function table(found: SideBySide): HTMLElement {
  const first = found.plans[0]!;
  const samples = (plan: PlanSummary): number => (plan.devices * plan.batch_size) / plan.total_s;
  const beside = (plan: PlanSummary, value: (plan: PlanSummary) => number): string => (plan === first ? "" : ` (${change(value(plan), value(first))})`);
  const isOtherWork = found.plans.some((plan) => plan.devices !== first.devices || plan.batch_size !== first.batch_size);
  const work: [string, (plan: PlanSummary) => string][] = [
    ["Samples a second", (plan) => digits(samples(plan)) + beside(plan, samples)],
    ["Device seconds a million samples", (plan) => digits((MILLION * plan.devices) / samples(plan)) + beside(plan, (each) => each.devices / samples(each))],
  ];
  const rows: [string, (plan: PlanSummary) => string][] = [
    ["Time of a step", (plan) => seconds(plan.total_s) + beside(plan, (each) => each.total_s)],
    ...(isOtherWork ? work : []),
    ["Bound", (plan) => seconds(plan.bound_s)],
    ["Above the bound", (plan) => percent(plan.gap)],
    ["Slowest over mean device", (plan) => percent(plan.total_s / plan.mean_s - 1)],
    ["Fullest device", (plan) => `${bytes(plan.largest_hbm_bytes)} of ${bytes(plan.hbm_capacity_bytes)}`],
    ["Cluster", (plan) => plan.cluster],
    ["Tables", (plan) => whole(plan.tables)],
    ["Samples per device", (plan) => whole(plan.batch_size)],
    ["Planner", (plan) => plan.planner],
    ["Cost model", (plan) => plan.cost_model],
  ];
  const base = select(found.plans.map((plan): [string, string] => [plan.id, plan.name]), first.id,
    (id) => (location.hash = `#/compare/${[id, ...named().filter((each) => each !== id)].join(",")}`));
  return h("div", null,
    h("h2", null, "Side by side"),
    field("Compared with", base, isOtherWork ? "The plans process different numbers of samples per step: compare samples per second, and the device time of a million samples." : undefined),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Comparison" },
      h("table", { class: "compare", id: "comparison" },
        h("thead", null, h("tr", null, h("td"), found.plans.map((plan) => h("th", { scope: "col" }, h("a", { href: `#/plan/${plan.id}` }, plan.name), plan === first ? h("small", null, "the base") : null)))),
        h("tbody", null, rows.map(([name, cell]) =>
          h("tr", null, h("th", { scope: "row" }, name), found.plans.map((plan) => h("td", null, cell(plan)))))))),
    settings(found),
    found.differences.map((each) => difference(each, found)));
}

/** The settings in which the plans' requests differ. */
function settings(found: SideBySide): HTMLElement {
  const rows = Object.entries(found.settings);
  return h("section", { id: "asked-differently" },
    h("h2", null, "Settings that differ"),
    rows.length
      ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Settings" },
          h("table", { class: "compare" },
            h("thead", null, h("tr", null, h("td"), found.plans.map((plan) => h("th", { scope: "col" }, plan.name)))),
            h("tbody", null, rows.map(([name, values]) => h("tr", null, h("th", { scope: "row" }, name), values.map((value) => h("td", null, value)))))))
      : h("p", null, "Nothing: settings and constraints are the same."));
}

function difference(each: SideBySide["differences"][number], found: SideBySide): HTMLElement {
  const [first, other] = [found.plans[0]!, found.plans.find((plan) => plan.id === each.plan)!];
  const changes = each.changes.slice(0, SHOWN);
  return h("section", null,
    h("h2", null, `From “${first.name}” to “${other.name}”`),
    h("p", null, `${counted(each.changed, "table")} ${each.changed === 1 ? "changes" : "change"}, ${whole(each.unchanged)} ${each.unchanged === 1 ? "stays" : "stay"}; `,
      `a running job would move ${bytes(each.moved_bytes)} of weights. `,
      h("a", { href: api.reportOf(other.id, first.id), download: "" }, "Download this comparison as a report")),
    each.other_problem.map((words) => h("p", { class: "warning" }, words)),
    changes.length
      ? h("details", null, h("summary", null, each.changed > SHOWN ? `Which tables: the first ${SHOWN}` : "Which tables"),
          h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Changed tables" },
            h("table", null,
              h("thead", null, h("tr", null, ["Table", "Before", "After", "Moved"].map((head) => h("th", { scope: "col", class: head === "Moved" ? "number-cell" : null }, head)))),
              h("tbody", null, changes.map((row) => h("tr", null,
                h("td", null, row.table), h("td", null, row.before ?? "–"), h("td", null, row.after ?? "–"),
                h("td", { class: "number-cell" }, bytes(row.moved_bytes))))))))
      : null);
}
