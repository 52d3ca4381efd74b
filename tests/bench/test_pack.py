"""How FBGEMM travels to a machine without a package registry: parts become a tree again, and code of one GPU stays."""

import hashlib
import io
import lzma
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, GPU / script, *map(str, words)], capture_output=True, text=True)


def packed(folder: Path) -> Path:
    """Two parts of an archive of one file."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        entry = tarfile.TarInfo("fbgemm_gpu/code.so")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"bytes"))
    whole = lzma.compress(plain.getvalue())
    folder.mkdir()
    for number, part in enumerate((whole[:50], whole[50:])):
        (folder / f"fbgemm.0{number}").write_bytes(part)
        with (folder / "sha256").open("a") as sums:
            sums.write(f"{hashlib.sha256(part).hexdigest()}  fbgemm.0{number}\n")
    return folder


def test_parts_become_the_tree_they_were(tmp_path: Path):
    done = run("unpack.py", packed(tmp_path / "packed"), tmp_path / "tree")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tree" / "fbgemm_gpu" / "code.so").read_bytes() == b"bytes"


def test_a_part_that_is_missing_or_damaged_is_named_and_nothing_unpacked(tmp_path: Path):
    folder = packed(tmp_path / "packed")
    part = folder / "fbgemm.01"
    part.write_bytes(part.read_bytes()[:-1])
    assert run("unpack.py", folder, tmp_path / "tree").stderr.startswith(f"{part} is damaged")
    part.unlink()
    assert run("unpack.py", folder, tmp_path / "tree").stderr.startswith(f"{part} is missing")
    (folder / "sha256").unlink()
    assert "is no folder of pack.sh" in run("unpack.py", folder, tmp_path / "tree").stderr
    assert not (tmp_path / "tree").exists()


def entry(number: int, code: bytes) -> bytes:
    """The code for one kind of GPU, behind its header of 64 bytes."""
    return struct.pack("<HHIQ12xI", 2, 257, 64, len(code), number).ljust(64, b"\1") + code


def fat(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def test_code_of_one_gpu_stays_and_nothing_else_moves(tmp_path: Path):
    old, ours, new = entry(80, b"ampere.."), entry(90, b"hopper.."), entry(100, b"blackwell.......")
    library = tmp_path / "code.so"
    library.write_bytes(b"before.." + fat(old, ours, new) + b"between." + fat(ours, old) + b"after")
    done = run("one_architecture.py", 90, library)
    assert done.stdout.startswith("code.so: 2 fat binaries"), done.stderr
    zeros = bytes(len(old) + len(new))
    assert library.read_bytes() == (
        b"before.." + fat(ours) + zeros + b"between." + fat(ours) + bytes(len(old)) + b"after"
    )


def test_a_library_without_code_for_the_gpu_is_refused(tmp_path: Path):
    library = tmp_path / "code.so"
    library.write_bytes(fat(entry(80, b"ampere..")))
    assert "holds code for [80], and none for 90" in run("one_architecture.py", 90, library).stderr
