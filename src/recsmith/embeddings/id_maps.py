"""Id maps made from data: the rank of each id by popularity, or the shared row of each id in a learned hash.

S ids, R rows before, Q rows after, d columns
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints, record
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Source, replace_file, source_text

Numbers = npt.NDArray[np.int32]


@record
class IdMap:
    """A map from each id of a table to a number. numbers: (num_embeddings,), 4 bytes each."""

    numbers: Numbers

    def __repr__(self) -> str:
        """The number of ids."""
        return f"<map of {len(self.numbers):,} ids>"

    def __call__(self, ids: Ints) -> Ints:
        """The numbers of ids (n,)."""
        return self.numbers[ids].astype(np.int64)

    def check(self, num_embeddings: int, below: int) -> None:
        """Raise UsageError unless the map has `num_embeddings` ids and all its numbers are 0 to below - 1."""
        if len(self.numbers) != num_embeddings:
            raise UsageError(
                f"the map is of {len(self.numbers):,} ids and the table has {num_embeddings:,}; make it for this table"
            )
        if len(self.numbers) and not (self.numbers.min() >= 0 and self.numbers.max() < below):
            raise UsageError(f"the map gives numbers up to {self.numbers.max():,}; they must be below {below:,}")


def by_popularity(counts: Ints) -> IdMap:
    """The rank of each id by falling counts, from 0; equal counts keep their order. counts: (num_embeddings,)."""
    numbers = np.empty(len(counts), dtype=np.int32)
    numbers[np.argsort(-counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
    return IdMap(numbers=numbers)


def save_maps(maps: Mapping[str, IdMap], target: Source) -> None:
    """Write maps, by table name, to a safetensors file, atomically."""
    numpy: Any = import_module("safetensors.numpy")
    arrays = {name: np.ascontiguousarray(made.numbers) for name, made in maps.items()}
    replace_file(Path(source_text(target, "an output")), numpy.save(arrays))


def load_maps(source: Source) -> dict[str, IdMap]:
    """The maps by table name in a file that `save_maps` wrote.

    Raises:
        UsageError: there is no such file.
        CorruptFile: the file holds something else.
    """
    name = source_text(source, "a file of maps")
    if not Path(name).is_file():
        raise UsageError(f"'{name}' is not there; give a file of id maps")
    safetensors: Any = import_module("safetensors")
    try:
        found: dict[str, Any] = import_module("safetensors.numpy").load_file(name)
    except (safetensors.SafetensorError, OSError) as error:
        raise CorruptFile(f"'{name}' is not a safetensors file: {error}") from None
    wrong = next((table for table, numbers in found.items() if numbers.dtype != np.int32 or numbers.ndim != 1), None)
    if wrong is not None:
        raise CorruptFile(f"'{name}' holds no map for '{wrong}': a map is a list of int32 numbers")
    return {table: IdMap(numbers=numbers) for table, numbers in found.items()}


def carried_rows(values: Floats, before: IdMap, after: IdMap, counts: Ints, rows: int) -> Floats:
    """Rows for a new id map (Q, ...): the mean of the old rows (R, ...) of a row's ids, weighted by count + 1.

    values: old rows of a table's weights or of its optimizer state. before, after: the old and the new map. counts: how
    often each id occurs (S,). rows: Q. A row without ids is zero. An id that is alone in its new row keeps its old row
    exactly. Cost: a pass over the ids per column.
    """
    flat = values.reshape(len(values), -1).astype(np.float64)
    weights = counts.astype(np.float64) + 1.0
    total: Floats = np.maximum(np.bincount(after.numbers, weights, rows), 1.0)
    made = np.empty((rows, flat.shape[1]))
    for column in range(flat.shape[1]):
        made[:, column] = np.bincount(after.numbers, weights * flat[before.numbers, column], rows) / total
    return made.reshape(rows, *values.shape[1:])
