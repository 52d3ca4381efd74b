"""Runs: which sample comes next, when they end, and that they go on where they ended."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.measured import Stub, answer

import recsmith
from recsmith.errors import RecSmithError, UsageError
from recsmith.hardware import SCALES, Case, Measurement
from recsmith.measuring import run as room
from recsmith.measuring.cases import Cases
from recsmith.measuring.parts import read_columns
from recsmith.measuring.run import Limit, Progress, measure_compute, which

CASES = Cases(seed=0, scale=SCALES["check"])


@pytest.fixture(autouse=True)
def journal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without pyarrow; test_parts.py has the other."""
    monkeypatch.setattr(room, "has_pyarrow", lambda: False)


def measured(path: Path, hardware: Any, **limit: Any) -> dict[str, list[Any]]:
    measure_compute(hardware, CASES, path, Limit(**limit))
    return read_columns(path, ["position", "number", "visit", "status", "forward_s", "message"])


# --- which -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**7))
def test_a_visit_comes_after_the_case_was_new(position: int):
    number, visit = which(position)
    assert visit == (position % 10 == 9)
    first = number // 9 * 10 + number % 9
    assert which(first) == (number, 0)
    assert first <= position
    assert visit or first == position


def test_every_tenth_sample_is_another_case_seen_before():
    seen = Counter(number for number, _ in map(which, range(10_000)))
    assert sorted(seen) == list(range(9_000))
    assert set(seen.values()) == {1, 2}


# --- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({}, "nothing says when to stop; give a --budget such as 20m"),
        ({"budget_s": 0.0}, "the budget is 0 s, in which nothing can be measured"),
        ({"samples": 0}, "0 samples are none"),
    ],
)
def test_a_limit_leaves_room_for_something(words: dict[str, Any], rule: str):
    with pytest.raises(UsageError, match=rule):
        Limit(**words)


def test_a_run_ends_with_enough_steady_samples(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        return answer(case, status="unsteady" if case.number % 3 else "ok")

    found = measured(tmp_path, Stub(say), samples=4)
    assert found["status"].count("ok") == 4
    assert len(found["status"]) > 8
    assert measured(tmp_path, Stub(say), samples=4) == found


def test_a_budget_ends_a_run(tmp_path: Path):
    begun = time.monotonic()
    found = measured(tmp_path, Stub(), budget_s=0.2)
    assert found["status"]
    assert time.monotonic() - begun < 20


def test_progress_says_how_long_it_still_takes(tmp_path: Path):
    said: list[Progress] = []
    measure_compute(Stub(), CASES, tmp_path, Limit(samples=10, budget_s=1000), said.append)
    assert [each.samples for each in said] == [each.steady for each in said] == list(range(1, 11))
    lefts = [each.left_s for each in said]
    assert all(left is not None and left < 1000 for left in lefts)
    assert lefts[-1] == 0
    assert said[-1].per_hour > 0


# --- going on ----------------------------------------------------------------------------------------------------


def test_a_second_run_goes_on(tmp_path: Path):
    once = measured(tmp_path / "once", Stub(), samples=25)
    for count in (7, 10, 25):
        again = measured(tmp_path / "thrice", Stub(), samples=count)
    assert again == once  # pyright: ignore[reportPossiblyUnbound]
    assert once["position"] == list(range(25))
    assert once["visit"].count(1) == 2


@pytest.mark.parametrize("status", ["out_of_memory", "failed"])
def test_what_fails_is_recorded_and_the_run_goes_on(tmp_path: Path, status: Any):
    def say(case: Case, visit: int) -> Measurement:
        return Measurement(status=status, message="no room") if case.number == 2 else answer(case)

    found = measured(tmp_path, Stub(say), samples=5)
    assert found["status"] == ["ok", "ok", status, "ok", "ok", "ok"]
    assert found["forward_s"][2] is None
    assert found["message"][2] == "no room"


def test_ctrl_c_ends_a_run_and_keeps_what_is_there(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        if case.number == 3:
            raise KeyboardInterrupt
        return answer(case)

    assert measured(tmp_path, Stub(say), samples=9)["status"] == ["ok"] * 3
    assert measured(tmp_path, Stub(), samples=9)["status"] == ["ok"] * 9


def test_a_device_that_gives_up_ends_the_run_and_is_not_asked_that_case_again(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        if case.number == 3:
            raise RecSmithError("cuda no longer answers")
        return answer(case)

    with pytest.raises(RecSmithError, match="no longer answers"):
        measured(tmp_path, Stub(say), samples=9)
    assert measured(tmp_path, Stub(say), samples=5)["status"] == ["ok", "ok", "ok", "interrupted", "ok", "ok"]


KILLED = """
import sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from support.measured import Stub, answer
from recsmith.measuring import run
from recsmith.measuring.cases import Cases
from recsmith.hardware import SCALES

def say(case, visit):
    if case.number == 5:
        print("running", flush=True)
        time.sleep(60)
    return answer(case)

run.measure_compute(Stub(say), Cases(seed=0, scale=SCALES["check"]), Path(sys.argv[1]), run.Limit(samples=99))
"""


def test_kill_9_loses_the_sample_that_runs_and_no_other(tmp_path: Path):
    paths = [str(Path(recsmith.__file__).parents[1]), str(Path(__file__).parents[1])]
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), *paths], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert read_columns(tmp_path, ["number"])["number"] == list(range(5))
    found = measured(tmp_path, Stub(), samples=8)
    assert found["number"] == list(range(9))
    assert found["status"] == ["ok"] * 5 + ["interrupted"] + ["ok"] * 3


def test_hardware_that_refuses_is_asked_before_the_folder_is_made(tmp_path: Path):
    class Picky(Stub):
        def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
            raise UsageError("only sgd")

    with pytest.raises(UsageError, match="only sgd"):
        measure_compute(Picky(), CASES, tmp_path / "m", Limit(samples=1))
    assert not (tmp_path / "m").exists()
