"""One visit of a lent GPU: every part in a process of its own, with a time of its own, the most telling part first.

python benchmarks/gpu/visit.py OUT --carried .packed --hardware cuda:h200              # there
python benchmarks/gpu/visit.py OUT --carried .packed --begun samples/h200-production   # what that visit had no time for
python benchmarks/gpu/visit.py OUT --carried .packed --only host,sequences --seconds 60
python benchmarks/gpu/visit.py OUT --carried rehearsed --hardware cpu --seconds 20     # a rehearsal, of small jobs

Parts: smoke (a kernel of each kind that the pack holds, beside PyTorch), plans (default_plans.py), production, host,
sequences, captures, memory. What the folder of --carried lacks is left out.
A part ends when its time is over, and one that the device breaks is started again behind the case that broke it. Rows
are written as they come into the folder that --work names, so parts go on in a second call on the same machine; OUT
gets copies of all files every half minute: rows packed by gzip, few files for what a lease sends back.
"""

import argparse
import gzip
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = {
    "smoke": 40.0, "plans": 150.0, "production": 85.0, "host": 70.0, "sequences": 70.0, "captures": 75.0,
    "memory": 30.0,
}  # fmt: skip
CARRIED = {
    "plans": "plans.jsonl.xz", "production": "cases.jsonl.xz", "captures": "jobs.json", "memory": "jobs.json",
}  # what parts read  # fmt: skip
COPIED_EVERY_S, AGAIN = 30.0, 6  # seconds between copies; how often a part that the device broke is started again
GRACE_S = 15.0  # seconds beyond its time after which a part is ended
BROKEN = 3  # exit code of a part whose device no longer answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--carried", type=Path, required=True, help="folder of what the parts read")
    parser.add_argument("--begun", type=Path, help="folder of an earlier visit, whose rows and jobs are not made again")
    parser.add_argument("--work", type=Path, default=Path("/tmp/visit"))
    parser.add_argument("--hardware", default="cuda")
    parser.add_argument("--only", help="parts, with commas between")
    parser.add_argument("--seconds", type=float, help="of each part, instead of its own time")
    parser.add_argument("--whole", type=float, default=560.0, help="seconds of all parts together")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.begun:
        begin(options.begun, options.work)
    ends = time.monotonic() + options.whole
    for part in options.only.split(",") if options.only else SECONDS:
        seconds = min(options.seconds or SECONDS[part], ends - time.monotonic() - GRACE_S)
        if seconds < 5:
            print(f"{part}: no time is left", flush=True)
            continue
        if part in CARRIED and not (options.carried / CARRIED[part]).exists():
            print(f"{part}: {options.carried} has no {CARRIED[part]}", flush=True)
            continue
        begun = time.monotonic()
        done = ended(part, seconds, options)
        print(f"== {part}: {done}, {time.monotonic() - begun:.0f} s of {seconds:.0f}", flush=True)
    copy(options.work, options.out)


def begin(earlier: Path, work: Path) -> None:
    """What an earlier visit brought, where this one holds nothing yet: its parts go on from there."""
    for name, there in (("host", "host.jsonl"), ("sequences", "sequences.jsonl"), ("production", "rows.jsonl.xz")):
        target = work / f"{name}.jsonl"
        if (earlier / there).exists() and not target.exists():
            with (lzma.open if there.endswith(".xz") else open)(earlier / there, "rb") as file:
                target.write_bytes(file.read())
    if (archive := earlier / "captures.tar.gz").exists() and not (work / "captures").exists():
        with tarfile.open(archive) as packed:
            packed.extractall(work, filter="data")
    if (earlier / "memory").is_dir() and not (work / "memory").exists():
        shutil.copytree(earlier / "memory", work / "memory")


def ended(part: str, seconds: float, options: argparse.Namespace) -> str:
    """Run a part until it is done or its time is over; in words how it ended."""
    ends = time.monotonic() + seconds
    for _ in range(AGAIN):
        left = ends - time.monotonic()
        if left < 3:
            return "its time is over"
        with (options.work / f"{part}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words_of(part, left, options)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code = waited(process, ends + GRACE_S, options)
        if code != BROKEN:
            return "done" if code == 0 else "ended by force" if code is None else f"exit {code}"
    return "broken too often"


def waited(process: subprocess.Popen[bytes], ends: float, options: argparse.Namespace) -> int | None:
    """The exit code; None where the time was over and the part was ended."""
    while True:
        try:
            return process.wait(max(0.1, min(COPIED_EVERY_S, ends - time.monotonic())))
        except subprocess.TimeoutExpired:
            copy(options.work, options.out)
            if time.monotonic() > ends:
                os.killpg(process.pid, 9)
                process.wait()
                return None


def words_of(part: str, seconds: float, options: argparse.Namespace) -> list[str]:
    work, carried, device = options.work, options.carried, options.hardware.partition(":")[0]
    small = ["--shrink", "256"] if device == "cpu" else []
    measure = ["--hardware", options.hardware, "--seconds", seconds - 12]
    words: dict[str, list[object]] = {
        "smoke": ["smoke.py", "--device", device],
        "plans": ["production.py", "measure", carried / "plans.jsonl.xz", work / "plans.jsonl", *measure],
        "production": ["production.py", "measure", carried / "cases.jsonl.xz", work / "production.jsonl", *measure],
        "host": ["host_memory.py", work / "host.jsonl", "--device", device, "--seconds", seconds - 5, *small],
        "sequences": ["sequences.py", work / "sequences.jsonl", "--device", device, "--seconds", seconds - 5, *small],
        "captures": ["captures.py", "measure", carried / "jobs.json", work / "captures", "--seconds", seconds],
        "memory": ["step_memory.py", carried / "jobs.json", work / "memory", "--seconds", seconds],
    }  # fmt: skip
    script, *rest = words[part]
    return [str(HERE / str(script)), *map(str, rest)]


def copy(work: Path, out: Path) -> None:
    """What there is, in at most seven files."""
    for path in sorted(work.glob("*.jsonl")):
        with path.open("rb") as plain, gzip.open(out / f".{path.name}.gz", "wb", compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed)
        (out / f".{path.name}.gz").replace(out / f"{path.name}.gz")
    for name in ("captures", "memory"):
        if (work / name).is_dir():
            with tarfile.open(out / f".{name}.tar.gz", "w:gz", compresslevel=6) as archive:
                archive.add(work / name, name)
            (out / f".{name}.tar.gz").replace(out / f"{name}.tar.gz")
    logs = b"".join(
        f"==== {path.stem}\n".encode() + path.read_bytes()[-200_000:] for path in sorted(work.glob("*.log"))
    )
    (out / "logs.txt").write_bytes(logs)


if __name__ == "__main__":
    main()
