"""Reads the text that TorchRec's planner logs (EmbeddingStats): one row per table under 'Parameter Info'.

The rows are passed without the prefixes of the job's log (torchrec_log.py). The table is followed by a blank row and
'Batch Size', then by 'Compute Kernels Count', whose counts add up to the number of tables (torchrec 1.8,
distributed/planner/stats.py).

The report gives sums over a table's features, so equal features are assumed: each gets num_poolings = sum / features
and pooling_factor = indices / poolings, which keeps ids and poolings exact. The report names neither data type nor
optimizer: fp32 and sgd are assumed.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import reading
from recsmith.units import counted
from recsmith.workloads.workload import Feature, Table, Workload

MOST_FEATURES = 100_000  # most features of a table; more are taken for a garbled cell
MOST_NAMED = 8  # most tables that a message names
SHOWN = 80  # most characters of a cell that a message quotes
VIRTUAL_KERNELS = ("ssd_virtual_table", "dram_virtual_table", "dram_ssd_virtual_table")
"""Kernels of tables that keep rows by key, on disk or in host memory (EmbeddingComputeKernel); they are not planned."""
_BATCH = re.compile(r"^# Batch Size: (\d+)\s*#$", re.MULTILINE)
Number = TypeVar("Number")
_COLUMNS = ("FQN", "Sum Pooling Factor", "Sum Num Poolings", "Num Indices", "Output", "Weighted", "Features",
            "Emb Dim (CW Dim)", "Hash Size")  # fmt: skip
BATCH_ROW = re.compile(r"^# Batch Size:.*#\s*$", re.MULTILINE)


def read(text: str, source: str) -> Workload:
    """The workload of a planner report; tables of the same name are numbered `name#2`, with a warning."""
    batch = _BATCH.search(text)
    rows = table_rows(text, source)
    if batch is None or not rows:
        raise CorruptFile(
            f"'{source}' is a planner report without a batch size or without tables; "
            "keep its 'Parameter Info', which a planner with debug=True logs"
        )
    virtual = [row["FQN"].rpartition(".")[2] for row in rows if row.get("Compute Kernel") in VIRTUAL_KERNELS]
    rows = [row for row in rows if row.get("Compute Kernel") not in VIRTUAL_KERNELS]
    if virtual:
        warn_of_virtual(virtual, source, others=len(rows))
    seen: Counter[str] = Counter()
    tables: list[Table] = []
    with reading(source):
        for row in rows:
            collection, _, name = row["FQN"].rpartition(".")
            seen[name] += 1
            unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
            tables.append(_table(row, unique, collection, int(batch[1])))
        twins = sorted(name for name, count in seen.items() if count > 1)
        if twins:
            warnings.warn(f"'{source}': tables of the same name were numbered: {', '.join(twins)}", stacklevel=2)
        return Workload(
            batch_size=int(batch[1]), optimizer="sgd", tables=tuple(tables), source="TorchRec planner report"
        )


def warn_of_virtual(names: Sequence[str], source: str, *, others: int) -> None:
    """Warn that tables with VIRTUAL_KERNELS in a log or plan are left out; CorruptFile if there are no other tables."""
    shown = ", ".join(names[:MOST_NAMED]) + (" ..." if len(names) > MOST_NAMED else "")
    left_out = f"{counted(len(names), 'table')} of virtual kernels ({shown})"
    if not others:
        raise CorruptFile(f"'{source}' reports nothing but {left_out}, which are not planned")
    warnings.warn(  # at one line of code, so that a log read as both workload and plan warns once
        f"'{source}': {left_out} left out: they keep rows by key and are not planned", stacklevel=1
    )


def table_rows(text: str, source: str) -> list[dict[str, str]]:
    """The table under 'Parameter Info' as one dictionary per row; cells are separated by two or more blanks."""
    lines = iter(text.splitlines())
    cells: list[list[str]] = []
    for line in lines:
        if line.startswith("# Parameter Info:"):
            break
    for line in lines:
        row = re.split(r"\s{2,}", line.strip("# \t"))
        if len(row) < 2:
            break
        cells.append(row)
    if len(cells) < 3:
        return []
    header, _, *body = cells
    missing = [column for column in _COLUMNS if column not in header]
    if missing:
        raise CorruptFile(
            f"'{source}' is a planner report without the column '{missing[0]}'; use TorchRec 1.1 or later"
        )
    for row in body:
        if len(row) != len(header):
            raise CorruptFile(f"'{source}': the row of '{row[0]}' has {len(row)} cells, the header has {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in body]


def _table(row: dict[str, str], name: str, collection: str, batch_size: int) -> Table:
    count = cell_number(row, "Features", int)
    if count > MOST_FEATURES:
        raise UsageError(f"the row of '{row['FQN']}' has {count:,} Features; wanted at most {MOST_FEATURES:,}")
    poolings, indices = cell_number(row, "Sum Num Poolings", float), cell_number(row, "Num Indices", float)
    pooling_factor = indices / poolings if poolings else cell_number(row, "Sum Pooling Factor", float) / max(count, 1)
    batch_sizes = _batch_sizes(row, count, batch_size)
    dim, rows = (
        cell_number(row, "Emb Dim (CW Dim)", lambda cell: int(cell.split()[0])),
        cell_number(row, "Hash Size", int),
    )
    names = [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
    features = tuple(
        Feature(
            name=feature,
            pooling_factor=pooling_factor,
            num_poolings=poolings / count,
            weighted=row["Weighted"] == "weighted",
            batch_size=size,
        )
        for feature, size in zip(names, batch_sizes, strict=True)
    )
    return Table(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        features=features,
        pooling="sum" if row["Output"] == "pooled" else "none",
        collection=collection,
    )


def cell_number(row: dict[str, str], column: str, number: Callable[[str], Number]) -> Number:
    """The number in a cell; UsageError names the row, the column and the cell's text if it is none."""
    try:
        return number(row[column])
    except (ValueError, IndexError, ZeroDivisionError):
        shown = repr(row[column][:SHOWN]) + ("..." if len(row[column]) > SHOWN else "")
        raise UsageError(f"the row of '{row['FQN']}' has {column} {shown}, which cannot be read as a number") from None


def _batch_sizes(row: dict[str, str], count: int, usual: int) -> list[int | None]:
    """Batch size of each feature from 'n/a', '2560', '2560*4' or '2560 * 2, 512'; None for the usual one."""
    if row.get("Batch Sizes", "n/a") == "n/a":
        return [None] * count

    def sizes_of(cell: str) -> list[int | None]:
        sizes: list[int | None] = []
        for part in cell.split(","):
            size, _, times = part.partition("*")
            sizes += [None if int(size) == usual else int(size)] * min(int(times or 1), MOST_FEATURES)
        return sizes

    sizes = cell_number(row, "Batch Sizes", sizes_of)
    if len(sizes) != count:
        raise UsageError(f"the row of '{row['FQN']}' has {len(sizes)} Batch Sizes for {count} Features")
    return sizes


# --- whole reports ---------------------------------------------------------------------------------------------------


@dataclass
class ReportRows:
    """The rows of one report without prefixes; first (the title) and last are line numbers of the log, from 1."""

    first: int
    last: int
    rows: list[str] = field(default_factory=list[str])

    @property
    def cells(self) -> list[str]:
        """The texts of the rows, without the '#' at their ends."""
        return [row.strip("# \t") for row in self.rows]

    def trouble(self) -> str:
        """What makes the report unreadable; '' if it is readable."""
        if not any(BATCH_ROW.match(row) for row in self.rows):
            return f"ends in line {self.last}, before its 'Batch Size'; give the whole log"
        cells = self.cells
        batches = [at for at, cell in enumerate(cells) if cell.startswith("Batch Size:")]
        tables = [at for at, cell in enumerate(cells) if cell.startswith("Parameter Info:")]
        body = cells[tables[0] + 1 : batches[0]] if tables else [""]
        whole = len(batches) == 1 and len(tables) <= 1 and _is_table(body)
        if not whole:
            return f"is mixed with rows of another up to line {self.last}; give the log of one rank"
        counted = _tables_counted(cells)
        if tables and counted not in (None, len(body) - 3):
            return f"shows {len(body) - 3} of its {counted} tables up to line {self.last}; rows are missing or garbled"
        return ""

    def read_part(self) -> tuple[str, ...]:
        """The rows up to the batch size, without the planner's own run time: equal for copies of one report."""
        cells = self.cells
        end = next((at for at, cell in enumerate(cells) if cell.startswith("Batch Size:")), len(cells))
        return tuple(cell for cell in cells[: end + 1] if not cell.startswith("--- Evaluated"))


def _is_table(body: list[str]) -> bool:
    """Whether these are the rows of one table (two or more cells each) and the blank row after it."""
    return body[-1:] == [""] and all(re.search(r"\s{2,}", cell) for cell in body[:-1])


def _tables_counted(cells: list[str]) -> int | None:
    """The number of tables by the report's 'Compute Kernels Count'; None if it does not state one."""
    if "Compute Kernels Count:" not in cells:
        return None
    at = cells.index("Compute Kernels Count:") + 1
    end = cells.index("", at) if "" in cells[at:] else None  # without an end, more rows may be missing
    counts = [re.fullmatch(r"\w+: (\d+)", cell) for cell in cells[at:end]]
    return sum(int(count[1]) for count in counts if count) if end is not None and all(counts) else None
