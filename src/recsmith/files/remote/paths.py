"""Paths in a store, with the methods of pathlib that readers of data need: listing, size and bytes."""

import fnmatch
import io
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import PurePosixPath
from typing import IO, Any, TypeVar, cast

from recsmith._types import record
from recsmith.errors import CorruptFile
from recsmith.files.remote.stores import Address, CutAnswer, absent, address_of, client, tried
from recsmith.files.texts import LARGEST_FILE, is_address

BUFFER = 2**20  # bytes per request when a file is read in small pieces
Answer = TypeVar("Answer")


@record
class StoredFile:
    """Size and time of change of an object, with the names of `os.stat_result`."""

    st_size: int
    st_mtime_ns: int


class RemotePath:
    """A file or a folder in a store; a folder is a common prefix of keys."""

    def __init__(self, address: Address, found: StoredFile | None = None) -> None:
        self.address, self._found, self._listed = address, found, found is not None
        self._file: Any = None
        self._pure = PurePosixPath(address.key)

    def __str__(self) -> str:
        return str(self.address)

    def __repr__(self) -> str:
        return f"RemotePath('{self}')"

    def __truediv__(self, name: str) -> "RemotePath":
        """The path of a name in this folder; if the name is an address, the path of that address."""
        return RemotePath(address_of(name if is_address(name) else f"{self}/{name}"))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return self._pure.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the key."""
        return self._pure.parts

    @property
    def parent(self) -> "RemotePath":
        """The folder that contains this path; the bucket's path for the bucket itself."""
        return RemotePath(address_of(str(self).rpartition("/")[0] if self.parts else str(self)))

    def relative_to(self, folder: "RemotePath") -> PurePosixPath:
        """The key within a folder."""
        return self._pure.relative_to(folder._pure)

    def is_file(self) -> bool:
        """Whether there is an object at this key."""
        return self._found is not None or self._info().is_file

    def is_dir(self) -> bool:
        """Whether this key is a prefix of objects' keys."""
        return self._found is None and self._info().type.name == "Directory"

    def exists(self) -> bool:
        """Whether this is an object or a folder."""
        return self._found is not None or self._info().type.name != "NotFound"

    def stat(self) -> StoredFile:
        """Size and time of change of the object, confirmed by a second answer; UsageError if there is no object."""
        if self._found is None:

            def ask() -> StoredFile:
                """Ask twice, because an answer that was cut off in its header looks like that of an empty object."""
                first, second = self._info(), self._info()
                if not first.is_file:
                    raise absent(self.address, "read")
                found = _stored(first)
                if found != _stored(second):
                    raise CutAnswer("its size is another by the next answer")
                if not found.st_size and not self._is_listed_empty():
                    raise CutAnswer("it is empty by two answers, and not by a list")
                return found

            self._found = tried(self.address, "read", ask)
        return self._found

    def iterdir(self) -> Iterator["RemotePath"]:
        """The objects directly in a folder; subfolders are not listed."""
        return self._inside(recursive=False, pattern="*")

    def rglob(self, pattern: str) -> Iterator["RemotePath"]:
        """The objects in a folder and its subfolders whose names match a pattern."""
        return self._inside(recursive=True, pattern=pattern)

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """The objects in a folder whose names match a pattern."""
        return self._inside(recursive=False, pattern=pattern)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The object opened for reading; bytes that are missing after a cut connection are requested again."""
        del mode
        return cast(IO[bytes], io.BufferedReader(_RangedFile(self), BUFFER))

    def reading(self, operation: Callable[[Any], Answer]) -> Answer:
        """The result of an operation on the object, opened by pyarrow; repeated if connections are cut off."""

        def attempt() -> Answer:
            file = self._file = self._file or self._opened()  # it holds no connection, so it can be shared
            try:
                return operation(file)
            except Exception:
                self._file = None
                raise

        return tried(self.address, "read", attempt)

    def read_bytes(self) -> bytes:
        """All bytes of the object, at most 512 MiB."""
        if self.stat().st_size > LARGEST_FILE:
            raise CorruptFile(f"'{self}' is larger than 512 MiB; big workloads are JSON or CSV below that size")
        return self.reading(lambda file: _exactly(file, 0, file.size()))

    def read_range(self, first: int, size: int) -> bytes:
        """The `size` bytes of the object from byte `first` on."""
        return self.reading(lambda file: _exactly(file, first, size))

    def write_bytes(self, data: bytes) -> None:
        """Write an object atomically: a store never shows half an object."""

        def attempt() -> None:
            with client(self.address).open_output_stream(self.address.inner) as file:
                file.write(data)

        tried(self.address, "write", attempt)
        self._found = self._file = None

    def unlink(self) -> None:
        """Remove the object; a missing object is no error."""

        def attempt() -> None:
            try:
                client(self.address).delete_file(self.address.inner)
            except FileNotFoundError:
                return

        tried(self.address, "remove", attempt)

    def _opened(self) -> Any:
        """The object, opened by pyarrow, after checking its size against the known one."""
        file = client(self.address).open_input_file(self.address.inner)
        if file.size() != (stated := self.stat().st_size):
            if not self._listed:
                self._found = None
            raise CutAnswer(f"it has {stated} bytes by one answer, and {file.size()} by another")
        return file

    def _is_listed_empty(self) -> bool:
        """Whether a listing, which cannot be cut off unnoticed, also reports the object as empty."""
        return any(str(each) == str(self) and not each.stat().st_size for each in self.parent.iterdir())

    def _info(self) -> Any:
        """The store's information on the key; an answer that nothing is there must be confirmed by a second one."""

        def ask() -> Any:
            return client(self.address).get_file_info(self.address.inner)

        found = tried(self.address, "read", ask)
        return tried(self.address, "read", ask) if found.type.name == "NotFound" else found

    def _inside(self, *, recursive: bool, pattern: str) -> Iterator["RemotePath"]:
        fs: Any = import_module("pyarrow.fs")
        selector = fs.FileSelector(self.address.inner, allow_not_found=True, recursive=recursive)

        def ask() -> list[Any]:
            """List twice, because a page that was cut off in its header looks like the last one."""
            first, second = (
                sorted(client(self.address).get_file_info(selector), key=lambda info: info.path) for _ in range(2)
            )
            if [each.path for each in first] != [each.path for each in second]:
                raise CutAnswer(f"it lists {len(first)} objects by one answer, and {len(second)} by another")
            return first

        for each in tried(self.address, "read", ask):
            if each.is_file and fnmatch.fnmatchcase(each.base_name, pattern):
                inner = each.path.removeprefix(self.address.inner).strip("/")
                yield RemotePath(address_of(f"{self.address}/{inner}"), _stored(each))


class _RangedFile(io.RawIOBase):
    """An object as a seekable file; each read is a separate request."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self._at, self._size = path, 0, path.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._size - self._at))
        if not wanted:
            return 0
        found = self._path.read_range(self._at, wanted)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def _exactly(file: Any, first: int, size: int) -> bytes:
    found: bytes = file.read_at(size, first)
    if len(found) != size:
        raise CutAnswer(f"{len(found)} bytes of {size}")
    return found


def _stored(info: Any) -> StoredFile:
    return StoredFile(st_size=info.size, st_mtime_ns=info.mtime_ns or 0)


def remote_path(text: str) -> RemotePath:
    """The path of an address; UsageError if the text is no valid address."""
    return RemotePath(address_of(text))
