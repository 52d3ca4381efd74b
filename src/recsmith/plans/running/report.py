"""Reads the plan that TorchRec's planner logs: the 'Parameter Info' of EmbeddingStats names sharding and ranks."""

import re

from recsmith.clusters.cluster import LARGEST_WORLD
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.plans.running.tables import RunningPlan, RunningTable
from recsmith.workloads.torchrec_report import table_rows

ABBREVIATIONS = {
    "TW": "table_wise", "CW": "column_wise", "TWCW": "table_column_wise", "RW": "row_wise", "TWRW": "table_row_wise",
    "GS": "grid_shard", "DP": "data_parallel",
}  # _get_sharding_type_abbr of torchrec 1.8, distributed/planner/stats.py  # fmt: skip
_RANK_ROW = re.compile(r"^#\s+\d+\s+[\d.]+ \(\d+%\)", re.MULTILINE)
MOST_COLUMNS = 2**20  # of a table in a report: more are taken for a mistake before they are cut into pieces
_COLUMNS = ("Sharding", "Compute Kernel", "Ranks")


def read_report(text: str, source: str) -> RunningPlan:
    """The plan of a planner report; CorruptFile where cells cannot be read, PlanMismatch for unknown shardings."""
    rows = table_rows(text, source)
    if not rows:
        raise CorruptFile(
            f"'{source}' is a planner report without tables; keep its 'Parameter Info', which debug=True logs"
        )
    missing = [column for column in _COLUMNS if column not in rows[0]]
    if missing:
        raise CorruptFile(f"'{source}' is a planner report without the column '{missing[0]}', which a plan needs")
    return RunningPlan(len(_RANK_ROW.findall(text)) or None, tuple(_row(row, source) for row in rows))


def _row(row: dict[str, str], source: str) -> RunningTable:
    module, _, name = row["FQN"].rpartition(".")
    kind = ABBREVIATIONS.get(row["Sharding"])
    if kind is None:
        raise PlanMismatch(
            f"'{source}': table '{name}' has sharding '{row['Sharding']}'; known: {', '.join(ABBREVIATIONS)}"
        )
    try:
        dim, *pieces = (int(each) for each in re.findall(r"\d+", row["Emb Dim (CW Dim)"]))
        return RunningTable(
            module=module, table=name, sharding_type=kind, compute_kernel=row["Compute Kernel"],
            ranks=_ranks(row["Ranks"]), widths=_equal_widths(dim, pieces[0]) if pieces else (dim,),
            shape=(int(row["Hash Size"]), dim), load_factor=_load_factor(row.get("Cache Load Factor", "None")),
        )  # fmt: skip
    except (ValueError, ZeroDivisionError) as error:
        raise CorruptFile(f"'{source}': the row of '{row['FQN']}' cannot be read: {error}") from None


def _ranks(cell: str) -> tuple[int, ...]:
    """Ranks of '3', '0-95' or '2,2,5'."""
    spans = [range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1) for part in cell.split(",")]
    if any(span.stop > LARGEST_WORLD for span in spans) or sum(map(len, spans)) > MOST_COLUMNS:
        raise ValueError(f"ranks '{cell[:40]}' are more than those of the largest cluster, {LARGEST_WORLD:,} devices")
    return tuple(rank for span in spans for rank in span)


def _equal_widths(dim: int, width: int) -> tuple[int, ...]:
    if not 0 < width <= dim < MOST_COLUMNS or dim % width:
        raise ValueError(f"{dim} columns are no multiple of the pieces' {width}")
    return (width,) * (dim // width)


def _load_factor(cell: str) -> float | None:
    return None if cell == "None" else float(cell)
