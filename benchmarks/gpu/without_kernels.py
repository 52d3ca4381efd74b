"""Empties the device code of kernels in shared libraries that one_architecture.py has cut, for a smaller pack.

    python benchmarks/gpu/without_kernels.py PATTERN folder/*.so

PATTERN is a regular expression for mangled names of kernels. Their machine code becomes zeros, which compress to
nothing; every symbol, constant and variable stays where it was, so a library loads as before. A kernel that is called
all the same fails with an illegal instruction. An entry of a fat binary is an ELF file, or one that nvcc has compressed
by zstd, which is compressed again (that needs pyarrow).
"""

import mmap
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
ENTRY = struct.Struct("<HHIQI36xQ")  # kind, version, bytes of header, of code with padding; compressed; not compressed
ELF, TEXT = b"\x7fELF", ".text."
NO_BITS = 8  # the type of a section without bytes in the file


def main() -> None:
    pattern = re.compile(sys.argv[1])
    for path in map(Path, sys.argv[2:]):
        print(f"{path.name}: {emptied(path, pattern) / 1e6:.1f} MB of kernels emptied")


def emptied(path: Path, pattern: re.Pattern[str]) -> int:
    """Empty the kernels of a library in place; how many bytes of code."""
    total = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = data.find(MAGIC)
        while at >= 0:
            (size,) = struct.unpack_from("<Q", data, at + 8)
            first, end = at + 16, at + 16 + size
            _, _, header, code, packed, plain = ENTRY.unpack_from(data, first)
            start = first + header
            if header + code != size:
                raise SystemExit(f"{path} holds code of several kinds of GPUs: cut it by one_architecture.py first")
            elf = bytearray(_unpacked(data[start : start + packed], plain) if packed else data[start:end])
            count = _empty(elf, pattern)
            total += count
            if count and not packed:
                data[start:end] = bytes(elf)
            elif count:
                again = _packed(bytes(elf))
                padded = -(-len(again) // 8) * 8
                data[start:end] = again + bytes(code - len(again))
                struct.pack_into("<Q", data, at + 8, header + padded)
                struct.pack_into("<QI", data, first + 8, padded, len(again))
            at = data.find(MAGIC, end)
    return total


def _empty(elf: bytearray, pattern: re.Pattern[str]) -> int:
    """Zeros over the code of kernels whose names match."""
    if elf[:4] != ELF:
        raise SystemExit("an entry is no ELF file, which this script does not know")
    count = 0
    for name, start, size in _sections(elf):
        if name.startswith(TEXT) and pattern.search(name):
            elf[start : start + size] = bytes(size)
            count += size
    return count


def _sections(elf: bytearray) -> Iterator[tuple[str, int, int]]:
    """(name, start, bytes) of each section that has bytes in the file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    texts = headers[names][4]
    for name, kind, _, _, start, length in headers:
        if kind != NO_BITS:
            yield elf[texts + name : elf.index(0, texts + name)].decode(), start, length


def _unpacked(data: bytes, size: int) -> bytes:
    from pyarrow import Codec

    return Codec("zstd").decompress(data, decompressed_size=size).to_pybytes()


def _packed(data: bytes) -> bytes:
    from pyarrow import Codec

    return Codec("zstd", compression_level=19).compress(data).to_pybytes()


if __name__ == "__main__":
    main()
