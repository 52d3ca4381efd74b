"""A sample of benchmarks/fuzz.py: damaged files of every kind end in a result or in one clear error."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import recsmith

ROOT = Path(__file__).parents[2]
CLASSES = 52  # of files
EACH = 5  # files of a class: at most four are whole, one for each way of reading it


def fuzzed(home: Path, *words: str) -> str:
    """The report; the process fails where a file was bad."""
    places = os.pathsep.join([str(Path(recsmith.__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), "--home", str(home / "real"), *words],
        env={**os.environ, "PYTHONPATH": places}, cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"fuzz.py {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_few_damaged_files_of_each_kind(tmp_path: Path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("torchrec")
    report = fuzzed(tmp_path, "--files", str(EACH * CLASSES), "--seed", "1", "--quick")
    assert len(report.splitlines()) == 2 + CLASSES + 1  # a heading, the classes and their sum: no bad place
    read, refused = (int(cell.replace(",", "")) for cell in report.splitlines()[-1].split("|")[3:5])
    assert read > 2 * CLASSES
    assert refused > CLASSES
    assert read + refused == EACH * CLASSES


@pytest.mark.soak
def test_ten_thousand_damaged_files(tmp_path: Path):
    pytest.importorskip("pyarrow")
    fuzzed(tmp_path, "--files", "10000", "--seed", str(secrets.randbelow(2**32)))  # others in each run


def test_a_traceback_is_counted(tmp_path: Path):
    """The fuzzer itself can fail: a reader that raises what is none of ours."""
    program = "\n".join(
        [
            "import sys; sys.path.insert(0, sys.argv[1])",
            "from pathlib import Path",
            "import fuzz",
            "def bad(file): raise KeyError(file.read_text())",
            "def evil(file): print('\\x1b[2J')",
            "def big(file): kept = bytearray(2 * 10**8); kept = kept * 20",
            "said = [fuzz.attempt(read, Path(sys.argv[2]))['outcome'] for read in (bad, evil, big)]",
            "print(*said)",
        ]
    )
    program = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n{program}"
    (tmp_path / "x").write_text("x")
    places = os.pathsep.join([str(Path(recsmith.__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "benchmarks"), str(tmp_path / "x")],
        env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["traceback", "output", "memory"], done.stderr
