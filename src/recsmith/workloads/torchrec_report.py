"""Reads the text that TorchRec's planner logs (EmbeddingStats): one row per table under 'Parameter Info'.

The report gives sums over a table's features, so equal features are assumed: each gets
num_poolings = sum / features and pooling_factor = indices / poolings, which keeps ids and poolings exact.
It names neither data type nor optimizer: fp32 and sgd are assumed.
"""

import re
import warnings
from collections import Counter

from recsmith.errors import CorruptFile
from recsmith.files import reading
from recsmith.workloads.table import Feature, Table
from recsmith.workloads.workload import Workload

_TITLE = "--- Planner Statistics ---"
_BATCH = re.compile(r"^# Batch Size: (\d+)\s*#$", re.MULTILINE)
_COLUMNS = ("FQN", "Sum Pooling Factor", "Sum Num Poolings", "Num Indices", "Output", "Weighted", "Features",
            "Emb Dim (CW Dim)", "Hash Size", "Batch Sizes")  # fmt: skip


def matches(text: str) -> bool:
    """Whether the text is a planner report."""
    return text.lstrip()[:1] == "#" and _TITLE in text[:20_000]


def read(text: str, source: str) -> Workload:
    """The workload of a planner report; tables of the same name are numbered `name#2`, with a warning."""
    batch = _BATCH.search(text)
    rows = table_rows(text, source)
    if batch is None or not rows:
        raise CorruptFile(f"'{source}' is a planner report without a batch size or without tables")
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
        poolings, indices = float(row["Sum Num Poolings"]), float(row["Num Indices"])
        pooling_factor = indices / poolings if poolings else float(row["Sum Pooling Factor"]) / count
        own_batch = re.match(r"\d+", row["Batch Sizes"])
        own_size = int(own_batch[0]) if own_batch and int(own_batch[0]) != batch_size else None
        dim, rows = int(row["Emb Dim (CW Dim)"].split()[0]), int(row["Hash Size"])
    except (ValueError, ZeroDivisionError) as error:
        raise CorruptFile(f"the report's row of '{row['FQN']}' holds a bad number: {error}") from None
    names = [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
    features = tuple(
        Feature(
            name=feature,
            pooling_factor=pooling_factor,
            num_poolings=poolings / count,
            weighted=row["Weighted"] == "weighted",
            batch_size=own_size,
        )
        for feature in names
    )
    return Table(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        features=features,
        pooling="sum" if row["Output"] == "pooled" else "none",
        collection=collection,
    )
