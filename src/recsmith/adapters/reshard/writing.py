"""Writes a checkpoint: the bytes of its chunks, and `.metadata` by PyTorch's own writer (needs torch).

A chunk is copied, gathered from parts of old chunks, averaged, or filled. Numbers are moved as bytes, so they cannot
change on the way; only means are computed, in float64. Memory holds one new chunk of up to IN_MEMORY bytes and one
block of BLOCK bytes for old chunks of any size, because only the needed rows of these are read.
"""

import hashlib
import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
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
from recsmith.adapters.chunk_bytes import BLOCK, Bytes, rows_of, start_of_numbers
from recsmith.adapters.reshard.moves import NewEntry
from recsmith.adapters.reshard.sources import Copy, Filled, Gathered, Item
from recsmith.errors import CorruptFile

IN_MEMORY = 64 * 2**20  # most bytes of a new chunk in memory; a larger one is built in a temporary file of the output
MOST_NUMBERS = 2**16  # most numbers of an entry that is read as a list; TorchRec's list of edges has 1,025


def write_item(item: Item, dtype: str | None, folder: Path, target: BinaryIO) -> None:
    """Append a chunk to a file, as torch.distributed.checkpoint stores it.

    Args:
        item: the chunk.
        dtype: its element type; None for an object.
        folder: the old checkpoint.
        target: the file.

    Raises:
        CorruptFile: an old chunk differs from its metadata.
        OSError: the file cannot be written.
    """
    if isinstance(item.made, Copy):
        for block in _blocks(folder / item.made.chunk.file, item.made.chunk.start, item.made.chunk.length):
            target.write(block)
        return
    tensor = _empty(item.sizes, getattr(torch, dtype or ""), Path(target.name).parent)
    if isinstance(item.made, Gathered):
        (_average if item.made.mean else _gather)(item.made, tensor, folder)
    elif item.made.limit:
        _draw(item.made, tensor)
    else:
        tensor.zero_()
    torch.save(tensor, target)


def _empty(sizes: tuple[int, ...], dtype: torch.dtype, folder: Path) -> torch.Tensor:
    """An uninitialized tensor; a large one is mapped to an unnamed file in the folder, to save memory."""
    size = math.prod(sizes) * dtype.itemsize
    if size <= IN_MEMORY:
        return torch.empty(sizes, dtype=dtype)
    with tempfile.TemporaryFile(dir=folder) as file:  # the memory map keeps the file open
        os.posix_fallocate(file.fileno(), 0, size)
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=dtype).view(sizes)


def read_whole_numbers(entry: Entry, folder: Path) -> list[int]:
    """The numbers of a small int64 entry, such as the edges of an id map; CorruptFile if the entry is no such list."""
    (chunk, *more), count = entry.chunks or (None,), math.prod(entry.sizes)
    if chunk is None or more or entry.dtype != "int64" or chunk.sizes != entry.sizes or count > MOST_NUMBERS:
        raise CorruptFile(f"'{folder}': entry '{entry.key}' is no list of at most {MOST_NUMBERS:,} whole numbers")
    with (folder / chunk.file).open("rb") as file:
        start = start_of_numbers(file, chunk, torch.int64)
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
        for row, block in rows_of(folder, part.chunk, tensor.dtype, part.rows, part.columns):
            top = part.corner[0] + row
            whole[top : top + len(block), left : left + width] = block


def _average(made: Gathered, tensor: torch.Tensor, folder: Path) -> None:
    """Fill a tensor with the mean of the row-wise states of several column pieces, weighted by width."""
    mean = torch.zeros(tensor.numel(), dtype=torch.float64)
    for part in made.parts:
        for row, block in rows_of(folder, part.chunk, tensor.dtype, part.rows, part.columns):
            values = torch.from_numpy(block.copy()).view(tensor.dtype).view(-1)
            top = part.corner[0] + row
            mean[top : top + len(values)] += part.share * values.to(torch.float64)
    tensor.view(-1).copy_(mean)


def _as_bytes(tensor: torch.Tensor) -> Bytes:
    """A view of a tensor's memory as rows of bytes."""
    flat: Any = tensor.view(torch.uint8) if tensor.dim() > 1 else tensor.view(-1, 1).view(torch.uint8)
    return flat.numpy()


def _draw(made: Filled, tensor: torch.Tensor) -> None:
    """Draw the weights of a new table; each depends on the seed, table, row and column, but not on the sharding.

    Philox advances in steps of four numbers, so dimensions must be multiples of four.
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
    """Write the metadata of entries whose chunks (by key and number of the item) are stored in the folder."""
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
