"""Unpacks what pack.sh packed (Python 3.12, standard library alone).

    python benchmarks/gpu/unpack.py packed /tmp/fbgemm

Parts are read one after the other as one stream, so memory holds little more than the 512 MiB that xz looks back (533
MiB in all). The three parts of 18 MiB take 6 s of a core; zeros become holes again, so 1.6 GB take 0.7 of disk.
"""

import hashlib
import lzma
import resource
import sys
import tarfile
import time
from pathlib import Path
from typing import Any


class Joined:
    """Files read as one."""

    def __init__(self, paths: list[Path]) -> None:
        self._files = iter([path.open("rb") for path in paths])
        self._file = next(self._files)

    def read(self, size: int = -1) -> bytes:
        """Some bytes, at most so many; none at the end of the last file."""
        data = self._file.read(size)
        while not data and (following := next(self._files, None)):
            self._file.close()
            self._file = following
            data = self._file.read(size)
        return data


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit("usage: unpack.py FOLDER TARGET")
    folder, target = map(Path, sys.argv[1:])
    begun = time.perf_counter()
    parts = checked(folder)
    unpack(parts, target)
    seconds, mebibytes = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{parts[0]} to {parts[-1].name} unpacked into {target} in {seconds:.1f} s, peak memory {mebibytes:.0f} MiB")


def checked(folder: Path) -> list[Path]:
    """The parts of a folder in order; SystemExit where one is missing or damaged."""
    sums = folder / "sha256"
    if not sums.is_file():
        raise SystemExit(f"{sums} is missing: {folder} is no folder of pack.sh")
    wanted = {folder / name: digest for digest, name in map(str.split, sums.read_text().splitlines())}
    for path, digest in wanted.items():
        if not path.is_file():
            raise SystemExit(f"{path} is missing, one of the {len(wanted)} parts that {sums} names: copy it too")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise SystemExit(f"{path} is damaged, its SHA-256 is not that of {sums}: copy it again")
    return sorted(wanted)


def unpack(parts: list[Path], target: Path) -> None:
    """Unpack the archive that parts are together."""
    stream: Any = Joined(parts)  # its read is all that lzma asks for
    with lzma.open(stream) as plain, tarfile.open(fileobj=plain, mode="r|", bufsize=2**20) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 on
        archive.extractall(target)


if __name__ == "__main__":
    main()
