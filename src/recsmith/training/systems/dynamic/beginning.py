"""Takes over raw ids and their rows if a run begins with the weights of another one (docs/dynamic.md).

In a table with the same number of rows, nothing moves. A larger table has other parts: each id gets a row in the part
that it belongs to now, in the earlier order, and the weights of its row move with it.

N rows of the earlier table, M rows of the new one
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from recsmith._types import Ints
from recsmith.training.systems.dynamic.id_rows import OF_ROWS, WAITING, parts_of_table
from recsmith.training.systems.dynamic.maps import file_of
from recsmith.training.systems.dynamic.tables import maps_in


def begin_ids(model: nn.Module, before: Any, rows: Mapping[str, int]) -> dict[str, Ints]:
    """Load the ids of another training into this rank's maps; returns the old row of each row (M,) of moved tables.

    Args:
        model: the sharded model.
        before: checkpoint or exported model, as the system `start_from` opens it (trained.py there).
        rows: number of rows there, by table that is taken over.
    """
    moved: dict[str, Ints] = {}
    for maps in maps_in(model):
        for name, table in maps.tables.items():
            if name not in rows:
                continue
            found = _of_model(before.model, name) if before.saved is None else _of_checkpoint(before, name, rows[name])
            if (there := table.begin(found)) is not None:
                moved[name] = there
    return moved


def _of_checkpoint(before: Any, name: str, rows: int) -> Mapping[str, Any]:
    """Arrays over all rows of a table, and over all waiting ids."""
    parts = parts_of_table(rows)
    found: dict[str, Any] = {}
    for key in (*OF_ROWS, *WAITING):
        names = [f"dynamic.{name}.{part}.{key}" for part in range(parts)]
        if all(each in before.tensors for each in names):
            whole = np.concatenate([each.numpy() for each in before.read(names)])
            whole = whole if whole.dtype == np.int64 else whole.view(np.uint32)
            found[key] = whole[:rows] if key in OF_ROWS else whole
    return found


def _of_model(folder: Path, name: str) -> Mapping[str, Any]:
    """The ids of an exported model, with zeros for when and how often they were seen, which it does not hold."""
    from recsmith.training.job.export import opened_file

    with opened_file(folder / file_of(name)) as opened:
        ids = opened.get_tensor(name).numpy()
    return {"ids": ids, **{key: np.zeros(len(ids), np.uint32) for key in OF_ROWS[1:]}}
