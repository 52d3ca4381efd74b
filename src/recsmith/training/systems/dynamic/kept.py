"""The ids of a job's rows in checkpoints and exported models, by parts of tables, independent of the ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from recsmith.training.systems.dynamic.maps import file_of
from recsmith.training.systems.dynamic.tables import maps_in


def tensors_of(model: nn.Module) -> dict[str, Any]:
    """The tensors of a checkpoint, to save or to load into, by 'table.part.array', on the rank of the part."""
    return {
        f"{name}.{key}": torch.from_numpy(array.view(np.int32) if array.dtype == np.uint32 else array)
        for maps in maps_in(model)
        for name, table in maps.tables.items()
        for key, array in table.state().items()
    }


def loaded(model: nn.Module) -> None:
    """Rebuild the maps after ids were loaded into `tensors_of`."""
    for maps in maps_in(model):
        for table in maps.tables.values():
            table.made()


def write_ids(model: nn.Module, folder: Path) -> None:
    """Write the id of each row of each table (rows,) into a file for the table; called on every rank.

    Rows without an id have -1; row 0, for unknown ids, has -2.
    """
    from recsmith.training.job.export import arrays_of, make_tensor_file
    from recsmith.training.stores.protocol import WholeTensor

    tables = {name: table for maps in maps_in(model) for name, table in maps.tables.items()}
    if dist.get_rank() == 0:
        for name, table in tables.items():
            make_tensor_file(folder / file_of(name), {name: WholeTensor(torch.int64, (table.rows,))})
    dist.barrier()
    for name, table in tables.items():
        whole = arrays_of(folder / file_of(name))[name]
        for first, ids in table.id_of_rows():
            whole[first : first + len(ids)] = ids
