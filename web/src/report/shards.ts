// Where every shard is: the map of all devices, one table's columns to scale, and a table of all shards.

import { Chart } from "../charts/chart";
import { blocksOf, colourOf, colourOfTable, shardMap, shardsOf } from "../charts/shardMap";
import { colourOfTower } from "../charts/towers";
import type { Piece, RankRun, ReportData, TableData } from "../data";
import { h, replace } from "../dom";
import { bytes, counted, sizeScale, timeScale, whole, words } from "../format";
import { Grid } from "../grid";
import { legend, part, swatch } from "./part";

/** A row of the table: one range of columns, and the devices that share it. */
interface Row {
  table: TableData;
  piece: Piece;
  devices: number;
  bytes: number;
  found: string;
}

export function shardsPart(data: ReportData): HTMLElement {
  const devices = data.memory.length;
  const blocks = blocksOf(shardsOf(data.tables), devices);
  let chosen: TableData | null = null;
  const chart = new Chart(`Map of the shards of ${counted(data.tables.length, "table")} on ${counted(devices, "device")}; the table below says the same in words.`, 360,
    (theme) => shardMap(blocks, devices, theme, chosen?.name ?? null));
  const panel = h("div", { class: "chosen", "aria-live": "polite" });
  const rows = rowsOf(data.tables);
  const grid: Grid<Row> = new Grid<Row>("Shards", rows, columns((table) => choose(table)), (row) => row.table === chosen);
  const choose = (table: TableData | null): void => {
    chosen = chosen === table ? null : table;
    replace(panel, chosen ? strip(chosen, devices) : null);
    chart.draw();
    grid.refresh();
  };
  chart.onPick((index) => choose(blocks[index]?.shard?.table ?? null));
  grid.sort(5, true);
  const types = [...new Set(data.tables.map((table) => table.sharding_type))].toSorted();
  const towers = [...new Set(data.tables.map((table) => table.tower))].filter((tower) => tower !== null).toSorted((a, b) => a - b);
  const colours = towers.length ? towers.map((tower): [string, string] => [colourOfTower(tower), `tower ${tower}`]) : types.map((type): [string, string] => [colourOf(type), words(type)]);
  const rest = blocks.some((block) => !block.shard);
  return part("Where every shard is",
    "One column for each device, one block for each shard, as high as its weights are large. Choose a block, or a table in the list, to see its columns to scale.",
    legend([...colours, ...(rest ? [["rest", "smaller shards"] as [string, string]] : [])]),
    chart.element, panel, asks(grid, devices), grid.element);
}

function rowsOf(tables: TableData[]): Row[] {
  return tables.flatMap((table) => table.pieces.map((piece): Row => ({
    table, piece, devices: piece.ranks.reduce((sum, [, count]) => sum + count, 0),
    bytes: Math.min(piece.block ?? table.rows, table.rows) * (piece.columns[1] - piece.columns[0]) * table.element_bytes,
    found: `${table.name} ${table.sharding_type} ${words(table.sharding_type)} ${table.compute_kernel}`.toLowerCase(),
  })));
}

function columns(choose: (table: TableData) => void): ConstructorParameters<typeof Grid<Row>>[2] {
  return [
    { head: "Table", key: (row) => row.table.name,
      cell: (row) => h("button", { type: "button", class: "link", title: row.table.name, onclick: () => choose(row.table) }, row.table.name) },
    { head: "Sharding", key: (row) => row.table.sharding_type, cell: (row) => [swatch(colourOfTable(row.table)), words(row.table.sharding_type)] },
    { head: "Columns", key: (row) => row.piece.columns[0], cell: (row) => columnWords(row), numeric: true },
    { head: "Rows each", key: (row) => row.piece.block ?? row.table.rows, cell: (row) => whole(row.piece.block ?? row.table.rows), numeric: true },
    { head: "Device", key: (row) => row.piece.ranks[0]?.[0] ?? 0, cell: (row) => deviceWords(row.piece.ranks), numeric: true },
    { head: "Weights each", key: (row) => row.bytes, unit: sizeScale, numeric: true },
    { head: "Ids a step", key: (row) => row.table.ids, cell: (row) => whole(row.table.ids), numeric: true },
    { head: "Table costs", key: (row) => row.table.seconds, unit: timeScale, numeric: true },
    { head: "Kernel", key: (row) => row.table.compute_kernel, cell: (row) => words(row.table.compute_kernel) },
  ];
}

function columnWords({ table, piece }: Row): string {
  const [from, to] = piece.columns;
  return to - from === table.columns ? `all ${whole(table.columns)}` : `${from}–${to - 1} of ${whole(table.columns)}`;
}

function deviceWords(runs: RankRun[]): string {
  return runs.map(([first, count]) => (count === 1 ? String(first) : `${first}–${first + count - 1}`)).join(", ");
}

function asks(grid: Grid<Row>, devices: number): HTMLElement {
  const filter = (): void => {
    const asked = search.value.trim().toLowerCase();
    const rank = device.value === "" ? null : Number(device.value);
    grid.filter((row) => row.found.includes(asked) && (rank === null || row.piece.ranks.some(([first, count]) => rank >= first && rank < first + count)));
  };
  const search = h("input", { type: "search", id: "shard-search", placeholder: "Table, sharding or kernel", oninput: filter });
  const device = h("input", { type: "number", id: "shard-device", min: 0, max: devices - 1, placeholder: "all", oninput: filter });
  return h("div", { class: "asks" }, h("label", { for: "shard-search" }, "Search"), search, h("label", { for: "shard-device" }, "On device"), device);
}

/** One table's columns to scale, each piece with its devices. */
function strip(table: TableData, devices: number): HTMLElement {
  const shape = `${whole(table.rows)} rows of ${counted(table.columns, "column")}, ${bytes(table.rows * table.columns * table.element_bytes)}`;
  return h("div", null, h("h3", null, table.name), h("p", null, `${words(table.sharding_type)}, ${words(table.compute_kernel)}; ${shape}.`),
    h("ol", { class: "columns" }, table.pieces.map((piece) => {
      const width = piece.columns[1] - piece.columns[0];
      const count = piece.ranks.reduce((sum, [, each]) => sum + each, 0);
      const where = count === devices ? "all devices" : `device${count > 1 ? "s" : ""} ${deviceWords(piece.ranks)}`;
      const how = count === 1 ? "" : piece.block === null ? ", a copy each" : `, ${whole(piece.block)} rows each`;
      return h("li", { style: { flexGrow: String(width), borderTopColor: `var(--chart-${colourOfTable(table)})` }, title: `${width} columns on ${where}${how}` },
        h("span", null, `${width} columns`), h("span", null, `${where}${how}`));
    })));
}
