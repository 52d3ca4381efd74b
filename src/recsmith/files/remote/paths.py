"""An address with the questions that readers of data ask a path: what lies there, how large it is, its bytes."""

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

BUFFER = 2**20  # bytes that one request brings of a file that is read little by little
Answer = TypeVar("Answer")


@record
class StoredFile:
    """What a store says of an object, by the names that `os.stat_result` has."""

    st_size: int
    st_mtime_ns: int


class RemotePath:
    """A file or a folder in a store; a folder is what keys begin with."""

    def __init__(self, address: Address, found: StoredFile | None = None) -> None:
        self.address, self._found, self._listed = address, found, found is not None
        self._file: Any = None
        self._pure = PurePosixPath(address.key)

    def __str__(self) -> str:
        return str(self.address)

    def __repr__(self) -> str:
        return f"RemotePath('{self}')"

    def __truediv__(self, name: str) -> "RemotePath":
        """What lies in a folder; an address stays as it is."""
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
        """The ending of the name."""
        return self._pure.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the key."""
        return self._pure.parts

    @property
    def parent(self) -> "RemotePath":
        """The folder around it."""
        return RemotePath(address_of(str(self).rpartition("/")[0] if self.parts else str(self)))

    def relative_to(self, folder: "RemotePath") -> PurePosixPath:
        """The key within a folder."""
        return self._pure.relative_to(folder._pure)

    def is_file(self) -> bool:
        """Whether an object is there."""
        return self._found is not None or self._info().is_file

    def is_dir(self) -> bool:
        """Whether keys begin with it."""
        return self._found is None and self._info().type.name == "Directory"

    def exists(self) -> bool:
        """Whether an object is there, or keys begin with it."""
        return self._found is not None or self._info().type.name != "NotFound"

    def stat(self) -> StoredFile:
        """Size and time of change of the object, as the store says twice; UsageError where there is none."""
        if self._found is None:

            def ask() -> StoredFile:
                """The same answer twice: one that was cut off in its head seems to be of an empty object."""
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
        """The objects and folders in a folder."""
        return self._inside(recursive=False, pattern="*")

    def rglob(self, pattern: str) -> Iterator["RemotePath"]:
        """The objects in a folder, and in folders in it, whose names fit a pattern."""
        return self._inside(recursive=True, pattern=pattern)

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """The objects in a folder whose names fit a pattern."""
        return self._inside(recursive=False, pattern=pattern)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The object to read; bytes that a cut connection does not bring are asked for again."""
        del mode
        return cast(IO[bytes], io.BufferedReader(_RangedFile(self), BUFFER))

    def reading(self, operation: Callable[[Any], Answer]) -> Answer:
        """What an operation makes of the object, opened by pyarrow; done again where connections are cut off."""

        def attempt() -> Answer:
            file = self._file = self._file or self._opened()  # which holds no connection, and may be shared
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
        """So many bytes of the object, from one on."""
        return self.reading(lambda file: _exactly(file, first, size))

    def write_bytes(self, data: bytes) -> None:
        """Put a whole object, or leave what is there: a store shows no half object."""

        def attempt() -> None:
            with client(self.address).open_output_stream(self.address.inner) as file:
                file.write(data)

        tried(self.address, "write", attempt)
        self._found = self._file = None

    def unlink(self) -> None:
        """Remove the object; one that is not there is no error."""

        def attempt() -> None:
            try:
                client(self.address).delete_file(self.address.inner)
            except FileNotFoundError:
                return

        tried(self.address, "remove", attempt)

    def _opened(self) -> Any:
        """The object, opened by pyarrow, whose size is the one that is known."""
        file = client(self.address).open_input_file(self.address.inner)
        if file.size() != (told := self.stat().st_size):
            if not self._listed:
                self._found = None
            raise CutAnswer(f"it has {told} bytes by one answer, and {file.size()} by another")
        return file

    def _is_listed_empty(self) -> bool:
        """Whether a list, whose text is whole or refused, says that the object is empty, too."""
        return any(str(each) == str(self) and not each.stat().st_size for each in self.parent.iterdir())

    def _info(self) -> Any:
        """What a store says of the key; that there is nothing it has to say twice."""

        def ask() -> Any:
            return client(self.address).get_file_info(self.address.inner)

        found = tried(self.address, "read", ask)
        return tried(self.address, "read", ask) if found.type.name == "NotFound" else found

    def _inside(self, *, recursive: bool, pattern: str) -> Iterator["RemotePath"]:
        fs: Any = import_module("pyarrow.fs")
        selector = fs.FileSelector(self.address.inner, allow_not_found=True, recursive=recursive)

        def ask() -> list[Any]:
            """The same list twice: a page that was cut off in its head seems to be the last one."""
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
    """The bytes of an object from any place, each read a request of its own."""

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
    """The path of an address; UsageError where it is none."""
    return RemotePath(address_of(text))
