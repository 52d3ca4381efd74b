"""Writes a checkpoint: the bytes of its chunks, and `.metadata` by PyTorch's own writer (needs torch).

A chunk is copied, gathered from parts of old chunks, averaged, or filled. Numbers are moved as bytes, so they cannot
change on the way; only means are computed, in float64. Memory holds one new chunk and a block of BLOCK bytes, whatever
the size of the old ones: of these only the rows that are needed are read.
"""

import hashlib
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult

from recsmith.adapters.checkpoints import Chunk, Entry
from recsmith.adapters.reshard.moves import NewEntry
from recsmith.adapters.reshard.sources import ChunkPart, Copy, Filled, Gathered, Item
from recsmith.errors import CorruptFile

MOST_NUMBERS = 2**16  # of an entry that is read to be looked at; TorchRec's edges are 1,025
BLOCK = 16 * 2**20  # bytes read at once: larger takes memory, smaller takes more calls
Bytes = npt.NDArray[np.uint8]


def write_item(item: Item, dtype: str | None, folder: Path, target: BinaryIO) -> None:
    """Append a chunk to a file, as torch.distributed.checkpoint stores it. folder: of the old checkpoint.

    Raises:
        CorruptFile: an old chunk is not what the metadata says.
        OSError: the file cannot be written.
    """
    if isinstance(item.made, Copy):
        for block in _blocks(folder / item.made.chunk.file, item.made.chunk.start, item.made.chunk.length):
            target.write(block)
        return
    tensor = torch.empty(item.sizes, dtype=getattr(torch, dtype or ""))
    if isinstance(item.made, Gathered):
        (_average if item.made.mean else _gather)(item.made, tensor, folder)
    elif item.made.limit:
        _draw(item.made, tensor)
    else:
        tensor.zero_()
    torch.save(tensor, target)


def read_whole_numbers(entry: Entry, folder: Path) -> list[int]:
    """The numbers of a small entry of int64, such as the edges of a table's ids; CorruptFile where it is none."""
    (chunk, *more), count = entry.chunks or (None,), math.prod(entry.sizes)
    if chunk is None or more or entry.dtype != "int64" or chunk.sizes != entry.sizes or count > MOST_NUMBERS:
        raise CorruptFile(f"'{folder}': entry '{entry.key}' is no list of at most {MOST_NUMBERS:,} whole numbers")
    with (folder / chunk.file).open("rb") as file:
        start = _start_of_numbers(file, chunk, "torch.int64", 8)
        data = os.pread(file.fileno(), 8 * count, start)
    return np.frombuffer(data, np.int64).tolist()


def _blocks(path: Path, start: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        for begin in range(start, start + length, BLOCK):
            wanted = min(BLOCK, start + length - begin)
            block = os.pread(file.fileno(), wanted, begin)
            if len(block) != wanted:
                raise CorruptFile(f"'{path}' became shorter while it was read; copy the checkpoint again")
            yield block


def _gather(made: Gathered, tensor: torch.Tensor, folder: Path) -> None:
    whole = _as_bytes(tensor)
    step = tensor.element_size()
    for part in made.parts:
        width = (part.columns[1] - part.columns[0]) * step
        left = part.corner[1] * step
        for row, block in _rows(part, folder, str(tensor.dtype), step):
            top = part.corner[0] + row
            whole[top : top + len(block), left : left + width] = block


def _average(made: Gathered, tensor: torch.Tensor, folder: Path) -> None:
    """The mean of row-wise state of several column pieces, weighted by width."""
    mean = torch.zeros(tensor.numel(), dtype=torch.float64)
    for part in made.parts:
        for row, block in _rows(part, folder, str(tensor.dtype), tensor.element_size()):
            values = torch.from_numpy(block.copy()).view(tensor.dtype).view(-1)
            top = part.corner[0] + row
            mean[top : top + len(values)] += part.share * values.to(torch.float64)
    tensor.view(-1).copy_(mean)


def _as_bytes(tensor: torch.Tensor) -> Bytes:
    """A tensor's memory as rows of bytes."""
    flat: Any = tensor.view(torch.uint8) if tensor.dim() > 1 else tensor.view(-1, 1).view(torch.uint8)
    return flat.numpy()


def _rows(part: ChunkPart, folder: Path, dtype: str, step: int) -> Iterator[tuple[int, Bytes]]:
    """(first row within the part, bytes of some rows' columns), block by block."""
    width = (part.chunk.sizes[1] if len(part.chunk.sizes) == 2 else 1) * step
    path = folder / part.chunk.file
    with path.open("rb") as file:
        start = _start_of_numbers(file, part.chunk, dtype, step)
        many = max(1, BLOCK // width)
        for top in range(part.rows[0], part.rows[1], many):
            count = min(many, part.rows[1] - top)
            data = os.pread(file.fileno(), count * width, start + top * width)
            if len(data) != count * width:
                raise CorruptFile(f"'{path}' became shorter while it was read; copy the checkpoint again")
            rows = np.frombuffer(data, np.uint8).reshape(count, width)
            yield top - part.rows[0], rows[:, part.columns[0] * step : part.columns[1] * step]


def _start_of_numbers(file: BinaryIO, chunk: Chunk, dtype: str, step: int) -> int:
    """Where in a file the numbers of a chunk begin, after the head of its archive; nothing but the head is read."""
    try:
        found = torch.load(cast(Any, _Window(file, chunk)), map_location="meta", weights_only=True)
    except Exception as error:  # whatever torch.load raises of damaged bytes
        raise CorruptFile(f"'{file.name}': no tensor at {chunk.start:,}: {str(error).splitlines()[0][:200]}") from None
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != chunk.sizes or str(found.dtype) != dtype:
        raise CorruptFile(f"'{file.name}': the tensor at {chunk.start:,} is not the one that the metadata names")
    if not found.is_contiguous():
        raise CorruptFile(f"'{file.name}': the tensor at {chunk.start:,} was saved with strides; save it contiguous")
    storage: Any = found.untyped_storage()
    start = chunk.start + storage._checkpoint_offset + found.storage_offset() * step
    if start + math.prod(chunk.sizes) * step > chunk.start + chunk.length:
        raise CorruptFile(f"'{file.name}': the tensor at {chunk.start:,} is cut short; copy the checkpoint again")
    return start


class _Window(io.RawIOBase):
    """The bytes of one chunk, as a file of their own."""

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


def _draw(made: Filled, tensor: torch.Tensor) -> None:
    """Numbers of a new table: each depends on the seed, the table, its row and its column, not on how it is sharded.

    Philox counts in steps of four numbers, which divide a row: dimensions are multiples of four.
    """
    key = int.from_bytes(hashlib.sha256(f"{made.seed}/{made.table}".encode()).digest()[:16], "little")
    (first, last), (left, right) = made.block.rows, made.block.columns
    many = max(1, BLOCK // (8 * made.dim))
    for top in range(first, last, many):
        count = min(many, last - top)
        bits = np.random.Philox(key=key)
        bits.advance(top * made.dim // 4)
        unit = (bits.random_raw(count * made.dim) >> np.uint64(11)) * 2.0**-53  # in [0, 1)
        values = (2 * unit.reshape(count, made.dim)[:, left:right] - 1) * made.limit
        tensor[top - first : top - first + count] = torch.from_numpy(values)


def write_metadata(folder: Path, entries: Sequence[NewEntry], chunks: Mapping[tuple[str, int], Chunk]) -> None:
    """Write the metadata of entries whose chunks (by key and number of the item) lie in the folder."""
    tensors: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    results: list[WriteResult] = []
    for entry in entries:
        tensors[entry.key] = _described(entry)
        for number, item in enumerate(entry.items):
            chunk = chunks[entry.key, number]
            offset = None if entry.dtype is None else item.offsets
            results.append(
                WriteResult(
                    index=MetadataIndex(entry.key, offset, None if offset is None else number),
                    size_in_bytes=chunk.length,
                    storage_data=_StorageInfo(chunk.file, chunk.start, chunk.length),
                )
            )
    paths = {entry.key: entry.path for entry in entries}
    FileSystemWriter(folder).finish(Metadata(state_dict_metadata=tensors, planner_data=paths), [results])


def _described(entry: NewEntry) -> TensorStorageMetadata | BytesStorageMetadata:
    if entry.dtype is None:
        return BytesStorageMetadata()
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=getattr(torch, entry.dtype)),
        size=torch.Size(entry.sizes),
        chunks=[ChunkStorageMetadata(torch.Size(item.offsets), torch.Size(item.sizes)) for item in entry.items],
    )
