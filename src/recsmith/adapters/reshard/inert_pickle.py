"""Reads the `.metadata` of a checkpoint, which PyTorch writes as a pickle, without running anything that it names.

A pickle names classes and functions for the reader to call. Here each name that PyTorch writes stands for something
inert, which keeps what it was called with and does nothing; any other name is refused. So a hostile file can waste
time, and no more. docs/decisions/0017-resharding.md says why there is no other way.
"""

import io
import pickle
from typing import Any

from recsmith.errors import CorruptFile
from recsmith.files import read_bytes

_DCP = "torch.distributed.checkpoint"
DTYPES = {  # element types by their names: bytes
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8,
    "complex128": 16, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "bool": 1,
}  # fmt: skip


class Inert:
    """An object of a pickle: the state that it was saved with, as plain data."""

    state: Any = None

    def __init__(self, *words: object) -> None:
        """Keep nothing: what is needed comes with the state."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def get(self, name: str) -> Any:
        """A field of the state; None where there is none."""
        return self.state.get(name) if isinstance(self.state, dict) else None


class MetadataObject(Inert):
    """Metadata: the whole checkpoint."""


class TensorObject(Inert):
    """TensorStorageMetadata: an entry that is a tensor."""


class BytesObject(Inert):
    """BytesStorageMetadata: an entry that is any other object."""


def _size(items: object = ()) -> tuple[object, ...]:
    return tuple(items) if isinstance(items, list | tuple) else ()


def _text(*words: object) -> str:
    return "/".join(map(str, words))


NAMES: dict[tuple[str, str], Any] = {
    (f"{_DCP}.metadata", "Metadata"): MetadataObject,
    (f"{_DCP}.metadata", "TensorStorageMetadata"): TensorObject,
    (f"{_DCP}.metadata", "BytesStorageMetadata"): BytesObject,
    **{(f"{_DCP}.metadata", name): Inert for name in ("ChunkStorageMetadata", "TensorProperties", "MetadataIndex")},
    **{(f"{_DCP}.metadata", name): Inert for name in ("StorageMeta", "_MEM_FORMAT_ENCODING")},
    (f"{_DCP}.filesystem", "_StorageInfo"): Inert,
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _text,
    ("pathlib", "PosixPath"): _text,
    ("pathlib", "PurePosixPath"): _text,
    ("pathlib._local", "PosixPath"): _text,  # as Python 3.13 writes it
    ("collections", "OrderedDict"): dict,
    **{("torch", name): name for name in DTYPES},
}


class _InertUnpickler(pickle._Unpickler):
    """Python's own unpickler: the one in C, three times as fast, takes 64 GiB for one damaged number (LONG_BINPUT)."""

    def find_class(self, module: str, name: str, /) -> Any:
        found = NAMES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint of PyTorch does")
        return found


def read_metadata(path: str) -> MetadataObject:
    """What a `.metadata` file says; CorruptFile where it is damaged or names anything that PyTorch does not write."""
    data = bytes(read_bytes(path))
    try:
        found = _InertUnpickler(io.BytesIO(data)).load()
    except MemoryError:
        raise CorruptFile(f"'{path}' does not fit into memory") from None
    except Exception as error:  # a damaged pickle raises whatever its operations raise
        raise CorruptFile(f"'{path}' is not the metadata of a checkpoint: {error or 'it ends early'}") from None
    if not isinstance(found, MetadataObject):
        raise CorruptFile(f"'{path}' is not the metadata of a checkpoint: it holds something else")
    return found
