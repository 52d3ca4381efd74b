"""Writes samples as lines of Criteo's click logs."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

import numpy as np

from recsmith.data.batch import Batch
from recsmith.data.criteo.spec import CATEGORIES, COUNTS
from recsmith.data.schema import DataSchema
from recsmith.errors import UsageError

LINE = "\t".join(["%d"] * (1 + COUNTS) + ["%08x"] * CATEGORIES) + "\n"
MOST_ROWS = 2**32  # that a category of 32 bits tells apart
PACKING = 6  # of gzip, from 1 to 9


def refuse_other_than_criteo(schema: DataSchema) -> None:
    """Raise UsageError for a schema whose samples do not fit into lines."""
    shape = (len(schema.labels), len(schema.dense), len(schema.features))
    if shape != (1, COUNTS, CATEGORIES):
        raise UsageError(
            f"Criteo's lines hold 1 label, {COUNTS} counts and {CATEGORIES} categories, and this data has "
            f"{shape[0]}, {shape[1]} and {shape[2]}; write Parquet, or change the spec"
        )
    large = next((each for each in schema.features if (each.num_embeddings or 0) > MOST_ROWS), None)
    if large is not None:
        raise UsageError(f"feature '{large.name}' has more rows than a category of 32 bits tells apart; write Parquet")


def write_lines(groups: Iterable[Batch], path: Path) -> None:
    """Write samples into a file; one that is called .gz is packed."""
    with _opened(path) as file:
        for samples in groups:
            file.write(criteo_lines(samples).encode("ascii"))


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "wb", PACKING)) if path.suffix == ".gz" else path.open("wb")


def criteo_lines(samples: Batch) -> str:
    """Samples as lines; dense values are log(1 + count), as the reader makes them."""
    if any(bool((bags.lengths != 1).any()) for bags in samples.ids.values()):
        raise UsageError(
            "Criteo's lines hold one id of each feature, and some bags here hold more or none; write Parquet"
        )
    counts = np.rint(np.expm1(samples.dense.astype(np.float64))).astype(np.int64)
    ids = np.stack([bags.values for bags in samples.ids.values()], axis=1)
    rows = np.concatenate([samples.labels.astype(np.int64), counts, ids], axis=1).tolist()
    return "".join([LINE % tuple(row) for row in rows])
