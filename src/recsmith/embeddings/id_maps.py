"""Maps of ids, worked out from data: the order of ids by popularity, or the row that each id has learned to share.

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
    """A number for each id of a table: numbers (num_embeddings,), 4 bytes each."""

    numbers: Numbers

    def __repr__(self) -> str:
        """Its size."""
        return f"<map of {len(self.numbers):,} ids>"

    def __call__(self, ids: Ints) -> Ints:
        """The numbers of ids (n,)."""
        return self.numbers[ids].astype(np.int64)

    def check(self, num_embeddings: int, below: int) -> None:
        """UsageError where it is not a map of so many ids to numbers from 0 to below a limit."""
        if len(self.numbers) != num_embeddings:
            raise UsageError(
                f"the map is of {len(self.numbers):,} ids and the table has {num_embeddings:,}; make it for this table"
            )
        if len(self.numbers) and not (self.numbers.min() >= 0 and self.numbers.max() < below):
            raise UsageError(f"the map gives numbers up to {self.numbers.max():,}; they must be below {below:,}")


def by_popularity(counts: Ints) -> IdMap:
    """The place of each id by falling counts (num_embeddings,); equal counts keep the order of ids."""
    numbers = np.empty(len(counts), dtype=np.int32)
    numbers[np.argsort(-counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
    return IdMap(numbers=numbers)


def save_maps(maps: Mapping[str, IdMap], target: Source) -> None:
    """Write maps by table as safetensors, whole or not at all."""
    numpy: Any = import_module("safetensors.numpy")
    arrays = {name: np.ascontiguousarray(made.numbers) for name, made in maps.items()}
    replace_file(Path(source_text(target, "an output")), numpy.save(arrays))


def load_maps(source: Source) -> dict[str, IdMap]:
    """Maps by table, of a file of `save_maps`.

    Raises:
        UsageError: there is no such file.
        CorruptFile: it holds something else.
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
    """Each row after (Q, ...): the mean of what its ids had before (R, ...), an id weighing its count and one more.

    values: weights of a table, or the state of an optimizer. counts: how often each id occurs (S,). rows: Q. A row that
    no id has is zero. An id that is alone in its row keeps exactly what it had. Cost: a pass over the ids a column.
    """
    flat = values.reshape(len(values), -1).astype(np.float64)
    weights = counts.astype(np.float64) + 1.0
    total: Floats = np.maximum(np.bincount(after.numbers, weights, rows), 1.0)
    made = np.empty((rows, flat.shape[1]))
    for column in range(flat.shape[1]):
        made[:, column] = np.bincount(after.numbers, weights * flat[before.numbers, column], rows) / total
    return made.reshape(rows, *values.shape[1:])
