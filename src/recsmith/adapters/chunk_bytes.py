"""Reads the numbers of a checkpoint's chunks some rows at a time, with BLOCK bytes of memory for a chunk of any size.

PyTorch's own reader loads a whole chunk into memory, which is a rank's whole shard of a table.
"""

import io
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from recsmith.adapters.checkpoints import Chunk
from recsmith.errors import CorruptFile

BLOCK = 4 * 2**20  # bytes read at once: a larger block takes more memory, a smaller one more calls
Bytes = npt.NDArray[np.uint8]


def rows_of(
    folder: Path, chunk: Chunk, dtype: torch.dtype, rows: tuple[int, int], columns: tuple[int, int]
) -> Iterator[tuple[int, Bytes]]:
    """Blocks of a chunk: (first row of the block, counted from rows[0]; its bytes, rows x bytes of the columns).

    A chunk of one dimension has one column.

    Raises:
        CorruptFile: the chunk is not what its metadata says.
    """
    step = dtype.itemsize
    width = (chunk.sizes[1] if len(chunk.sizes) == 2 else 1) * step
    path = folder / chunk.file
    with path.open("rb") as file:
        start = start_of_numbers(file, chunk, dtype)
        many = max(1, BLOCK // max(1, width))
        for top in range(*rows, many):
            count = min(many, rows[1] - top)
            data = os.pread(file.fileno(), count * width, start + top * width)
            if len(data) != count * width:
                raise CorruptFile(f"'{path}' became shorter while it was read; copy the checkpoint again")
            found = np.frombuffer(data, np.uint8).reshape(count, width)
            yield top - rows[0], found[:, columns[0] * step : columns[1] * step]


def start_of_numbers(file: BinaryIO, chunk: Chunk, dtype: torch.dtype) -> int:
    """Offset in the file at which a chunk's numbers begin, after its archive header; only the header is read."""
    try:
        found = torch.load(cast(Any, _Window(file, chunk)), map_location="meta", weights_only=True)
    except Exception as error:  # torch.load raises errors of many classes for damaged bytes
        raise CorruptFile(f"'{file.name}': no tensor at {chunk.start:,}: {str(error).splitlines()[0][:200]}") from None
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != chunk.sizes or found.dtype != dtype:
        raise CorruptFile(f"'{file.name}': the tensor at {chunk.start:,} is not the one that the metadata names")
    if not found.is_contiguous():
        raise CorruptFile(f"'{file.name}': the tensor at {chunk.start:,} was saved with strides; save it contiguous")
    storage: Any = found.untyped_storage()
    start = chunk.start + storage._checkpoint_offset + found.storage_offset() * dtype.itemsize
    if start + math.prod(chunk.sizes) * dtype.itemsize > chunk.start + chunk.length:
        raise CorruptFile(f"'{file.name}': the tensor at {chunk.start:,} is cut short; copy the checkpoint again")
    return start


class _Window(io.RawIOBase):
    """The bytes of one chunk as a readable file."""

    def __init__(self, file: BinaryIO, chunk: Chunk) -> None:
        super().__init__()
        self.file, self.start, self.length, self.at = file, chunk.start, chunk.length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.length}[whence]
        self.at = max(0, base + offset)
        return self.at

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self.length - self.at))
        data = os.pread(self.file.fileno(), wanted, self.start + self.at)
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


class RowReader(FileSystemReader):
    """PyTorch's reader of a checkpoint's folder, which copies large tensors some rows at a time."""

    def set_up_storage_reader(self, metadata: Metadata, *arguments: Any, **words: Any) -> None:
        """Keep the metadata of the tensors, too."""
        super().set_up_storage_reader(metadata, *arguments, **words)
        self._tensors = metadata.state_dict_metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the items of a load plan into the planner's tensors."""
        small: list[ReadItem] = []
        for item in plan.items:
            if not self._is_large(item):
                small.append(item)
                continue
            target = planner.resolve_tensor(item).detach()
            self._copy(item, target)
            planner.commit_tensor(item, target)
        return super().read_data(replace(plan, items=small), planner)

    def _is_large(self, item: ReadItem) -> bool:
        if item.type == LoadItemType.BYTE_IO or self.storage_data[item.storage_index].transform_descriptors:
            return False
        chunk, dtype = self._chunk(item.storage_index)
        return len(chunk.sizes) in (1, 2) and math.prod(chunk.sizes) * dtype.itemsize > BLOCK

    def _chunk(self, index: MetadataIndex) -> tuple[Chunk, torch.dtype]:
        """A chunk, with its place in the file, and its element type."""
        entry, place = self._tensors[index.fqn], self.storage_data[index]
        assert isinstance(entry, TensorStorageMetadata)
        sizes = next(tuple(each.sizes) for each in entry.chunks if index.offset in (None, each.offsets))
        offsets = tuple(index.offset or ())
        made = Chunk(offsets=offsets, sizes=sizes, file=place.relative_path, start=place.offset, length=place.length)
        return made, entry.properties.dtype

    def _copy(self, item: ReadItem, target: torch.Tensor) -> None:
        chunk, dtype = self._chunk(item.storage_index)
        (top, *left), (height, *width) = item.storage_offsets, item.lengths
        columns = (left[0], left[0] + width[0]) if left else (0, 1)
        for first, block in rows_of(Path(self.path), chunk, dtype, (top, top + height), columns):
            rows = torch.from_numpy(block.copy()).view(dtype)
            target[first : first + len(block)].copy_(rows if left else rows[:, 0])
