"""Measures how fast a folder's disk reads random rows and large blocks, bypassing the operating system's page cache.

A scratch file is written once, and read with O_DIRECT by as many threads as `rows: tiered` uses.
"""

import mmap
import os
import random
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from recsmith.clusters import Disk
from recsmith.errors import UsageError
from recsmith.units import format_size

ACCESS = 4096  # bytes of a random read: a page, which is what reading a row of a mapped file costs
LARGE = 4 << 20  # bytes of a large read
READERS = 16  # threads, as in training/systems/tiers/tables.py
FILE = 1 << 30  # bytes of the scratch file, unless less is free
LEAST = 64 << 20  # fewest bytes of a file for a meaningful measurement of a disk
SECONDS = 3.0  # duration of each measurement
MOUNTS = "/proc/self/mounts"
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")  # file systems without a disk; newer kernels allow O_DIRECT on tmpfs, too


def measure_disk(folder: str | Path, *, seconds: float = SECONDS, size: int = FILE) -> Disk:
    """Measure the disk of a folder: random reads per second, and bytes per second of large reads.

    Args:
        folder: an existing folder on the disk that will hold tables.
        seconds: duration of each of the two measurements.
        size: bytes of the scratch file.

    Raises:
        UsageError: the folder cannot be written, is in memory, has less than 64 MiB free, or its file system has no
            O_DIRECT.
    """
    kind = file_system(folder)
    if kind in IN_MEMORY:
        raise UsageError(f"'{folder}' is {kind}, which lies in memory, not on a disk; give a folder of the disk")
    try:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        size = min(size, free // 2) // LARGE * LARGE
        if size < LEAST:
            raise UsageError(
                f"'{folder}' has {format_size(free)} free; a disk is measured by files of {format_size(LEAST)}"
            )
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            _fill(file.name, size)
            handle = os.open(file.name, os.O_RDONLY | os.O_DIRECT)
            try:
                reads = _rate(handle, size, ACCESS, seconds)
                large = _rate(handle, size, LARGE, seconds)
            finally:
                os.close(handle)
    except OSError as error:
        raise UsageError(
            f"the disk of '{folder}' cannot be measured: {error.strerror or error}; give a folder that can be written, "
            "on a file system with O_DIRECT"
        ) from None
    return Disk(bandwidth=large * LARGE, reads_per_s=reads, access_bytes=ACCESS)


def file_system(folder: str | Path, mounts: str = MOUNTS) -> str | None:
    """The type of the file system that holds a folder, such as ext4, by the nearest mount; None if unknown."""
    try:
        lines = [line.split(" ") for line in Path(mounts).read_text("utf-8", "replace").splitlines()]
        place = Path(folder).resolve()
    except OSError:
        return None
    found = [(len(point), kind) for _, point, kind, *_ in lines if place.is_relative_to(point.replace("\\040", " "))]
    return max(found, key=lambda each: each[0])[1] if found else None


def _fill(name: str, size: int) -> None:
    """Write bytes that no file system can compress, and wait until they are on the disk."""
    handle = os.open(name, os.O_WRONLY)
    try:
        for _ in range(size // LARGE):
            os.write(handle, random.randbytes(LARGE))
        os.fsync(handle)
    finally:
        os.close(handle)


def _rate(handle: int, size: int, block: int, seconds: float) -> float:
    """Reads of a block per second, at random places, by READERS threads."""
    until = perf_counter() + seconds
    with ThreadPoolExecutor(READERS) as pool:
        begun = perf_counter()
        done = sum(pool.map(_reader(handle, size, block, until), range(READERS)))
        return done / (perf_counter() - begun)


def _reader(handle: int, size: int, block: int, until: float) -> Callable[[int], int]:
    def read(seed: int) -> int:
        places, done = random.Random(seed), 0
        with mmap.mmap(-1, block) as page:  # aligned, as O_DIRECT requires
            while perf_counter() < until:
                os.preadv(handle, [page], places.randrange(size // block) * block)
                done += 1
        return done

    return read
