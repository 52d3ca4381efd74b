// A column for each device, with a block for each of its shards, whose height is the bytes of its weights.

import type { CustomSeriesRenderItemAPI } from "echarts";
import type { EChartsCoreOption } from "echarts/core";
import type { Shard, TableData } from "../data";
import { h } from "../dom";
import { bytes, sizeScale, whole, words } from "../format";
import { axes, hint, lines } from "./parts";
import { colourOfTower } from "./towers";
import type { Theme } from "./theme";

export const MOST_BLOCKS = 4000; // blocks of all devices; the smallest shards of each device beyond this form one block

/** All shards of some tables, grouped by table. */
export function shardsOf(tables: TableData[]): Shard[] {
  return tables.flatMap((table) => table.pieces.flatMap((piece) => {
    const width = piece.columns[1] - piece.columns[0];
    const ranks = piece.ranks.flatMap(([first, count]) => Array.from({ length: count }, (_, i) => first + i));
    return ranks.map((rank, i): Shard => {
      const start = piece.block === null ? 0 : Math.min(i * piece.block, table.rows);
      const end = piece.block === null ? table.rows : Math.min(start + piece.block, table.rows);
      const size = (end - start) * width * table.element_bytes;
      return { table, rank, rows: [start, end], columns: piece.columns, bytes: size };
    });
  }));
}

/** A block of the map: one shard, or the smallest shards of a device together. */
export interface Block {
  rank: number;
  from: number;
  to: number;
  shard: Shard | null;
  count: number;
}

/** The blocks of every device, the largest at the bottom. */
export function blocksOf(shards: Shard[], devices: number, most = MOST_BLOCKS): Block[] {
  const held = Array.from({ length: devices }, (): Shard[] => []);
  for (const shard of shards) held[shard.rank]?.push(shard);
  const each = Math.max(4, Math.floor(most / devices));
  return held.flatMap((all, rank) => {
    const order = all.toSorted((a, b) => b.bytes - a.bytes);
    const kept = order.length > each ? each - 1 : order.length;
    let top = 0;
    const blocks: Block[] = order.slice(0, kept).map((shard) => ({ rank, from: top, to: (top += shard.bytes), shard, count: 1 }));
    const rest = order.slice(kept);
    if (rest.length) blocks.push({ rank, from: top, to: top + rest.reduce((sum, shard) => sum + shard.bytes, 0), shard: null, count: rest.length });
    return blocks;
  });
}

/** chosen: name of the table whose shards are highlighted; all others are faded. */
export function shardMap(blocks: Block[], devices: number, theme: Theme, chosen: string | null = null): EChartsCoreOption {
  const most = blocks.reduce((sum, block) => Math.max(sum, block.to), 1);
  const scale = sizeScale(most);
  return {
    ...axes(theme, Array.from({ length: devices }, (_, rank) => rank), scale.unit, most / scale.size),
    tooltip: hint(theme, "item", (index) => describe(blocks[index]!, theme)),
    series: [{
      type: "custom", name: "shards", clip: true,
      encode: { x: 0, y: [1, 2] },
      data: blocks.map((block) => [block.rank, block.from / scale.size, block.to / scale.size]),
      renderItem: (params: { dataIndex: number }, api: CustomSeriesRenderItemAPI) => {
        const block = blocks[params.dataIndex]!;
        const [x, bottom] = api.coord([block.rank, block.from / scale.size]) as [number, number];
        const [, top] = api.coord([block.rank, block.to / scale.size]) as [number, number];
        const room = (api.size!([1, 0]) as number[])[0]!;
        const width = Math.min(56, room * (room < 12 ? 0.88 : 0.76));
        const height = bottom - top;
        const name = block.shard?.table.name ?? null;
        return {
          type: "rect",
          shape: { x: x - width / 2, y: top, width, height: Math.max(0.3, height - (height > 3 ? 1 : 0)) },
          style: { fill: theme.series(block.shard ? colourOfTable(block.shard.table) : "rest"), opacity: chosen && name !== chosen ? 0.22 : 1 },
        };
      },
    }],
  };
}

/** The name of the colour of a sharding type. */
export const colourOf = (type: string): string => type.replaceAll("_", "-");

/** The name of the colour of a table: of its tower, if the plan has towers, otherwise of its sharding type. */
export const colourOfTable = (table: TableData): string => (table.tower === null ? colourOf(table.sharding_type) : colourOfTower(table.tower));

function describe(block: Block, theme: Theme): (HTMLElement | ReturnType<typeof lines>)[] {
  const { shard } = block;
  if (!shard) return [h("b", null, `${whole(block.count)} smaller shards`), lines([["rest", "Weights", bytes(block.to - block.from)], [null, "Device", String(block.rank)]], theme)];
  const part = ([a, b]: [number, number], all: number): string => (b - a === all ? `all ${whole(all)}` : `${whole(a)} to ${whole(b - 1)} of ${whole(all)}`);
  return [h("b", null, shard.table.name), lines([
    [colourOfTable(shard.table), words(shard.table.sharding_type), shard.table.compute_kernel],
    ...(shard.table.tower === null ? [] : [[null, "Tower", String(shard.table.tower)] as [null, string, string]]),
    [null, "Device", String(shard.rank)], [null, "Columns", part(shard.columns, shard.table.columns)],
    [null, "Rows", part(shard.rows, shard.table.rows)], [null, "Weights", bytes(shard.bytes)]], theme)];
}
