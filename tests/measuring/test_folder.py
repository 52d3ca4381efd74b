"""When a run ends: a limit leaves room for something, and the first of its two parts ends the run."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.exchanged import exchange

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.measuring.about import About, load_about
from recsmith.measuring.columns import SCHEMA
from recsmith.measuring.folder import Folder, Limit, journal_rows, lock_folder, open_folder, read_columns

ABOUT = About(kind="compute", hardware="cpu", seed=0, scale="cpu", optimizers=("sgd",), data_types=("fp32",))


RAW = {"schema": SCHEMA, "kind": "compute", "hardware": "cpu", "seed": 0}


def row(position: int) -> dict[str, Any]:
    return {"position": position, "status": "ok"}


def filled(path: Path, count: int) -> Path:
    with open_folder(path, ABOUT) as folder:
        for position in range(count):
            folder.begin(position)
            folder.add(row(position))
    return path


def test_a_new_folder_says_what_it_holds(tmp_path: Path):
    filled(tmp_path / "a" / "b", 0)
    assert load_about(tmp_path / "a" / "b") == ABOUT
    assert json.loads((tmp_path / "a" / "b" / "about.json").read_text())["schema"] == SCHEMA


def test_rows_are_there_again_and_positions_go_on(tmp_path: Path):
    filled(tmp_path, 3)
    assert journal_rows(tmp_path) == [row(0), row(1), row(2)]
    with open_folder(tmp_path, ABOUT) as folder:
        assert (folder.position, folder.pending, folder.interrupted) == (3, 3, False)


@pytest.mark.parametrize("torn", ['{"position": 3, "sta', '{"position": 3, "status": "ok"}'])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: str):
    filled(tmp_path, 3)
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write(torn)
    assert len(journal_rows(tmp_path)) == 3
    with open_folder(tmp_path, ABOUT) as folder:
        folder.add(row(3))
    assert journal_rows(tmp_path)[-1] == row(3)


def test_a_sample_that_was_begun_and_not_finished_is_known(tmp_path: Path):
    filled(tmp_path, 2)
    with open_folder(tmp_path, ABOUT) as folder:
        folder.begin(2)
    with open_folder(tmp_path, ABOUT) as folder:
        assert folder.interrupted
        folder.add(row(2))
        assert not folder.interrupted


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"status": "ok"}'])
def test_a_damaged_line_is_named(tmp_path: Path, line: str):
    filled(tmp_path, 1)
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(CorruptFile, match=r"is damaged in line 3: .*; remove that line"), open_folder(tmp_path, ABOUT):
        pass


def test_a_full_disk_keeps_the_samples_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    filled(tmp_path, 2)
    with open_folder(tmp_path, ABOUT) as folder:
        monkeypatch.setattr("recsmith.measuring.journal.os.fsync", _full)
        with pytest.raises(RecSmithError, match="No space left on device; the samples before are kept: make room"):
            folder.add(row(2))
    assert len(journal_rows(tmp_path)) == 2


def _full(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_two_writers_do_not_meet(tmp_path: Path):
    with (
        open_folder(tmp_path, ABOUT),
        pytest.raises(UsageError, match="another run writes to"),
        open_folder(tmp_path, ABOUT),
    ):
        pass
    with open_folder(tmp_path, ABOUT):
        pass


@pytest.mark.parametrize("other", [{"hardware": "cuda"}, {"seed": 1}, {"optimizers": ("adagrad",)}, {"kind": "comm"}])
def test_another_set_of_samples_needs_another_folder(tmp_path: Path, other: dict[str, Any]):
    filled(tmp_path, 1)
    with pytest.raises(UsageError, match="holds compute measurements of cpu, seed 0, scale cpu, sgd, fp32; to add"):
        open_folder(tmp_path, replace(ABOUT, **other)).__enter__()
    assert journal_rows(tmp_path) == [row(0)]


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'thesis\.txt' and no about\.json"), open_folder(tmp_path, ABOUT):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write .*: File exists"), open_folder(tmp_path / "file", ABOUT):
        pass


@pytest.mark.parametrize(
    ("text", "rule"),
    [("{", "is not JSON.*measure again"), ("[]", "holds no object"), ("[" * 5000, "nested too deeply"),
     ('{"schema": "recsmith/measurements/1"}', "kind is missing.*measure again"),
     (json.dumps(RAW | {"seed": -1}), "seed is -1; it must be at least 0"),
     (json.dumps(RAW | {"hardware": {"cpu": 1}}), r"hardware is \{\"cpu\": 1\}: input should be a valid string"),
     ('{"schema": "recsmith/measurements/2"}', "has a schema 'recsmith/measurements/2'; expected")],
)  # fmt: skip
def test_a_damaged_about_is_refused(tmp_path: Path, text: str, rule: str):
    (tmp_path / "about.json").write_text(text)
    with pytest.raises(CorruptFile, match=rule):
        load_about(tmp_path)


def test_a_folder_without_measurements_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no measurements"):
        load_about(tmp_path)


def test_a_journal_that_was_folded_and_not_removed_counts_once(tmp_path: Path):
    filled(tmp_path, 3)
    (tmp_path / "part-000000000-000000001.parquet").touch()
    assert journal_rows(tmp_path) == [row(2)]
    assert Folder(tmp_path).position == 3


def test_a_part_of_another_name_is_refused(tmp_path: Path):
    filled(tmp_path, 1)
    (tmp_path / "part-one.parquet").touch()
    with pytest.raises(CorruptFile, match="is not named part-<first>-<last>"):
        journal_rows(tmp_path)


def test_one_at_a_time(tmp_path: Path):
    with lock_folder(tmp_path / "a" / "b"):
        with pytest.raises(UsageError, match="another run writes to"), lock_folder(tmp_path / "a" / "b"):
            pass
        with lock_folder(tmp_path / "a" / "c"):
            pass
    with lock_folder(tmp_path / "a" / "b"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write '.*file'"), lock_folder(tmp_path / "file"):
        pass


def test_what_a_killed_run_left_is_cleared_and_nothing_else(tmp_path: Path):
    left = (".about.json.k3x_9abz", ".settings.json.abcdefgh", ".part-000000000-000000004.parquet")
    kept = ("about.json", ".about.json.mine", ".about.json.ABCDEFGH", ".other.json.abcdefgh", "part-1.parquet.abcdefgh")
    for name in (*left, *kept):
        (tmp_path / name).touch()
    (tmp_path / ".about.json.a_folder").mkdir()
    (tmp_path / ".about.json.a_link_x").symlink_to("about.json")
    with lock_folder(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {*kept, ".about.json.a_folder", ".about.json.a_link_x"}


def test_a_kill_inside_of_fsync_blocks_no_folder(tmp_path: Path):
    """The first thing that a run writes is about.json; a second run takes the folder all the same."""
    about = 'About(kind="comm", hardware="x", seed=0)'
    program = f"""
import os
from pathlib import Path
from recsmith.measuring.about import About
from recsmith.measuring.folder import open_folder
os.fsync = lambda _: os.kill(os.getpid(), 9)
open_folder(Path({str(tmp_path)!r}), {about}).__enter__()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == -signal.SIGKILL
    assert [path.name[:12] for path in tmp_path.iterdir()] == [".about.json."]
    with open_folder(tmp_path, About(kind="comm", hardware="x", seed=0)):
        assert [path.name for path in tmp_path.iterdir()] == ["about.json"]


ABOUT_COMM = About(kind="comm", hardware="local ranks", seed=0, ranks=2)


def test_rows_of_a_part_are_not_those_of_the_journal_too(tmp_path: Path):
    with open_folder(tmp_path, ABOUT_COMM) as folder:
        for position in range(3):
            folder.add({"position": position, "seed": 7})
        (tmp_path / "part-000000000-000000001.parquet").touch()
        assert [row["position"] for row in journal_rows(tmp_path)] == [2]


def test_columns_go_over_parts_and_journal(tmp_path: Path):
    pytest.importorskip("pyarrow")
    with open_folder(tmp_path, ABOUT_COMM) as folder:
        folder.add(exchange(0, seed=7, number=5))
        folder.fold()
        folder.add(exchange(1, seed=8))
    assert read_columns(tmp_path, ["seed", "number"]) == {"seed": [7, 8], "number": [5, 1]}


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({}, "nothing says when to stop; give a --budget such as 20m"),
        ({"budget_s": 0.0}, "the budget is 0 s, in which nothing can be measured"),
        ({"budget_s": math.nan}, "the budget is nan s, in which nothing can be measured"),
        ({"samples": 0}, "0 samples are none"),
    ],
)
def test_a_limit_leaves_room_for_something(words: dict[str, Any], rule: str):
    with pytest.raises(UsageError, match=rule):
        Limit(**words)


@pytest.mark.parametrize(
    ("limit", "samples", "elapsed_s", "reached"),
    [
        (Limit(samples=3), 2, 1e9, False),
        (Limit(samples=3), 3, 0.0, True),
        (Limit(budget_s=2.0), 10**9, 1.9, False),
        (Limit(budget_s=2.0), 0, 2.0, True),
        (Limit(budget_s=2.0, samples=3), 3, 0.0, True),
        (Limit(budget_s=2.0, samples=3), 0, 2.0, True),
    ],
)
def test_whichever_comes_first_ends_a_run(limit: Limit, samples: int, elapsed_s: float, reached: bool):
    assert limit.reached(samples, elapsed_s) == reached
