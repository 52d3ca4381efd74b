"""Reads the text that TorchRec's planner logs (EmbeddingStats): one row per table under 'Parameter Info'.

The rows come without what a job's log adds to them (torchrec_log.py).

The report gives sums over a table's features, so equal features are assumed: each gets
num_poolings = sum / features and pooling_factor = indices / poolings, which keeps ids and poolings exact.
It names neither data type nor optimizer: fp32 and sgd are assumed.
"""

import re
import warnings
from collections import Counter

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import reading
from recsmith.workloads.table import Feature, Table
from recsmith.workloads.workload import Workload

MOST_FEATURES = 100_000  # of a table: more are taken for a garbled cell
_BATCH = re.compile(r"^# Batch Size: (\d+)\s*#$", re.MULTILINE)
_COLUMNS = ("FQN", "Sum Pooling Factor", "Sum Num Poolings", "Num Indices", "Output", "Weighted", "Features",
            "Emb Dim (CW Dim)", "Hash Size")  # fmt: skip


def read(text: str, source: str) -> Workload:
    """The workload of a planner report; tables of the same name are numbered `name#2`, with a warning."""
    batch = _BATCH.search(text)
    rows = table_rows(text, source)
    if batch is None or not rows:
        raise CorruptFile(
            f"'{source}' is a planner report without a batch size or without tables; "
            "keep its 'Parameter Info', which a planner with debug=True logs"
        )
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


def table_rows(text: str, source: str) -> list[dict[str, str]]:
    """The table under 'Parameter Info' as one dictionary a row; cells are parted by two or more blanks."""
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
            f"'{source}' is a planner report without the column '{missing[0]}'; use TorchRec 1.0 or later"
        )
    for row in body:
        if len(row) != len(header):
            raise CorruptFile(f"'{source}': the row of '{row[0]}' has {len(row)} cells, the header has {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in body]


def _table(row: dict[str, str], name: str, collection: str, batch_size: int) -> Table:
    try:
        count = int(row["Features"])
        if count > MOST_FEATURES:
            raise ValueError(f"{count:,} features of one table")
        poolings, indices = float(row["Sum Num Poolings"]), float(row["Num Indices"])
        pooling_factor = indices / poolings if poolings else float(row["Sum Pooling Factor"]) / count
        batch_sizes = _batch_sizes(row.get("Batch Sizes", "n/a"), count, batch_size)
        dim, rows = int(row["Emb Dim (CW Dim)"].split()[0]), int(row["Hash Size"])
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f"the row of '{row['FQN']}' holds a bad number: {error}") from None
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


def _batch_sizes(cell: str, count: int, usual: int) -> list[int | None]:
    """Batch size of each feature of 'n/a', '2560', '2560*4' or '2560 * 2, 512'; None where it is the usual one."""
    if cell == "n/a":
        return [None] * count
    sizes: list[int | None] = []
    for part in cell.split(","):
        size, _, times = part.partition("*")
        sizes += [None if int(size) == usual else int(size)] * min(int(times or 1), MOST_FEATURES)
    if len(sizes) != count:
        raise ValueError(f"{len(sizes)} batch sizes for {count} features")
    return sizes
