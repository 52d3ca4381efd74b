"""Reads the contents of a torch.distributed.checkpoint folder without running any code that it names (no torch).

PyTorch writes `.metadata` as a pickle, which names classes and functions for the reader to call. Here each name that
PyTorch writes is mapped to a plain object, which keeps the state that it was saved with and does nothing; any other
name is refused. So a hostile file can waste time, but do no harm. docs/decisions/0017-resharding.md says why the pickle
must be read.
"""

import hashlib
import io
import os
import pickle
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from recsmith._types import record
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import is_regular_file, read_bytes

_DCP = "torch.distributed.checkpoint"
DTYPES = {  # bytes per element, by the name of the element type
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8,
    "complex128": 16, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "bool": 1,
}  # fmt: skip


class PlainObject:
    """An object of a pickle, reduced to the state that it was saved with, as plain data."""

    state: Any = None

    def __init__(self, *arguments: object) -> None:
        """Ignore the arguments: all that is needed is in the state."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def get(self, name: str) -> Any:
        """A field of the state; None if the state lacks it."""
        return self.state.get(name) if isinstance(self.state, dict) else None


class MetadataObject(PlainObject):
    """Stands for PyTorch's Metadata: the whole checkpoint."""


class TensorObject(PlainObject):
    """Stands for TensorStorageMetadata: an entry that is a tensor."""


class BytesObject(PlainObject):
    """Stands for BytesStorageMetadata: an entry that is any other object."""


def _torch_size(items: object = ()) -> tuple[object, ...]:
    return tuple(items) if isinstance(items, list | tuple) else ()


def _joined(*parts: object) -> str:
    return "/".join(map(str, parts))


class MemoryFormat(PlainObject):
    """Stands for a tensor's memory format, which is not used."""


MEMORY_FORMATS = ("TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST", "TORCH_PRESERVE_FORMAT")


def _memory_format(kind: object = None, name: object = None) -> MemoryFormat:
    """getattr(kind, name) for memory formats only: Python 3.11.0 to 3.11.3 pickle members of enumerations so."""
    if kind is not MemoryFormat or name not in MEMORY_FORMATS:
        raise pickle.UnpicklingError("it names an attribute, which no checkpoint of PyTorch does but of memory formats")
    return MemoryFormat()


_PLAIN = ("ChunkStorageMetadata", "TensorProperties", "MetadataIndex", "StorageMeta")
NAMES: dict[tuple[str, str], Any] = {  # (module, name) that PyTorch writes: what is called in its place
    (f"{_DCP}.metadata", "Metadata"): MetadataObject,
    (f"{_DCP}.metadata", "TensorStorageMetadata"): TensorObject,
    (f"{_DCP}.metadata", "BytesStorageMetadata"): BytesObject,
    **{(f"{_DCP}.metadata", name): PlainObject for name in _PLAIN},
    (f"{_DCP}.filesystem", "_StorageInfo"): PlainObject,
    ("torch", "Size"): _torch_size,
    ("torch.serialization", "_get_layout"): _joined,
    ("pathlib", "PosixPath"): _joined,
    ("pathlib", "PurePosixPath"): _joined,
    ("pathlib._local", "PosixPath"): _joined,  # as Python 3.13 writes it
    ("collections", "OrderedDict"): dict,
    (f"{_DCP}.metadata", "_MEM_FORMAT_ENCODING"): MemoryFormat,
    ("builtins", "getattr"): _memory_format,
    **{("torch", name): name for name in DTYPES},
}


class _RestrictedUnpickler(pickle._Unpickler):
    """Resolves NAMES only. It is the Python unpickler: the C one takes 64 GiB for a damaged LONG_BINPUT index."""

    def find_class(self, module: str, name: str, /) -> Any:
        found = NAMES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint of PyTorch does")
        return found


def read_metadata(path: str) -> MetadataObject:
    """The contents of a `.metadata` file; CorruptFile if it is damaged or names what PyTorch does not write."""
    data = bytes(read_bytes(path))
    try:
        found = _RestrictedUnpickler(io.BytesIO(data)).load()
    except MemoryError:
        raise CorruptFile(f"'{path}' does not fit into memory") from None
    except Exception as error:  # a damaged pickle can raise any error of its operations
        raise CorruptFile(f"'{path}' is not the metadata of a checkpoint: {error or 'it ends early'}") from None
    if not isinstance(found, MetadataObject):
        raise CorruptFile(f"'{path}' is not the metadata of a checkpoint: it holds something else")
    return found


METADATA = ".metadata"
ARCHIVE_BEGIN, ARCHIVE_END, END_LENGTH = b"PK\x03\x04", b"PK\x05\x06", 22  # torch.save's zip; bytes of its end


@record
class Chunk:
    """A block of an entry: its offsets and sizes in the entry, and the file and range of bytes that store it.

    Offsets and sizes are () for objects that are no tensors, and for tensors without dimensions.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int


@record
class Entry:
    """A tensor or object of the saved state: its path in nested dictionaries, and dtype (None for an object)."""

    path: tuple[str | int, ...]
    dtype: str | None
    sizes: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    @property
    def key(self) -> str:
        """The name that PyTorch gives the entry: the parts of its path joined by dots."""
        return ".".join(map(str, self.path))


@record
class Checkpoint:
    """A checkpoint: its folder, its entries by key, and the SHA-256 of its metadata."""

    folder: Path
    entries: dict[str, Entry]
    digest: str


def check_metadata(folder: Path) -> None:
    """Refuse a checkpoint whose `.metadata` names anything that PyTorch does not write.

    Call it before PyTorch reads the folder (`FileSystemReader`, `dcp.load`): PyTorch's reader runs whatever a
    `.metadata` names. `read_checkpoint` lists the contents of the folder without PyTorch.

    Raises:
        UsageError: there is no checkpoint, or no complete one.
        CorruptFile: the metadata is damaged, or names something that PyTorch does not write.
    """
    read_metadata(str(_metadata_of(folder)))


def _metadata_of(folder: Path) -> Path:
    """The path of a folder's `.metadata`, which is written last; UsageError if it is missing."""
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is no folder; give one that torch.distributed.checkpoint wrote")
    metadata = folder / METADATA
    if not metadata.is_file():
        raise UsageError(f"'{folder}' holds no complete checkpoint: it has no {METADATA}, which is written last")
    return metadata


def read_checkpoint(folder: Path) -> Checkpoint:
    """The entries of a checkpoint; every chunk is checked to be completely inside a file of the folder.

    Raises:
        UsageError: there is no checkpoint, or no complete one.
        CorruptFile: the metadata or a file is damaged, cut short or in another format.
    """
    metadata = _metadata_of(folder)
    found = read_metadata(str(metadata))
    tensors, paths, storage = (found.get(name) for name in ("state_dict_metadata", "planner_data", "storage_data"))
    if not isinstance(tensors, dict) or not isinstance(storage, dict):
        raise CorruptFile(f"'{metadata}' is not the metadata of a checkpoint: it lists no entries")
    if not isinstance(paths, dict):
        raise CorruptFile(f"'{metadata}' names no paths of entries; save with torch's default planner")
    places = _Places(folder, storage)
    entries = {key: _entry(str(metadata), key, value, paths.get(key), places) for key, value in tensors.items()}
    return Checkpoint(folder=folder, entries=entries, digest=hashlib.sha256(metadata.read_bytes()).hexdigest())


def _entry(source: str, key: Any, value: Any, path: Any, places: "_Places") -> Entry:
    named = isinstance(key, str) and isinstance(path, tuple) and path and all(isinstance(p, str | int) for p in path)
    if not named:
        raise CorruptFile(f"'{source}': entry {str(key)[:100]!r} has no path; save with torch's default planner")
    if isinstance(value, BytesObject):
        return Entry(path=path, dtype=None, sizes=(), chunks=(places.chunk(key, None, ()),))
    if not isinstance(value, TensorObject):
        raise CorruptFile(f"'{source}': entry '{key}' is neither a tensor nor an object")
    properties, sizes, chunks = value.get("properties"), value.get("size"), value.get("chunks")
    state = properties.state if isinstance(properties, PlainObject) else None
    dtype = state[0] if isinstance(state, tuple) and state else None
    if not isinstance(dtype, str) or dtype not in DTYPES or not _whole(sizes) or not isinstance(chunks, list):
        raise CorruptFile(f"'{source}': entry '{key}' has no element type, sizes or chunks that can be read")
    made = tuple(_chunk(source, key, sizes, chunk, places) for chunk in chunks)
    return Entry(path=path, dtype=dtype, sizes=sizes, chunks=made)


def _chunk(source: str, key: str, whole: tuple[int, ...], chunk: Any, places: "_Places") -> Chunk:
    offsets, sizes = (chunk.get("offsets"), chunk.get("sizes")) if isinstance(chunk, PlainObject) else (None, None)
    if (
        not _whole(offsets) or not _whole(sizes) or not len(offsets) == len(sizes) == len(whole)
        or any(offset + size > end for offset, size, end in zip(offsets, sizes, whole, strict=True))
    ):  # fmt: skip
        raise CorruptFile(f"'{source}': entry '{key}' of {list(whole)} has a chunk that does not lie inside of it")
    return places.chunk(key, offsets, sizes)


def _whole(sizes: Any) -> TypeGuard[tuple[int, ...]]:
    return isinstance(sizes, tuple) and all(type(size) is int and 0 <= size < 2**62 for size in sizes)


class _Places:
    """Locates chunks and checks them against the files: none outside of the folder or beyond the end of a file."""

    def __init__(self, folder: Path, storage: dict[Any, Any]) -> None:
        self.folder, self.sizes = folder, dict[str, int]()
        self.places: dict[tuple[str, tuple[int, ...] | None], PlainObject] = {}
        for index, info in storage.items():
            if isinstance(index, PlainObject) and isinstance(info, PlainObject):
                offset = index.get("offset")
                self.places[str(index.get("fqn")), offset if _whole(offset) else None] = info

    def chunk(self, key: str, offsets: tuple[int, ...] | None, sizes: tuple[int, ...]) -> Chunk:
        """The chunk of an entry at these offsets (None: the chunk of an object)."""
        info = self.places.get((key, offsets))
        file = info.get("relative_path") if info else None
        span = (info.get("offset"), info.get("length")) if info else ()
        if info is None or not isinstance(file, str) or not _whole(span):
            raise CorruptFile(f"'{self.folder}': nothing says where the bytes of entry '{key}' lie")
        if info.get("transform_descriptors"):
            raise UsageError(f"'{self.folder}': entry '{key}' was saved through an extension; save it without one")
        chunk = Chunk(offsets=offsets or (), sizes=sizes, file=file, start=span[0], length=span[1])
        if chunk.start + chunk.length > self._size(file):
            raise CorruptFile(
                f"'{self.folder / file}' is cut short: it has {self._size(file):,} bytes, and entry '{key}' lies at "
                f"{chunk.start:,} to {chunk.start + chunk.length:,}; copy the checkpoint again"
            )
        if offsets is not None:
            self._check_archive(chunk, key)
        return chunk

    def _size(self, file: str) -> int:
        if file not in self.sizes:
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts:
                raise CorruptFile(f"'{self.folder}': its metadata names '{file}', which lies outside of the folder")
            if not is_regular_file(self.folder / path):
                raise CorruptFile(f"'{self.folder}' lacks its file '{file[:200]}'; copy the checkpoint again")
            self.sizes[file] = (self.folder / path).stat().st_size
        return self.sizes[file]

    def _check_archive(self, chunk: Chunk, key: str) -> None:
        """Refuse a tensor whose bytes do not begin and end as torch.save writes them."""
        with (self.folder / chunk.file).open("rb") as file:
            begin = os.pread(file.fileno(), len(ARCHIVE_BEGIN), chunk.start)
            end = os.pread(file.fileno(), len(ARCHIVE_END), chunk.start + chunk.length - END_LENGTH)
        if (begin, end) != (ARCHIVE_BEGIN, ARCHIVE_END):
            raise CorruptFile(
                f"'{self.folder / chunk.file}' is damaged, or in another format: no tensor of entry '{key}' lies at "
                f"{chunk.start:,}; copy the checkpoint again, or save it in torch's default format"
            )
