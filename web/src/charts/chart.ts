// A chart in the page: drawn again when its size or the colours change, with a description for readers who cannot see it.

import type { ECharts, EChartsCoreOption } from "echarts/core";
import { h } from "../dom";
import { init } from "./library";
import { themeOf, type Theme } from "./theme";

const PRINTED_WIDTH = 680; // CSS pixels: the width of an A4 page between its margins

/** Charts that wait to be drawn: one per task of the event loop, so that the page appears before its charts. */
const waiting = new Set<Chart>();

function drawNext(): void {
  const [chart] = waiting;
  if (!chart) return;
  waiting.delete(chart);
  chart.draw();
  if (waiting.size) setTimeout(drawNext);
  else document.documentElement.dataset.drawn = "yes";
}

/** A chart option for the present colours and the width in pixels. */
export type Draw = (theme: Theme, width: number) => EChartsCoreOption;

export class Chart {
  readonly element: HTMLElement;
  private chart: ECharts | undefined;
  private width = 0;
  private take: ((dataIndex: number, series: string) => void) | undefined;
  private readonly watch = new ResizeObserver(() => this.resized());
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private readonly redraw = (): void => this.draw();
  private readonly print = (): void => this.draw(PRINTED_WIDTH);

  private resized(): void {
    if (this.element.clientWidth === this.width) return;
    if (!waiting.size) setTimeout(drawNext);
    waiting.add(this);
  }

  constructor(label: string, private readonly height: number, private readonly option: Draw) {
    this.element = h("div", { class: "chart", role: "img", "aria-label": label, style: { height: `${height}px` } });
    this.watch.observe(this.element);
    this.dark.addEventListener("change", this.redraw);
    document.addEventListener("themechange", this.redraw);
    window.addEventListener("beforeprint", this.print);
    window.addEventListener("afterprint", this.redraw);
  }

  /** Draw with the present data; nothing happens before the element is in the document. */
  draw(width = this.element.clientWidth): void {
    if (!width) return;
    if (!this.chart) {
      this.chart = init(this.element, null, { renderer: "canvas", width, height: this.height });
      this.chart.on("click", (event) => this.take?.(event.dataIndex, event.seriesName ?? ""));
    } else if (width !== this.width) this.chart.resize({ width, height: this.height });
    this.width = width;
    this.chart.setOption({ animation: false, ...this.option(themeOf(), width) }, { notMerge: true });
  }

  says(label: string): void {
    this.element.setAttribute("aria-label", label);
  }

  /** Call a function with the data item that was clicked. */
  onPick(take: (dataIndex: number, series: string) => void): this {
    this.take = take;
    return this;
  }

  end(): void {
    waiting.delete(this);
    this.watch.disconnect();
    this.dark.removeEventListener("change", this.redraw);
    document.removeEventListener("themechange", this.redraw);
    window.removeEventListener("beforeprint", this.print);
    window.removeEventListener("afterprint", this.redraw);
    this.chart?.dispose();
  }
}
