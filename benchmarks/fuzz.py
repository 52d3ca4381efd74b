"""Damages real files of every kind and reads them with RecSmith: how many tracebacks, hangs, and how much memory?

    python benchmarks/fuzz.py --files 10000               # docs/reliability.md; the seed makes the files
    python benchmarks/fuzz.py --only plan --seed 3        # one kind

Readers and commands run in a process of their own: 4 GiB of address space, SECONDS a file by the wall clock (--seconds:
more of them where other programs have the cores). A file is read well if the command succeeds, or ends with one clear
error. It is counted as
  traceback   an error that is none of ours, also where a crash ended the process
  hang        it took longer than the limit; the process was ended
  memory      no memory was left, or more than 1 GB was resident
  output      control characters, NaN, infinities or warnings of NumPy were printed
"""

import argparse
import faulthandler
import io
import json
import mmap
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from fuzz_files import TESTS, Class, Read, classes

SECONDS = 20  # of a file, before it counts as a hang: a machine that others use is slow at times
AT_ONCE = 20  # files of a process that trains: its threads do not all end with a training; the next ones have another
MOST_AT_ONCE = 100  # files of any process
ADDRESSES = 4 << 30  # bytes that a process may map: PyTorch's libraries alone map more than one
MOST_RESIDENT = 10**9  # bytes
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
NO_NUMBER = r"\b(?:nan|inf) ?(?:%|[mµn]?s\b|[KMGT]?i?B)"
BAD_OUTPUT = re.compile(rf"{CONTROL}|{NO_NUMBER}|RuntimeWarning|Traceback")
OUTCOMES = ("read", "refused", "traceback", "hang", "memory", "output")
BAD = OUTCOMES[2:]

Row = dict[str, Any]


# --- one file -----------------------------------------------------------------------------------------------------


def copy(made: Class, target: Path) -> None:
    """Write a copy of a real file or folder."""
    if made.real.is_dir():
        shutil.copytree(made.real, target)
    else:
        shutil.copy(made.real, target)


MOST_CHANGED = 10**6  # bytes of a file that is changed again: of a larger one, a change could make one without end
UNCHANGEABLE = (ValueError, LookupError, TypeError, OSError, EOFError, MemoryError, RuntimeError, struct.error,
                zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What a change raises for data that are too damaged, or too large, for it: the file is read as it is by then."""


def damage(made: Class, target: Path, draw: Random) -> Read:
    """Damage a copy; returns what is to read it."""
    name = draw.choice(sorted(made.changes))
    file = sorted(target.glob(name))[0] if name else target
    data = file.read_bytes()
    for _ in range(draw.choice((1, 1, 2))):
        if len(data) > MOST_CHANGED:
            break
        change = draw.choice(made.changes[name])
        try:
            data = change(data, draw)
        except UNCHANGEABLE:
            break
    file.write_bytes(data)
    return draw.choice(made.reads)


def attempt(read: Read, file: Path, limit_s: float = SECONDS) -> Row:
    """Read a file in this process, and say how that ended."""
    said = _Said()
    _forget_peak()
    begun = time.monotonic()
    faulthandler.dump_traceback_later(limit_s, exit=True, file=2)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            row = _outcome(read, file)
    finally:
        faulthandler.cancel_dump_traceback_later()
    row |= {"seconds": round(time.monotonic() - begun, 3), "bytes": _peak()}
    text = said.text()
    bad = BAD_OUTPUT.search(text)
    if row["outcome"] in ("read", "refused") and bad:
        row |= {"outcome": "output", "where": f"{bad[0]!r} in {text[max(0, bad.start() - 60) : bad.end() + 20]!r}"}
    if row["outcome"] in ("read", "refused", "output") and (row["bytes"] > MOST_RESIDENT or "out of memory" in text):
        row |= {"outcome": "memory", "where": text[-200:]}
    return row


class _Said(io.TextIOWrapper):
    """Text that was printed."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="surrogatepass", write_through=True)

    def text(self) -> str:
        """All of it."""
        data: bytes = self.buffer.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        return data.decode("utf-8", "surrogatepass")

    def fileno(self) -> int:
        """None: what closes descriptors must leave those of the process alone."""
        return os.open(os.devnull, os.O_RDWR)


def _outcome(read: Read, file: Path) -> Row:
    from recsmith.errors import RecSmithError

    try:
        with warnings.catch_warnings():
            read(file)
        return {"outcome": "read"}
    except SystemExit as end:
        return {"outcome": "refused" if end.code else "read"}
    except RecSmithError as error:
        print(error)
        return {"outcome": "refused"}
    except MemoryError:
        return {"outcome": "memory", "where": _last_place()}
    except BaseException as error:
        return {"outcome": "traceback", "where": f"{type(error).__name__} at {_last_place()}: {str(error)[:60]}"}


def _last_place() -> str:
    """File and line of RecSmith that an error came through last."""
    frames = [each for each in traceback.extract_tb(sys.exc_info()[2]) if "recsmith" in each.filename]
    return f"{frames[-1].filename.rpartition('recsmith/')[2]}:{frames[-1].lineno}" if frames else "outside"


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    from recsmith._process import proc_bytes

    return proc_bytes("self/status", "VmHWM")


# --- many files ---------------------------------------------------------------------------------------------------


def work(home: Path, names: Sequence[str], seed: int, count: int, first: int, limit_s: float) -> None:
    """What a process of its own does: files of the classes from place `first` on, one JSON line each.

    Some files after the other are read by a fork of it, so that what they need is imported once.
    """
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    known = classes(home)
    for module in dict.fromkeys(known[name].needs for name in names if known[name].needs):
        import_module(str(module))  # before other libraries bring a library of mathematics of their own
    files, done = _files(names, count)[first:], mmap.mmap(-1, 1)  # done: files of the newest fork, which it shares
    while files:
        done[0] = 0
        pid = os.fork()
        if not pid:
            _read_some(known, files, seed, limit_s, done)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            sys.exit(code if code > 0 else 128 - code)
        files = files[done[0] :]


def _read_some(
    known: dict[str, Class], files: Sequence[tuple[str, int]], seed: int, limit_s: float, done: mmap.mmap
) -> NoReturn:
    """Read the first files, as many as a process may; `done` counts them."""
    left = AT_ONCE
    for name, number in files[:MOST_AT_ONCE]:
        made = known[name]
        left -= bool(made.needs)
        if left < 0:
            break
        with tempfile.TemporaryDirectory(prefix="recsmith-fuzz-") as folder:
            os.chdir(folder)
            file = Path(folder) / made.real.name
            copy(made, file)
            whole = number < len(made.reads)  # the first files are whole, so that every way of reading is seen to work
            read = made.reads[number] if whole else damage(made, file, Random(f"{seed} {name} {number}"))
            row = attempt(read, file, limit_s)
            if whole and row["outcome"] == "refused":
                row |= {"outcome": "traceback", "where": f"a whole file was refused by its reader {number}"}
        print(json.dumps({"class": name, "number": number, **row}), flush=True)
        done[0] += 1
        if row["bytes"] > MOST_RESIDENT:
            break  # what stays resident would count for the files after it
    os._exit(0)


def _files(names: Sequence[str], count: int) -> list[tuple[str, int]]:
    """(class, number) of each file, class after class."""
    return [(name, number) for name in names for number in range(count)]


def results(home: Path, names: Sequence[str], seed: int, count: int, limit_s: float, *more: str) -> Iterator[Row]:
    """The row of every file; a process that is ended is started again behind the file that ended it. more: options."""
    files, at = _files(names, count), 0
    while at < len(files):
        words = [sys.executable, __file__, "--work", ",".join(names), "--home", str(home), "--seed", str(seed),
                 "--first", str(at), "--files", str(count), "--seconds", str(limit_s), *more]  # fmt: skip
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment())
            assert process.stdout
            for line in process.stdout:
                if not line.startswith('{"class": '):
                    continue  # printed past Python by a library
                yield json.loads(line)
                at += 1
            if process.wait() and at < len(files):
                log.seek(0)
                name, number = files[at]
                yield {"class": name, "number": number, **_ended(process.returncode, log.read())}
                at += 1


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
            "PYTHONHASHSEED": "0"}  # fmt: skip


def _ended(code: int, log: str) -> Row:
    """The row of a file whose reading ended the process."""
    hung = "Timeout (" in log
    lines = [line.strip() for line in log.splitlines() if "recsmith/" in line]
    where = lines[0] if lines else log[-300:]
    return {"outcome": "hang" if hung else "traceback", "where": f"exit {code}: {where}", "seconds": 0, "bytes": 0}


def report(rows: Sequence[Row]) -> Iterator[str]:
    """The table of docs/reliability.md, and below it every place that is bad, once."""
    yield f"| files | number | {' | '.join(OUTCOMES)} | slowest | most memory |"
    yield "|---" * (len(OUTCOMES) + 4) + "|"
    for name in dict.fromkeys(row["class"] for row in rows):
        yield _line(name, [row for row in rows if row["class"] == name])
    yield _line("all", rows)
    places = Counter((row["class"], row["outcome"], row["where"]) for row in rows if row["outcome"] in BAD)
    for (name, outcome, where), count in places.most_common():
        number = next(row["number"] for row in rows if row.get("where") == where and row["class"] == name)
        yield f"{count:5} x {outcome} of {name}, such as number {number}: {where}"


def _line(name: str, rows: Sequence[Row]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    cells = [f"{counts[outcome]:,}" for outcome in OUTCOMES]
    slowest, most = max(row["seconds"] for row in rows), max(row["bytes"] for row in rows)
    return f"| {name} | {len(rows):,} | {' | '.join(cells)} | {slowest:.1f} s | {most / 1e6:,.0f} MB |"


def plan_quickly() -> None:
    """Search for plans, and tighten their bounds, as little as most tests do."""
    sys.path.insert(0, str(TESTS))
    import_module("support.quick_plans").plan_quickly()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="of all classes together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one class")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of a file, by the wall clock: more on a busy machine"
    )
    parser.add_argument("--quick", action="store_true", help="plans are searched for as little as in most tests")
    parser.add_argument("--home", type=Path, help="where the real files lie (default: a new folder)")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.quick:
        plan_quickly()
    if asked.work:
        return work(asked.home, asked.work.split(","), asked.seed, asked.files, asked.first, asked.seconds)
    home = (asked.home or Path(tempfile.mkdtemp(prefix="recsmith-fuzz-"))).resolve()
    names = [asked.only] if asked.only else list(classes(home))
    rows: list[Row] = []
    more = ["--quick"] * asked.quick
    for row in results(home, names, asked.seed, -(-asked.files // len(names)), asked.seconds, *more):
        if row["outcome"] in BAD or not rows or rows[-1]["class"] != row["class"]:
            print(f"{len(rows):6} read, now {row}", file=sys.stderr, flush=True)
        rows.append(row)
    print("\n".join(report(rows)))
    sys.exit(any(row["outcome"] in BAD for row in rows))


if __name__ == "__main__":
    main()
