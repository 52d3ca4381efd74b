// Numbers as people read them, as src/recsmith/units.py prints them: four significant digits, and a unit.

export interface Scale {
  unit: string;
  size: number;
}

const TIMES: Scale[] = [{ unit: "µs", size: 1e-6 }, { unit: "ms", size: 1e-3 }, { unit: "s", size: 1 }];
const SIZES: Scale[] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].map((unit, power) => ({ unit, size: 1024 ** power }));

const LEAST_TIME = 1e-12; // seconds: no part of a step is this short, so smaller values are rounding errors of 0
export const ROUNDING = 1e-8; // shares smaller than this are shown as 0

/** The unit in which a number has one to three digits before the point. */
function fitting(value: number, scales: Scale[], step: number): Scale {
  return scales.find((scale) => Math.abs(value) < scale.size * step) ?? scales.at(-1)!;
}

export const timeScale = (seconds: number): Scale => fitting(seconds, TIMES, 1000);
export const sizeScale = (bytes: number): Scale => fitting(bytes, SIZES, 1024);

/** At most `most` significant digits, without trailing zeros, with separators of thousands. */
export function digits(value: number, most = 4): string {
  return value.toLocaleString("en", { maximumSignificantDigits: most });
}

export function scaled(value: number, scale: Scale, most = 4): string {
  return `${digits(value / scale.size, most)} ${scale.unit}`;
}

export const seconds = (value: number): string => (Math.abs(value) < LEAST_TIME ? "0 µs" : scaled(value, timeScale(value)));
export const bytes = (value: number): string => scaled(value, sizeScale(value));

/** Numbers of a column, all in the unit of the largest and with equally many decimals; smaller ones are shown as below the last decimal. */
export function inOneUnit(values: number[], scaleOf: (value: number) => Scale): (value: number) => string {
  const most = values.reduce((found, value) => Math.max(found, Math.abs(value)), 0);
  const { unit, size } = scaleOf(most);
  const decimals = unit === "B" ? 0 : Math.max(0, 4 - String(Math.floor(most / size)).length);
  const told = (value: number): string => value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  const least = 10 ** -decimals;
  return (value) => `${value && Math.abs(value / size) < least / 2 ? `<${told(least)}` : told(value / size)} ${unit}`;
}

export function percent(share: number, most = 2): string {
  if (!Number.isFinite(share)) return "–"; // a share of nothing
  return `${digits(Math.abs(share) < ROUNDING ? 0 : share * 100, most)} %`;
}

/** A relative change with its sign, such as -3.2 %. */
export function change(now: number, before: number): string {
  if (!before && now) return "–"; // from nothing
  const part = before ? now / before - 1 : 0;
  if (Math.abs(part) < 5e-7) return "±0 %";
  return `${part < 0 ? "−" : "+"}${percent(Math.abs(part), Math.abs(part) >= 0.1 ? 3 : 2)}`;
}

export const whole = (value: number): string => Math.round(value).toLocaleString("en");

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/** table_wise as words: `table wise`. */
export const words = (name: string): string => name.replaceAll("_", " ");
