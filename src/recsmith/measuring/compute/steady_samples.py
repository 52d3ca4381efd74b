"""The steady samples of a folder as arrays, from which cost models are trained.

Legend: N samples, P tables of all of them together, 17 bins by reads of a row (workloads/workload.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints, noun
from recsmith.errors import UsageError
from recsmith.measuring.about import About, load_about
from recsmith.measuring.columns import COMPUTE
from recsmith.measuring.compute.samples import VISIT_COLUMNS, schedule_of
from recsmith.measuring.parquet_parts import part_files, read_part
from recsmith.measuring.rows import read_columns, whole_rows
from recsmith.workloads.workload import NUM_REUSE_BINS

Words = npt.NDArray[np.str_]
SAMPLE_COLUMNS = ("sample", "number", "optimizer", "data_type", "batch_size", "tables")
TABLE_COLUMNS = ("rows", "dim", "pooling_factor", "zipf", "lookups", "unique_rows", "reuse_bins")
READ_COLUMNS = (*SAMPLE_COLUMNS, *TABLE_COLUMNS)
DTYPES = {"int64": np.int64, "float64": np.float64, "string": np.str_}
DTYPE = {column.name: DTYPES[column.type.removeprefix("list<").removesuffix(">")] for column in COMPUTE
         if column.name in READ_COLUMNS}  # fmt: skip


@noun
class Samples:
    """Steady samples in order of their places; tables start[i] to start[i + 1] are those of sample i.

    sample: place in the run (N,). number: of the case (N,); samples of one number are one case, measured twice.
    forward_s, backward_s: as `Sample` has them (N,). optimizer, data_type: words (N,). batch_size: bags of every
    table (N,). start: (N + 1,), from 0 to P.
    rows, dim, pooling_factor (ids a bag), zipf, lookups (ids), unique_rows: of each table (P,).
    reuse_bins: rows read 1, 2, 3-4, 5-8 ... > 32768 times (P, 17).
    """

    sample: Ints
    number: Ints
    forward_s: Floats
    backward_s: Floats
    optimizer: Words
    data_type: Words
    batch_size: Ints
    start: Ints
    rows: Ints
    dim: Ints
    pooling_factor: Floats
    zipf: Floats
    lookups: Ints
    unique_rows: Ints
    reuse_bins: Ints

    def __len__(self) -> int:
        """N."""
        return len(self.sample)

    @property
    def owner(self) -> Ints:
        """Index of the sample of each table, 0 to N - 1 (P,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))


def read_samples(path: Path) -> Samples:
    """The steady samples of a folder, parts and journal; none where it holds none.

    Raises:
        UsageError: the folder holds no compute measurements.
        CorruptFile: a part or the journal is damaged, or of another schema.
        MissingExtra: there are parts and no pyarrow.
    """
    about = load_about(path)
    if about.kind != "compute":
        raise UsageError(f"'{path}' holds {about}; samples are of `recsmith measure compute`")
    steady = {each.sample: each for each in schedule_of(read_columns(path, VISIT_COLUMNS)) if each.status == "ok"}
    pieces = list(_pieces(path, about, np.array(list(steady), dtype=np.int64)))
    found = {name: np.concatenate([piece[name] for piece in pieces]) for name in READ_COLUMNS}
    seconds = [(steady[sample].forward_s, steady[sample].backward_s) for sample in found["sample"].tolist()]
    forward, backward = np.array(seconds, dtype=np.float64).reshape(-1, 2).T
    start = np.concatenate([[0], np.cumsum(found.pop("tables"))])
    bins = found.pop("reuse_bins").reshape(-1, NUM_REUSE_BINS)
    return Samples(forward_s=forward, backward_s=backward, start=start, reuse_bins=bins, **found)


def _pieces(path: Path, about: About, steady: Ints) -> Iterator[dict[str, Any]]:
    """READ_COLUMNS of the first visit of each steady sample, tables after tables: of each part, then of the journal."""
    for part in part_files(path):
        table = read_part(part, about, [*READ_COLUMNS, "visit"])
        first_visits = table.filter((table["visit"].to_numpy() == 0) & np.isin(table["sample"].to_numpy(), steady))
        flat = {name: first_visits[name].combine_chunks() for name in READ_COLUMNS}
        yield _arrays(flat | {name: flat[name].flatten() for name in TABLE_COLUMNS})
    known = set(steady.tolist())
    rows = [row for row in whole_rows(path, [*READ_COLUMNS, "visit"]) if row["visit"] == 0 and row["sample"] in known]
    columns = {name: [row[name] for row in rows] for name in READ_COLUMNS}
    yield _arrays(columns | {name: [value for values in columns[name] for value in values] for name in TABLE_COLUMNS})


def _arrays(columns: dict[str, Any]) -> dict[str, Any]:
    """NumPy arrays of columns, each of its column's type."""
    return {name: np.array(values, dtype=DTYPE[name]) for name, values in columns.items()}
