// Numbers that may be missing, and numbers that only this page shows; for the others see ../format.ts.

import * as plain from "../format";

export const NONE = "–";

export function seconds(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : plain.seconds(value);
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  if (Math.abs(share) < plain.ROUNDING) return "0 %";
  if (share >= 10) return `${plain.whole(share)} times`;
  return Math.abs(share) < 1e-4 ? "below 0.01 %" : plain.percent(share, Math.abs(share) >= 0.1 ? 3 : 2);
}

export function bytes(value: number): string {
  return plain.scaled(value, plain.sizeScale(value), 3);
}

/** Bytes per second in decimal units, as for links. */
export function speed(value: number): string {
  for (const unit of ["B/s", "kB/s", "MB/s", "GB/s"]) {
    if (Math.abs(value) < 1000) return `${plain.digits(value, 3)} ${unit}`;
    value /= 1000;
  }
  return `${plain.digits(value, 3)} TB/s`;
}

export { change, counted, digits, whole, words } from "../format";
