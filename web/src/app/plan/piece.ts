// A piece of a table: its name, its figures, and the actions on the chosen piece.

import { h, type Child } from "../../dom";
import { button, field, select, onlyShows } from "../controls";
import { bytes, change, digits, percent, seconds, whole, words } from "../format";
import { pinOf, wish } from "./constraints";
import type { Edit, Piece } from "./edit";

export function label(piece: Piece): string {
  return piece.table.widths.length > 1 ? `${piece.table.name} (${piece.piece + 1} of ${piece.table.widths.length})` : piece.table.name;
}

export function meter(share: number, kind: string): HTMLElement {
  const fill = h("span", { class: `fill ${kind}` });
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
}

/** The chosen piece, and where else it may be placed. */
export function panelOf(edit: Edit, piece: Piece | null, move: (piece: Piece, rank: number) => void): Child {
  if (!piece) return h("p", { class: "note" }, "Choose a block to see its table and what can be done with it.");
  const { table } = piece;
  const devices = edit.devices.map((device): [string, string] => [
    String(device.rank), `device ${device.rank} (${percent(device.hbm_bytes / device.hbm_capacity_bytes)} full)`,
  ]);
  const target = select(devices.filter((_, rank) => rank % piece.span === 0), String(piece.rank), (rank) => move(piece, Number(rank)));
  return [
    h("h3", null, label(piece)),
    h("p", null, `${whole(table.rows)} rows × ${table.columns} columns, ${bytes(table.weight_bytes)}; ${words(table.sharding_type)}, `,
      `kernel ${table.compute_kernel}; ${digits(table.ids)} ids a sample.`,
      piece.seconds ? ` As planned, its device would be ${seconds(piece.seconds)} faster without it.` : null),
    alone(edit, table.name),
    onlyShows() ? null : h("div", { class: "row end" }, table.movable ? field("Lies on", target) : null,
      button("Pin it here", () => wish(edit, { kind: "pin", rule: { tables: table.name, pin: pinOf(edit, table) } }), "plain"),
      button("Keep it off this device", () => wish(edit, { kind: "rule", rule: { tables: table.name, not_ranks: [piece.rank] } }), "plain")),
  ];
}

/** The plan's step without a table, and the table's best other placement; requested from the server once. */
function alone(edit: Edit, table: string): HTMLElement {
  const made = h("p", { id: "alone" }, "What the step were without it is being worked out…");
  edit.aloneOf(table).then(
    (found) => {
      const other = found.other === null ? "No other place is allowed, or has room." : `Its best other place, all else as it is: ${found.other}, for a step of ${seconds(found.other_s)} (${change(found.other_s!, found.step_s)}).`;
      made.textContent = `As planned, the step is ${seconds(found.step_s)}, and ${seconds(found.without_s)} without it. ${other}`;
    },
    (error: Error) => (made.textContent = error.message));
  return made;
}
