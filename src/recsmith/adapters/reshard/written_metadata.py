"""Writes the `.metadata` of a checkpoint by PyTorch's own writer, which decides its form (needs torch)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

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

from recsmith.adapters.reshard.moves import NewEntry
from recsmith.adapters.reshard.stored import Chunk


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
