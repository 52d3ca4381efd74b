// Bytes and seconds as text, as the command line prints them.

export function digits(value: number, count = 4): string {
  return String(Number(value.toPrecision(count)));
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 1e-3) return `${digits(value * 1e6)} µs`;
  if (Math.abs(value) < 1) return `${digits(value * 1e3)} ms`;
  return `${digits(value)} s`;
}

export function bytes(value: number): string {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1024) return unit === "B" ? `${value.toFixed(0)} B` : `${digits(value, 3)} ${unit}`;
    value /= 1024;
  }
  return `${digits(value, 3)} PiB`;
}

export function speed(value: number): string {
  for (const unit of ["B/s", "kB/s", "MB/s", "GB/s"]) {
    if (Math.abs(value) < 1000) return `${digits(value, 3)} ${unit}`;
    value /= 1000;
  }
  return `${digits(value, 3)} TB/s`;
}

export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const hundred = value * 100;
  if (Math.abs(hundred) >= 1000) return `${Math.round(value).toLocaleString("en")} times`;
  if (hundred !== 0 && Math.abs(hundred) < 0.01) return "below 0.01 %";
  return `${Math.abs(hundred) >= 10 ? hundred.toFixed(0) : digits(hundred, 2)} %`;
}

/** A change in per cent with its sign. */
export function change(now: number, before: number): string {
  if (before === 0) return "";
  const part = now / before - 1;
  if (Math.abs(part) < 5e-5) return "±0 %";
  return `${part > 0 ? "+" : "−"}${digits(Math.abs(part) * 100, 2)} %`;
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

export function whole(value: number): string {
  return value.toLocaleString("en");
}
