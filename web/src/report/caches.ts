// Hit rates of caches of other sizes, for tables outside device memory.

import { cacheCurve, shownPolicies } from "../charts/cacheCurve";
import { Chart } from "../charts/chart";
import type { CacheCurve } from "../data";
import { bytes, counted, percent, sizeScale } from "../format";
import type { Column } from "../grid";
import { figures } from "./devices";
import { legend, part } from "./part";

export function cachesPart(curve: CacheCurve): HTMLElement {
  const hits = `${percent(curve.planned_hits, 3)} of the lookups of ${counted(curve.tables, "table")} hit`;
  return part("What caches serve",
    `${hits} caches of ${bytes(curve.planned_bytes)} of weights, predicted from access profiles; the curve gives every table the same share of its rows.`,
    legend(shownPolicies(curve).map(([, words, colour]) => [colour, words])),
    new Chart(`${hits}.`, 260, (theme) => cacheCurve(curve, theme)).element,
    figures("Hits by cached weights", curve.points, [
      { head: "Cached", key: (point) => point.share, cell: (point) => percent(point.share), numeric: true },
      { head: "Weights", key: (point) => point.bytes, unit: sizeScale, numeric: true },
      ...shownPolicies(curve).map(([key, head]): Column<CacheCurve["points"][number]> => ({ head, key: (point) => point[key]!, cell: (point) => percent(point[key]!, 3), numeric: true })),
    ]));
}
