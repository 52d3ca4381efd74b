// A search as it runs: the best step so far, the bound, and the way to end it.

import { Chart } from "../charts/chart";
import { progress, type Point } from "../charts/progress";
import { api, listen, type Fix, type SearchAsked, type SearchEvent } from "./api";
import { h, replace } from "../dom";
import { button, say } from "./controls";
import { percent, seconds } from "./format";
import { askedOf, rivalOf, search } from "./shelf";

export async function watch(into: HTMLElement, id: string): Promise<() => void> {
  const state = await api.searchState(id);
  const page = new Watch(id, state.name);
  into.append(page.element);
  return page.begin();
}

class Watch {
  readonly element = h("div", { class: "watch" });
  private readonly points: Point[] = [];
  private bound: number | null = null;
  private started: number | null = null;
  private ended = false;
  private readonly heading = h("h1", null, "Searching…");
  private readonly figures = h("dl", { class: "figures" });
  private readonly note = h("p", { class: "lead" }, "Waiting for its turn…");
  private readonly stopper = button("Stop with the best so far", () => void this.stop(), "plain", { id: "stop", disabled: true });
  private readonly buttons = h("div", { class: "buttons" });
  private readonly progress = h("section", { class: "card", "aria-label": "Progress" });
  private readonly chart = new Chart("The best step so far against time", 320, (theme) => progress(this.points, this.bound, this.elapsed(), theme));

  constructor(private readonly id: string, name: string) {
    this.buttons.append(
      this.stopper,
      button("Cancel", () => void this.cancel(), "danger", { id: "cancel" }));
    this.progress.append(this.chart.element);
    this.element.append(this.heading, name ? h("p", null, name) : "", this.note, this.figures,
      this.progress, this.buttons);
  }

  begin(): () => void {
    const stop = listen(this.id, (event) => this.hear(event));
    const timer = window.setInterval(() => { if (!this.ended && this.started !== null) this.draw(); }, 250);
    return () => { stop(); clearInterval(timer); this.chart.end(); };
  }

  private elapsed(): number {
    return this.started === null || this.ended ? 0 : (performance.now() - this.started) / 1000;
  }

  private hear(event: SearchEvent): void {
    if (event.kind === "queued") this.note.textContent = event.waiting ? "Another search is running; this one starts after it." : "Starting…";
    else if (event.kind === "started") this.started = performance.now();
    else this.started ??= performance.now() - event.elapsed_s * 1000;
    if (event.kind === "started") this.note.textContent = "Reading the problem…";
    if (event.kind === "bound") {
      this.bound = event.bound_s;
      this.note.textContent = "Looking for a first plan…";
    }
    if (event.kind === "improved" && event.total_s !== null) {
      this.stopper.disabled = false;
      this.points.push({ x: event.elapsed_s, y: event.total_s });
      this.note.textContent = "The line falls whenever a faster plan is found.";
    }
    if (event.kind === "done" && event.plan) return this.open(event.plan.id);
    if (event.kind === "failed") return this.finish(event.fixes.length ? "There is no plan for this" : "No plan was found", event.error ?? "", event.fixes);
    if (event.kind === "cancelled") return this.finish("Cancelled", "The search has ended, and nothing was kept.");
    this.draw();
  }

  private draw(): void {
    const best = this.points.at(-1)?.y ?? null;
    const gap = best !== null && this.bound ? best / this.bound - 1 : null;
    const shown: [string, string][] = [
      ["Best step", seconds(best)], ["Bound", seconds(this.bound)], ["Above the bound", percent(gap)],
      ["Search time", `${this.elapsed().toFixed(1)} s`],
    ];
    replace(this.figures, shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
    this.chart.says(`The best step so far is ${seconds(best)}, the bound ${seconds(this.bound)}`);
    if (this.element.isConnected) this.chart.draw();
  }

  private open(plan: string): void {
    this.ended = true;
    say("The search has ended with a plan.");
    const rival = rivalOf(this.id);
    history.replaceState(null, "", rival ? `#/compare/${rival},${plan}` : `#/plan/${plan}`);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  }

  private finish(title: string, words: string, fixes: Fix[] = []): void {
    this.ended = true;
    this.heading.textContent = title;
    this.note.textContent = words.charAt(0).toUpperCase() + words.slice(1);
    if (!this.points.length) this.figures.hidden = this.progress.hidden = true; // nothing was found that they could show
    this.note.classList.add("error");
    document.title = `${title} · RecSmith`;
    say(`${title}. ${words}`);
    const asked = askedOf(this.id);
    const tried = asked ? fixes : [];
    replace(this.buttons,
      tried.length ? h("span", { class: "note" }, "Try again with:") : null,
      tried.map((fix) => button(fix.text, () => void this.retry(asked!, fix), "primary fix")),
      h("a", { class: `button ${tried.length ? "plain" : "primary"}`, href: "#/" }, "Change something and try again"));
  }

  private async retry(asked: SearchAsked, fix: Fix): Promise<void> {
    const changes = Object.fromEntries(Object.entries({ ...asked.changes, ...fix.changes }).filter(([, value]) => value !== null));
    const space = fix.space ?? asked.space;
    const wanted = { ...asked, ...(Object.keys(changes).length ? { changes } : {}), ...(space ? { space } : {}) };
    await search(wanted).catch((error: Error) => (this.note.textContent = error.message));
  }

  private async stop(): Promise<void> {
    this.note.textContent = "Ending with the best plan so far…";
    await api.stop(this.id).catch((error: Error) => (this.note.textContent = error.message));
  }

  private async cancel(): Promise<void> {
    await api.cancel(this.id).catch((error: Error) => (this.note.textContent = error.message));
  }
}
