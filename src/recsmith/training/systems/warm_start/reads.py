"""Parts of tensors read from a checkpoint: any rectangle of any tensor, of which a rank names those that it holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load

from recsmith._types import Ints
from recsmith.adapters.chunk_bytes import RowReader
from recsmith.errors import CorruptFile
from recsmith.training.stores.checkpoint import PlainObjects, first_cause
from recsmith.training.systems.warm_start.matching import NewInputs, Shape

AT_ONCE = 2**18  # rows that are read at once, of a table whose rows stand elsewhere


class Reads:
    """What this rank reads of a checkpoint's state, all at once. folder: of the state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._wanted = dict[str, list[tuple[Shape, torch.Tensor]]]()
        self._moved = list[tuple[torch.Tensor, torch.Tensor, NewInputs]]()

    def add(self, key: str, corner: Shape, target: torch.Tensor) -> None:
        """Fill a tensor with the numbers of another one, from a corner of that on."""
        self._wanted.setdefault(key, []).append((corner, target))

    def add_moved(self, key: str, shape: Shape, target: torch.Tensor, inputs: NewInputs) -> None:
        """Fill the weights of a layer whose inputs stand elsewhere. shape: of what is there."""
        whole = torch.empty(shape, dtype=target.dtype)
        self.add(key, (0,) * len(shape), whole)
        self._moved.append((target, whole, inputs))

    def run(self) -> None:
        """Read; CorruptFile where the checkpoint is damaged."""
        try:
            first: dict[str, Any] = {key: held[0][1] for key, held in self._wanted.items()}
            load(first, storage_reader=RowReader(self.folder), planner=_Rectangles(self._wanted), no_dist=True)
        except (CheckpointException, RuntimeError, OSError, ValueError, EOFError) as error:
            raise CorruptFile(
                f"checkpoint '{self.folder.parent}' is damaged: {first_cause(error)}; begin with another one"
            ) from None
        for target, whole, inputs in self._moved:
            put(target, whole, inputs)


def read_rows(folder: Path, key: str, corner: Shape, target: torch.Tensor, there: Ints) -> None:
    """Fill rows of a tensor with rows of another one that stand elsewhere there.

    folder, key: of the other one. corner: of the target in the whole tensor here. there: rows there of the target's
    rows; -1 of those that stay.
    """
    for first, last, own in stretches(there):
        rows = torch.empty((last - first, *target.shape[1:]), dtype=target.dtype)
        reads = Reads(folder)
        reads.add(key, (first, *corner[1:]), rows)
        reads.run()
        target[torch.from_numpy(own)] = rows[torch.from_numpy(there[own] - first)]


def stretches(there: Ints) -> Iterator[tuple[int, int, Ints]]:
    """(first row there, end, rows here whose rows are among these), of AT_ONCE rows there at most."""
    known = np.flatnonzero(there >= 0)
    known = known[np.argsort(there[known], kind="stable")]
    for first in range(0, int(there.max(initial=-1)) + 1, AT_ONCE):
        begin, end = np.searchsorted(there[known], [first, first + AT_ONCE])
        if end > begin:
            own = known[begin:end]
            yield int(there[own[0]]), int(there[own[-1]]) + 1, own


class _Rectangles(PlainObjects):
    """Plans reads of rectangles, which may be smaller than the tensor that they lie in."""

    def __init__(self, wanted: dict[str, list[tuple[Shape, torch.Tensor]]]) -> None:
        super().__init__()
        self.wanted = wanted

    def create_local_plan(self) -> LoadPlan:
        """A read for each overlap of a rectangle and a chunk that was saved."""
        items: list[Any] = []
        for key, held in self.wanted.items():
            chunks = [ChunkStorageMetadata(torch.Size(corner), target.size()) for corner, target in held]
            entry: Any = self.metadata and self.metadata.state_dict_metadata[key]
            assert isinstance(entry, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(key, entry, chunks)
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The rectangle that begins there."""
        return next(target for corner, target in self.wanted[index.fqn] if torch.Size(corner) == index.offset)


def put(target: torch.Tensor, before: torch.Tensor, inputs: NewInputs) -> None:
    """Numbers of the inputs that a layer had before, at their places now, and zeros for new ones."""
    here: list[Any] = [slice(None)] * target.dim()
    for dimension, places, places_there in inputs.moves:
        before = before.index_select(dimension, torch.tensor(places_there))
        here[dimension] = torch.tensor(places)
    target.zero_()
    target[tuple(_crossed(here))] = before.to(target)


def _crossed(places: list[Any]) -> list[Any]:
    """Places of several dimensions, each combined with all of the others, as indexing wants them."""
    listed = [at for at, each in enumerate(places) if not isinstance(each, slice)]
    return [each if isinstance(each, slice) else each.view([-1 if at == own else 1 for own in listed])
            for at, each in enumerate(places)]  # fmt: skip
