"""Leaves the device code of one kind of GPU in shared libraries, as if they had been built for it alone.

    python benchmarks/gpu/one_architecture.py 90 folder/*.so

nvcc puts the code of all kinds side by side into 'fat binaries': a header (magic number, version, bytes that follow),
then an entry for each kind (header with the kind's number, code). The entry that stays moves to the front, the header
is made to end behind it, and the rest becomes zeros, which compress to nothing; no other byte moves.
"""

import mmap
import struct
import sys
from pathlib import Path

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
ENTRY = "<HHIQ12xI"  # kind of code, version, bytes of header, bytes of code; number of the GPU, such as 90


def main() -> None:
    wanted = int(sys.argv[1])
    for path in map(Path, sys.argv[2:]):
        found, dropped = cut(path, wanted)
        print(f"{path.name}: {found} fat binaries, {dropped / 1e6:.1f} MB dropped")


def cut(path: Path, wanted: int) -> tuple[int, int]:
    """Cut a library in place; how many fat binaries it has, and bytes that are zeros now."""
    found = dropped = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = data.find(MAGIC)
        while at >= 0:
            (size,) = struct.unpack_from("<Q", data, at + 8)
            first, end = at + 16, at + 16 + size
            start, stop = _entry(data, first, end, wanted, path)
            code = data[start:stop]
            data[first:end] = code + bytes(size - len(code))
            struct.pack_into("<Q", data, at + 8, len(code))
            found, dropped = found + 1, dropped + size - len(code)
            at = data.find(MAGIC, end)
    return found, dropped


def _entry(data: mmap.mmap, at: int, end: int, wanted: int, path: Path) -> tuple[int, int]:
    """Where the one entry of a kind of GPU starts and ends."""
    entries: dict[int, tuple[int, int]] = {}
    while at < end:
        _, _, header, code, number = struct.unpack_from(ENTRY, data, at)
        entries[number] = (at, at + header + code)
        at += header + code
    if at != end or wanted not in entries:
        raise SystemExit(f"{path} holds code for {sorted(entries)}, and none for {wanted} that could be cut out")
    return entries[wanted]


if __name__ == "__main__":
    main()
