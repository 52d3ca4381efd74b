"""Memory that is stashed in a file: its bytes are written and its pages freed; later both are restored.

Addresses stay the same, so tensors in this memory remain valid afterwards. The file has no name, and is deleted however
the process ends. It is written and read past the page cache (O_DIRECT) if the file system can do so, since pages of
that cache count against the memory limit that stashing has to meet. Without torch.
"""

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from recsmith._process import give_back_freed
from recsmith.errors import UsageError
from recsmith.training.step_clock import Stopwatch
from recsmith.units import format_size

PAGE = mmap.PAGESIZE
CHUNK = 32 * 2**20  # bytes that are written or read at once, as in TorchRec's stash
LIBC = ctypes.CDLL(None, use_errno=True)


class RestingMemory:
    """Ranges of memory, (address, bytes) each, that are stashed in one file: only the whole pages within them.

    folder: where the file is created.

    Raises:
        UsageError: the folder cannot be written, or its disk has too little room.
    """

    def __init__(self, folder: str, ranges: Sequence[tuple[int, int]]) -> None:
        self._spans = [_pages(*each) for each in ranges]
        self._begins = [sum(size for _, size in self._spans[:i]) for i in range(len(self._spans))]
        self.bytes = sum(size for _, size in self._spans)
        self._direct = True
        self.written, self.read = Stopwatch(), Stopwatch()
        self._file = self._opened(folder)
        self.away = False

    def leave(self) -> None:
        """Write the ranges to the file and free their pages. Nothing may use them until `come_back`.

        Each chunk's pages are freed once it is written, and all of them before this returns, so the next allocation can
        use them.
        """
        if self.away or not self.bytes:
            return
        self.away = True
        with self.written:
            self._write()

    def _write(self) -> None:
        for (address, size), begin in zip(self._spans, self._begins, strict=True):
            for first in range(0, size, CHUNK):
                part = min(CHUNK, size - first)
                _whole(os.pwritev(self._file, [_view(address + first, part)], begin + first), part, "written")
                if LIBC.madvise(ctypes.c_void_p(address + first), ctypes.c_size_t(part), mmap.MADV_DONTNEED):
                    raise OSError(ctypes.get_errno(), "madvise")
        if not self._direct:
            os.fdatasync(self._file)
            self._forget()

    def come_back(self) -> None:
        """Restore the ranges from the file, after memory that was freed meanwhile is returned to the system."""
        if not self.away:
            return
        give_back_freed()
        with self.read:
            self._read()
        self.away = False
        self._forget()

    def _read(self) -> None:
        for (address, size), begin in zip(self._spans, self._begins, strict=True):
            for first in range(0, size, CHUNK):
                part = min(CHUNK, size - first)
                _whole(os.preadv(self._file, [_view(address + first, part)], begin + first), part, "read")

    def _forget(self) -> None:
        """Drop the file from the system's page cache."""
        if not self._direct:
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def _opened(self, folder: str) -> int:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            file = self._without_name(folder)
            os.posix_fallocate(file, 0, max(self.bytes, 1))
        except OSError as error:
            raise UsageError(
                f"rows.folder '{folder}' cannot hold {format_size(self.bytes)} of tables that rest: "
                f"{error.strerror or error}; name a folder on a disk with more room"
            ) from None
        return file

    def _without_name(self, folder: str) -> int:
        flags = os.O_TMPFILE | os.O_RDWR
        try:
            return os.open(folder, flags | os.O_DIRECT, 0o600)
        except OSError:  # no O_DIRECT, as on tmpfs
            self._direct = False
            return os.open(folder, flags, 0o600)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


def _pages(address: int, size: int) -> tuple[int, int]:
    """(address, bytes) of the whole pages within a range."""
    first = -(-address // PAGE) * PAGE
    return first, max(0, (address + size) // PAGE * PAGE - first)


def _view(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _whole(done: int, asked: int, what: str) -> None:
    if done != asked:
        raise OSError(f"{done:,} of {asked:,} bytes of tables that rest were {what}")
