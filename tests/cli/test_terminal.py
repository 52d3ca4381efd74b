"""Every table of every command in a narrow and in a usual terminal: no cell is cut, and lines end within it."""

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from feeding.support import STATUS
from support.build import cluster, made_plan, placed, plan_of, table, workload
from support.printed import line_of, text_of
from support.systems import has_command
from support.terminals import on_terminal

from recsmith import plan
from recsmith.adapters.reshard import Resharded, StateChange, TableChange
from recsmith.cli.app import COMMANDS, app
from recsmith.cli.printing import show_report
from recsmith.feeding import status_file
from recsmith.feeding.status import write_status
from recsmith.plans import save_plan
from recsmith.reports import layout
from recsmith.reports.moves import reshard_report
from recsmith.reports.plans import plan_report
from recsmith.reports.verifications import job_verification_report
from recsmith.verifying.verification import JobVerification, RankMeasure

WIDTHS = (80, 120)
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FAST = ("--planner", "size_greedy")
PRINTED = {  # commands that print a table or lines of a report, with small inputs; {name} are files of `inputs`
    "plan": ("plan", "{tables}", "--cluster", "h100:2x9", *FAST),
    "advise": ("advise", "{tables}", "--cluster", "h100:4", "--cost-model", "torchrec"),
    "plan in full": ("plan", "{tables}", "--cluster", "h100:2x9", *FAST, "--verbose"),
    "plan split": ("plan", "{tables}", "--cluster", "h100:2x2", *FAST, "--types", "column_wise,row_wise"),
    "simulate": ("simulate", "{plan}"),
    "import": ("import", "{plan}", "--workload", "{tables}", "--cluster", "h100:4"),
    "explain": ("explain", "{plan}"),
    "explain a table": ("explain", "{plan}", "--table", "events_of_the_last_ninety_days_by_user"),
    "diff": ("diff", "{plan}", "{other}"),
    "compare": ("compare", "{tables}", "--cluster", "h100:4", "--planners", "size_greedy,random"),
    "sweep": ("sweep", "{tables}", "--devices", "2,4", "--device", "h100", "--per-host", "2", *FAST),
    "sweep of 2D jobs": ("sweep", "{tables}", "--devices", "4", "--device", "h100", "--per-host", "2", *FAST,
                         "--group-size", "2,4"),
    "replan": ("replan", "{plan}", "--max-moved", "5%", *FAST),
    "replan, a curve": ("replan", "{plan}", "--curve", "--steps-left", "1000", *FAST),
    "compress": ("compress", "{tables}", "--target", "4x", "--cluster", "h100:4", *FAST),
    "predict": ("predict", "{model}", "--ranks", "2"),
    "predict batches": ("predict", "{model}", "--ranks", "2", "--batch", "64,128"),
    "data inspect": ("data", "inspect", "{spec}", "--samples", "100"),
    "data check": ("data", "check", "{spec}"),
    "verify": ("verify", "{plan}", "{other}", "--hardware", "simulated:h100", "--visits", "3"),
    "measure show": ("measure", "show", "shipped:cpu"),
    "devices": ("devices",),
    "planners": ("planners",),
    "doctor": ("doctor",),
    "watch a series": ("watch", "{series}"),
    "feed status": ("feed", "status", "{feed}"),
}  # fmt: skip
PRINTED = {name: words for name, words in PRINTED.items() if has_command(words[0])}
RESHARDED = Resharded(
    output="step-1000-on-the-new-plan", untouched=12, written_bytes=2**40, resumed_bytes=0, fingerprint="0" * 64,
    tables=tuple(
        TableChange(
            table=f"events_of_the_last_{days}_days_by_user", bytes=2**35,
            states=(StateChange(name="momentum1", change="exact"),),
            before="column_wise on 0, 1, 2, 3 widths 32+32+32+32", after="table_wise on 12",
        )
        for days in (30, 90)
    ),
)  # fmt: skip
RANKS = tuple(
    RankMeasure(
        rank=rank, forward_s=1.234e-3, backward_s=2.345e-3, step_s=3.456e-3, predicted_s=4.567e-3,
        shards_bytes=2**36 + 1, base_bytes=2**30 + 2**20, peak_bytes=2**37 + rank * 2**29,
    )
    for rank in range(2)
)  # fmt: skip
REPORTS = {  # those of commands that need a checkpoint or a job, of results that are made here
    "reshard": lambda: reshard_report(RESHARDED),
    "verify --torchrec": lambda: job_verification_report(JobVerification(plan=made_plan(), steps=5, ranks=RANKS)),
}
AS_LINES = {  # commands whose tables, where they print any, are plain lines, which break between words
    "serve", "report", "workload", "schema", "learn", "bench", "train", "capture", "evaluate", "refit", "sparse",
    "search", "delta", "init", "export", "launch", "fleet", "check",
    "help", "completion",
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small files of all kinds, with names as long as production's are."""
    folder = tmp_path_factory.mktemp("terminal")
    long = "events_of_the_last_ninety_days_by_user"
    tables = [
        {"name": name, "num_embeddings": rows, "embedding_dim": 128, "pooling_factor": 4.0}
        for name, rows in ((long, 3_000_000), ("user_id", 1_000_000), ("city", 1000), ("an id", 50))
    ]
    kinds: dict[str, Any] = {
        "tables": {"schema": "recsmith/workload/1", "batch_size": 512, "optimizer": "rowwise_adagrad",
                   "tables": tables},
        "model": {"schema": "recsmith/model/1", "kind": "mlp", "layers": [64, 32]},
        "spec": {"format": "generator", "seed": 1, "num_samples": 200, "dense": 2,
                 "features": [{"name": long, "num_embeddings": 50}, {"name": "b", "num_embeddings": 9}]},
    }  # fmt: skip
    found = {name: str(folder / f"{name}.json") for name in (*kinds, "plan", "other")}
    for name, raw in kinds.items():
        Path(found[name]).write_text(json.dumps(raw))
    for name, planner in (("plan", "size_greedy"), ("other", "random")):
        save_plan(plan(found["tables"], "h100:4", planner=planner).plan, found[name])
    found["feed"], found["series"] = str(folder), str(folder / "series.csv")
    values = [10.0 + (step * 7 % 5) / 10 + 50 * (step > 500) for step in range(600)]
    Path(found["series"]).write_text("loss_of_the_last_step_by_rank\n" + "".join(f"{each}\n" for each in values))
    long_host = replace(STATUS, process="trainer-12.cluster.example.com:123456", written=time.time())
    for rank in range(2):
        write_status(status_file(folder, rank), replace(long_host, rank=rank))
    return found


@contextmanager
def terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Standard output is a pseudo-terminal of so many columns; what was printed on it so far."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    for name in ("COLUMNS", "LINES", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))  # of this process's own streams, which are no terminal
    blocks: list[bytes] = []

    def drain() -> None:
        with suppress(OSError):  # the end of the last who wrote
            while block := os.read(ours, 65536):
                blocks.append(block)

    reader = Thread(target=drain)
    reader.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)

        def printed() -> str:
            stream.close()
            reader.join()
            return COLOURS.sub("", b"".join(blocks).decode()).replace("\r", "")

        yield printed
    reader.join()
    os.close(ours)


@contextmanager
def kept_grids(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[layout.Grid]]:
    """The grids that are made meanwhile."""
    grids: list[layout.Grid] = []
    init = layout.Grid.__init__

    def kept(self: layout.Grid, *words: Any, **more: Any) -> None:
        init(self, *words, **more)
        grids.append(self)

    monkeypatch.setattr(layout.Grid, "__init__", kept)
    yield grids


def check(text: str, columns: int, grids: list[layout.Grid]) -> None:
    """Lines end within the terminal, and every cell of the columns that are shown is whole."""
    assert text.strip()
    for line in text.splitlines():
        assert len(line) <= columns, line
    flat = re.sub(r"\s+", "", text)
    for grid in grids:
        made = grid.table(columns)
        shown = [str(column.header) for column in made.columns]
        assert shown[0] == grid.headings[0]
        assert len(shown) >= min(3, len(grid.headings)), shown
        for column in made.columns:
            for cell in map(str, column.cells):
                if column.justify == "right":
                    assert cell in text
                else:
                    for word in cell.split():
                        assert word in text or word[:20] in text, word
    shown = [cell for grid in grids for column in grid.table(columns).columns for cell in map(str, column.cells)]
    assert flat.count("…") == sum(cell.count("…") for cell in shown)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", PRINTED)
def test_no_cell_of_a_command_is_cut(
    name: str, columns: int, inputs: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    if name == "verify":
        pytest.importorskip("torch", reason="simulated kernels are learned ones")
    monkeypatch.chdir(tmp_path)
    with terminal(columns, monkeypatch) as printed, kept_grids(monkeypatch) as grids:
        app.main([word.format(**inputs) for word in PRINTED[name]], standalone_mode=False)
        check(printed(), columns, grids)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_no_cell_of_a_report_is_cut(name: str, columns: int, monkeypatch: pytest.MonkeyPatch):
    with terminal(columns, monkeypatch) as printed, kept_grids(monkeypatch) as grids:
        show_report(REPORTS[name]())
        check(printed(), columns, grids)


def test_every_command_is_here():
    told = {words[0] for words in (*PRINTED.values(), *map(str.split, REPORTS))}
    assert told | set(filter(has_command, AS_LINES)) == set(COMMANDS)
    assert not told & AS_LINES


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_real_terminal_says_its_width_itself(columns: int, inputs: dict[str, str]):
    said = on_terminal("-m", "recsmith", "simulate", inputs["plan"], columns=columns)
    lines = COLOURS.sub("", said).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= columns
    assert any("capacity" in line for line in lines) == (columns == 120)


def test_plain_lines_break_between_words_under_their_text():
    lines = layout.broken("trained  12 tasks of 50 tables on 4 devices, 1,000 placements measured, and more", 40)
    assert all(len(line) <= 40 for line in lines)
    assert {line[:9] for line in lines[1:]} == {" " * 9}
    assert layout.broken("short", 40) == ["short"]


def test_a_split_table_is_told_from_a_whole_one(capsys: pytest.CaptureFixture[str]):
    tables = workload(*(table(name) for name in "abc"))
    split = placed("a", "column_wise", [0, 1], [8, 24])
    whole = placed("b", "column_wise", [0]), placed("c", "table_wise", [1])
    said = line_of("plan", text_of(plan_report(plan_of(tables, cluster(), split, *whole)), capsys))
    assert said.endswith("2 whole, 1 split by columns")
