// Colours of towers: those of sharding types, which plans with towers do not show.

const TOWER_COLOURS = ["table-wise", "row-wise", "column-wise", "grid-shard", "table-row-wise", "table-column-wise"];

/** The name of the colour of a tower; from the seventh on they repeat. */
export const colourOfTower = (tower: number): string => TOWER_COLOURS[tower % TOWER_COLOURS.length]!;
