"""Read parts of tensors from a checkpoint: any rectangle of any tensor, for the shards that a rank holds."""

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

AT_ONCE = 2**18  # rows that are read at once, of a table whose rows moved


class Reads:
    """Collects the reads of this rank from a checkpoint's state, and runs them together. folder: of the state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._wanted = dict[str, list[tuple[Shape, torch.Tensor]]]()
        self._moved = list[tuple[torch.Tensor, torch.Tensor, NewInputs]]()

    def add(self, key: str, corner: Shape, target: torch.Tensor) -> None:
        """Fill `target` from the tensor of a key, starting at `corner` of that tensor."""
        self._wanted.setdefault(key, []).append((corner, target))

    def add_moved(self, key: str, shape: Shape, target: torch.Tensor, inputs: NewInputs) -> None:
        """Fill the weights of a layer whose inputs moved. shape: of the saved tensor."""
        whole = torch.empty(shape, dtype=target.dtype)
        self.add(key, (0,) * len(shape), whole)
        self._moved.append((target, whole, inputs))

    def run(self) -> None:
        """Run all reads. Raises CorruptFile if the checkpoint is damaged."""
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
    """Fill rows of a tensor from saved rows with other numbers.

    folder, key: of the saved tensor. corner: of the target in the whole tensor now. there: the saved row for each row
    of the target; -1 for rows that are not changed.
    """
    for first, last, own in stretches(there):
        rows = torch.empty((last - first, *target.shape[1:]), dtype=target.dtype)
        reads = Reads(folder)
        reads.add(key, (first, *corner[1:]), rows)
        reads.run()
        target[torch.from_numpy(own)] = rows[torch.from_numpy(there[own] - first)]


def stretches(there: Ints) -> Iterator[tuple[int, int, Ints]]:
    """(first saved row, end, rows of the target that are among them), for at most AT_ONCE saved rows each."""
    known = np.flatnonzero(there >= 0)
    known = known[np.argsort(there[known], kind="stable")]
    for first in range(0, int(there.max(initial=-1)) + 1, AT_ONCE):
        begin, end = np.searchsorted(there[known], [first, first + AT_ONCE])
        if end > begin:
            own = known[begin:end]
            yield int(there[own[0]]), int(there[own[-1]]) + 1, own


class _Rectangles(PlainObjects):
    """Plans reads of rectangles, which may be smaller than their tensor."""

    def __init__(self, wanted: dict[str, list[tuple[Shape, torch.Tensor]]]) -> None:
        super().__init__()
        self.wanted = wanted

    def create_local_plan(self) -> LoadPlan:
        """One read for each overlap of a rectangle and a saved chunk."""
        items: list[Any] = []
        for key, held in self.wanted.items():
            chunks = [ChunkStorageMetadata(torch.Size(corner), target.size()) for corner, target in held]
            entry: Any = self.metadata and self.metadata.state_dict_metadata[key]
            assert isinstance(entry, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(key, entry, chunks)
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The rectangle that begins at an index."""
        return next(target for corner, target in self.wanted[index.fqn] if torch.Size(corner) == index.offset)


def put(target: torch.Tensor, before: torch.Tensor, inputs: NewInputs) -> None:
    """Put the weights of a layer's former inputs at their positions now, and zeros at new inputs."""
    here: list[Any] = [slice(None)] * target.dim()
    for dimension, places, places_there in inputs.moves:
        before = before.index_select(dimension, torch.tensor(places_there))
        here[dimension] = torch.tensor(places)
    target.zero_()
    target[tuple(_crossed(here))] = before.to(target)


def _crossed(places: list[Any]) -> list[Any]:
    """Reshape the positions of several dimensions so that indexing combines each with all others."""
    listed = [at for at, each in enumerate(places) if not isinstance(each, slice)]
    return [each if isinstance(each, slice) else each.view([-1 if at == own else 1 for own in listed])
            for at, each in enumerate(places)]  # fmt: skip
