// Colours of towers: the colours of sharding types, which are not shown for plans with towers.

const TOWER_COLOURS = ["table-wise", "row-wise", "column-wise", "grid-shard", "table-row-wise", "table-column-wise"];

/** The name of the colour of a tower; the seventh tower has the first colour again. */
export const colourOfTower = (tower: number): string => TOWER_COLOURS[tower % TOWER_COLOURS.length]!;
