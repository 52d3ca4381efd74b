// What all charts share: Chart.js with the parts that are used, and colours from the style sheet.

import {
  BarController, BarElement, CategoryScale, Chart, Legend, LinearScale, LineController, LineElement, PointElement,
  Tooltip, type ChartConfiguration,
} from "chart.js";

Chart.register(BarController, BarElement, CategoryScale, Legend, LinearScale, LineController, LineElement, PointElement, Tooltip);
Chart.defaults.font.family = getComputedStyle(document.documentElement).fontFamily;
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A chart in a figure, with words that say what it shows to those who do not see it. */
export class Figure {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private chart: Chart | undefined;

  constructor(label: string, height: number, private readonly config: () => ChartConfiguration) {
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.element = document.createElement("div");
    this.element.className = "chart";
    this.element.style.height = `${height}px`;
    this.element.append(this.canvas);
    this.says(label);
  }

  says(label: string): void {
    this.canvas.setAttribute("aria-label", label);
  }

  /** Draw it with the data of now; the element must be in the document. */
  draw(): void {
    const config = this.config();
    if (this.chart) {
      this.chart.data = config.data;
      this.chart.options = config.options ?? {};
      this.chart.update("none");
    } else this.chart = new Chart(this.canvas, config);
  }

  end(): void {
    this.chart?.destroy();
    this.chart = undefined;
  }
}

export function axis(title: string, format: (value: number) => string, more: object = {}): object {
  return {
    title: { display: true, text: title, color: colour("muted") },
    ticks: { color: colour("muted"), maxTicksLimit: 6, callback: (value: number | string) => format(Number(value)) },
    grid: { color: colour("line") },
    border: { display: false },
    ...more,
  };
}

export type { ChartConfiguration };
