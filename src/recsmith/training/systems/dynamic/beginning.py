"""Raw ids that come along when a run begins with the weights of another one, with their rows (docs/dynamic.md).

In a table of as many rows everything stays where it was. A larger table has other parts: an id of a part of before has
its row in the part that it belongs to now, in the order of before, and the weights of the row go with it.

N rows there, M rows here
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
    """Give this rank's maps the ids of a training; rows there of the rows here (M,), of tables whose rows moved.

    before: checkpoint or exported model, as the system `start_from` opens it (trained.py there). rows: there, of the
    tables that come along.
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
    """Arrays over all rows of a table, and over all places where ids wait."""
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
    """The ids of an exported model, which says nothing of when and how often they were seen."""
    from recsmith.training.job.export import opened_file

    with opened_file(folder / file_of(name)) as opened:
        ids = opened.get_tensor(name).numpy()
    return {"ids": ids, **{key: np.zeros(len(ids), np.uint32) for key in OF_ROWS[1:]}}
