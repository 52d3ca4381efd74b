"""Two reports that TorchRec 1.8's planner logged, and the logs that jobs make of them.

planner_reports/ has their rows without the closing '#' and the blanks before it. `mixed` has a row-wise, a table-wise
and a column-wise table on 4 ranks; `cached` has a data-parallel table and one in a UVM cache.
"""

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

REPORTS = ("mixed", "cached")
Shape = Callable[[str], str]  # from a bare report to a log


def bare(name: str) -> str:
    """A report as the planner logs it where nothing is added: each row padded to the width of the frame."""
    rows = (Path(__file__).parent / "planner_reports" / f"{name}.txt").read_text().splitlines()
    width = max(len(row) for row in rows if "(CW Dim)" in row) + 5  # of _log_sharding_plan: the table's and 6
    return "\n".join(["#" * width, *(f"#{row:<{width - 2}}#" for row in rows), "#" * width]) + "\n"


def prefixed(prefix: str | Callable[[int], str], suffix: str = "") -> Shape:
    """Each line with a prefix (of its number, from 0) and a suffix."""
    of = prefix if callable(prefix) else lambda _number: prefix
    return lambda text: "".join(f"{of(at)}{line}{suffix}\n" for at, line in enumerate(text.splitlines()))


def folded(width: int, shape: Shape = str) -> Shape:
    """Lines cut as `fold -w` does, with lines of the same log around them."""

    def fold(text: str) -> str:
        lines = f"epoch 0\n{shape(text)}{'x' * 400}\nepoch 1\n".splitlines()
        pieces = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
        return "\n".join(pieces) + "\n"

    return fold


def interleaved(*shapes: Shape) -> Shape:
    """Copies of several ranks whose lines alternate."""

    def mix(text: str) -> str:
        logs = [shape(text).splitlines() for shape in shapes]
        return "".join(f"{line}\n" for lines in zip_longest(*logs) for line in lines if line is not None)

    return mix


def docker_json(text: str) -> str:
    """Docker's json-file driver."""
    times = (f"2026-01-01T10:00:00.{number:09}Z" for number in range(10**6))
    lines = text.splitlines(keepends=True)
    return "".join(
        json.dumps({"log": line, "stream": "stderr", "time": time}) + "\n"
        for line, time in zip(lines, times, strict=False)
    )


def _with_others(text: str) -> str:
    """Lines of other loggers between all rows."""
    return "".join(
        f"{line}\nWARNING:root:Sharding spec not found for sparse.tiny # {line[:2]}\n" for line in _all(text)
    )


def _all(text: str) -> Iterator[str]:
    yield from text.splitlines()


def _seconds(number: int) -> str:
    return f"{10 + number // 60}:{number % 60:02}"


STDLIB = "INFO:torchrec.distributed.planner.stats:"  # logging.BASIC_FORMAT
CRI = prefixed(lambda n: f"2026-01-01T10:{_seconds(n)}.{n:06}Z stdout F ")
BRACKETS = prefixed(lambda n: f"[2026-01-01 10:{_seconds(n)},{n:03}] [INFO] ")

SHAPES: dict[str, Shape] = {
    "before and after": lambda text: f"+ torchrun train.py\nloading # 3 files\n{text}step 1 loss 0.7 #\n# done\n",
    "basic format": prefixed(STDLIB),
    "time and level": BRACKETS,
    "time, name, line": prefixed(lambda n: f"2026-01-01 10:{_seconds(n)},{n:03} | INFO | stats.py:434 | "),
    "glog": prefixed(lambda n: f"I0101 10:{_seconds(n)}.{n:06} 140 stats.py:434] "),
    "rank of torch": prefixed("[rank0]: "),
    "torchrun --tee": prefixed("[default0]:"),
    "torchrun and logger": prefixed(lambda n: f"[default3]:[2026-01-01 10:{_seconds(n)},{n:03}] [INFO] "),
    "srun -l": prefixed("0: "),
    "srun -l of 128 tasks": prefixed("  7: "),
    "mpirun --tag-output": prefixed("[1,0]<stdout>:"),
    "mpirun --timestamp-output": prefixed(lambda n: f"Thu Jan  1 10:{_seconds(n)} 2026[1,0]<stderr>:"),
    "kubernetes": CRI,
    "kubectl --prefix": prefixed("[pod/trainer-0/pytorch] "),
    "docker compose": prefixed("trainer-1  | "),
    "docker json-file": docker_json,
    "syslog": prefixed(lambda n: f"Jan  1 10:{_seconds(n)} node17 train[4711]: "),
    "ray": prefixed("(TrainWorker pid=4711, ip=10.0.0.3) "),
    "json by key": prefixed('{"level": "info", "msg": "', '", "logger": "stats"}'),
    "seconds since 1970": prefixed(lambda n: f"{1767261600 + n}.{n:06} INFO "),
    "milliseconds of the run": prefixed(lambda n: f"{998 + n} INFO "),  # %(relativeCreated)d
    "numbered lines": prefixed(lambda n: f"{n + 1:5}\t"),  # cat -n
    "prefix with # and |": prefixed("| job #12 | host#3 # "),
    "prefix of a comment": prefixed("# "),
    "colours": lambda text: prefixed("\x1b[32m[INFO]\x1b[0m \x1b[1m", "\x1b[0m\x1b[K")(text),
    "colours in json": prefixed('{"log":"\\u001b[36m', '\\u001b[0m\\n"}'),
    "CRLF": lambda text: f"start\r\n{text}end\r\n".replace("\n", "\r\n").replace("\r\r", "\r"),
    "bare with CRLF": lambda text: text.replace("\n", "\r\n"),
    "progress bars": lambda text: "".join(f" 10%|#1   | 3/9\r 20%|##  | 6/9\r{line}\n" for line in text.splitlines()),
    "indented": prefixed("    "),
    "indented by a tab": prefixed("\t"),
    "folded at 80": folded(80),
    "folded at 120 with a prefix": folded(120, prefixed(STDLIB)),
    "folded at 158": folded(158),
    "other lines between": _with_others,
    "two copies": lambda text: f"{text}epoch 1\n{text.replace('ran for 0.0', 'ran for 7.3')}",
    "every rank's copy": lambda text: "".join(prefixed(f"[rank{rank}]: ")(text) for rank in range(4)),
    "every rank's copy, line by line": interleaved(*(prefixed(f"[rank{rank}]:") for rank in range(4))),
    "tasks and times, line by line": interleaved(*(
        prefixed(lambda n, task=task: f"{task}: 2026-01-01 10:{_seconds(n + task)},{7 * n + task:03} INFO ")
        for task in range(3)
    )),
    "not closed by a frame": lambda text: "start\n" + text.rstrip("#\n") + "#\n",
}  # fmt: skip
