"""Runs: when they end, what they write, and that they go on where they ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.measured import Stub, answer

import recsmith
from recsmith.errors import CorruptFile, MissingExtra, RecSmithError, UsageError
from recsmith.hardware import SCALES, Case, Measurement
from recsmith.measuring import folder as folders
from recsmith.measuring import parquet_parts
from recsmith.measuring.cases import Cases
from recsmith.measuring.compute import MeasuringProgress, measure_compute
from recsmith.measuring.folder import Limit, read_columns
from recsmith.measuring.samples import BLOCK_SAMPLES, MOST_VISITS, schedule_of

CASES = Cases(seed=0, scale=SCALES["check"])


@pytest.fixture(autouse=True)
def journal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without pyarrow; test_parquet_parts.py has the other."""
    monkeypatch.setattr(folders, "has_pyarrow", lambda: False)


def measured(path: Path, hardware: Any, **limit: Any) -> dict[str, list[Any]]:
    measure_compute(hardware, CASES, path, Limit(**limit))
    names = ["position", "sample", "number", "visit", "status", "forward_s", "backward_s", "probe_s", "message"]
    return read_columns(path, names)


def statuses(found: dict[str, list[Any]]) -> list[str]:
    """Of samples."""
    return [each.status for each in schedule_of(found, "cpu")]


# --- limits ------------------------------------------------------------------------------------------------------


def test_a_run_ends_with_enough_steady_samples(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        return answer(case, seconds=1 + visit if case.number % 3 else 1.0)

    found = measured(tmp_path, Stub(say), samples=4)
    assert statuses(found).count("ok") == 4
    assert statuses(found)[:4] == ["ok", "open", "open", "ok"]
    assert measured(tmp_path, Stub(say), samples=4) == found


def test_what_never_agrees_is_unsteady(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        return answer(case, seconds=1 + visit if case.number == 2 else 1.0)

    found = measured(tmp_path, Stub(say), samples=BLOCK_SAMPLES)
    assert statuses(found)[:BLOCK_SAMPLES] == ["ok"] * 2 + ["unsteady"] + ["ok"] * (BLOCK_SAMPLES - 3)
    assert found["sample"].count(2) == MOST_VISITS
    assert found["sample"][2 * BLOCK_SAMPLES :][: MOST_VISITS - 2] == [2] * (MOST_VISITS - 2)


def test_hardware_hears_which_visit_of_a_case_it_is(tmp_path: Path):
    """So that what simulated hardware calls noise is another one in every row."""
    stub = Stub()
    measured(tmp_path, stub, samples=BLOCK_SAMPLES)
    assert [visit for number, visit in stub.asked if number == 0] == [0, MOST_VISITS, 1, MOST_VISITS + 1]
    assert len(set(stub.asked)) == len(stub.asked) == 2 * BLOCK_SAMPLES


def test_a_budget_ends_a_run(tmp_path: Path):
    begun = time.monotonic()
    found = measured(tmp_path, Stub(), budget_s=0.2)
    assert found["status"]
    assert time.monotonic() - begun < 20


def test_progress_says_how_long_it_still_takes(tmp_path: Path):
    said: list[MeasuringProgress] = []
    measure_compute(Stub(), CASES, tmp_path, Limit(samples=10, budget_s=1000), said.append)
    assert [each.visits for each in said] == list(range(1, BLOCK_SAMPLES + 11))
    assert [each.samples for each in said] == [each.steady for each in said] == [0] * BLOCK_SAMPLES + list(range(1, 11))
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
    assert once["position"] == list(range(65))
    assert once["visit"] == [0] * BLOCK_SAMPLES + [1] * BLOCK_SAMPLES + [0] * BLOCK_SAMPLES + [1] * 5
    assert once["sample"] == [*range(20), *range(20), *range(20, 40), *range(20, 25)]
    assert [once["number"][sample] for sample in (0, 8, 9, 10, 19)] == [0, 8, 0, 9, 1]


@pytest.mark.parametrize("status", ["out_of_memory", "failed"])
def test_what_fails_is_recorded_and_the_run_goes_on(tmp_path: Path, status: Any):
    def say(case: Case, visit: int) -> Measurement:
        return Measurement(status=status, message="no room") if case.number == 2 else answer(case)

    found = measured(tmp_path, Stub(say), samples=5)
    assert found["status"] == ["ok", "ok", status] + ["ok"] * (BLOCK_SAMPLES - 3 + 5)
    assert found["sample"][BLOCK_SAMPLES:] == [0, 1, 3, 4, 5]
    assert found["forward_s"][2] is None
    assert found["message"][2] == "no room"


def test_ctrl_c_ends_a_run_and_keeps_what_is_there(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        if case.number == 3:
            raise KeyboardInterrupt
        return answer(case)

    assert measured(tmp_path, Stub(say), samples=9)["status"] == ["ok"] * 3
    assert measured(tmp_path, Stub(), samples=9)["status"] == ["ok"] * (BLOCK_SAMPLES + 9)


def test_a_device_that_gives_up_ends_the_run_and_is_not_asked_that_case_again(tmp_path: Path):
    def say(case: Case, visit: int) -> Measurement:
        if case.number == 3:
            raise RecSmithError("cuda no longer answers")
        return answer(case)

    with pytest.raises(RecSmithError, match="no longer answers"):
        measured(tmp_path, Stub(say), samples=9)
    found = measured(tmp_path, Stub(say), samples=5)
    assert found["status"] == ["ok"] * 3 + ["interrupted"] + ["ok"] * (BLOCK_SAMPLES - 4 + 5)
    assert statuses(found)[:6] == ["ok"] * 3 + ["interrupted"] + ["ok"] * 2


KILLED = """
import sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from support.measured import Stub, answer
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.folder import Limit
from recsmith.measuring.cases import Cases
from recsmith.hardware import SCALES

def say(case, visit):
    if case.number == 5:
        print("running", flush=True)
        time.sleep(60)
    return answer(case)

measure_compute(Stub(say), Cases(seed=0, scale=SCALES["check"]), Path(sys.argv[1]), Limit(samples=99))
"""


def test_kill_9_loses_the_visit_that_runs_and_no_other(tmp_path: Path):
    paths = [str(Path(recsmith.__file__).parents[1]), str(Path(__file__).parents[1])]
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), *paths], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert read_columns(tmp_path, ["number"])["number"] == list(range(5))
    found = measured(tmp_path, Stub(), samples=8)
    assert found["sample"] == [*range(BLOCK_SAMPLES), 0, 1, 2, 3, 4, 6, 7, 8]
    assert found["status"] == ["ok"] * 5 + ["interrupted"] + ["ok"] * (BLOCK_SAMPLES - 6 + 8)


def test_hardware_that_refuses_is_asked_before_the_folder_is_made(tmp_path: Path):
    class Picky(Stub):
        def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
            raise UsageError("only sgd")

    with pytest.raises(UsageError, match="only sgd"):
        measure_compute(Picky(), CASES, tmp_path / "m", Limit(samples=1))
    assert not (tmp_path / "m").exists()


# --- what a run needs of the folder -------------------------------------------------------------------------------


def test_without_pyarrow_a_folder_with_parts_is_not_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measured(tmp_path, Stub(), samples=1)
    (tmp_path / "part-000000000-000000004.parquet").write_bytes(b"PAR1")
    before = (tmp_path / "journal.jsonl").read_bytes()
    monkeypatch.setattr(parquet_parts, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"parquet files need pyarrow: pip install 'pyarrow>=20'"):
        measure_compute(Stub(), CASES, tmp_path, Limit(budget_s=0.1))
    assert (tmp_path / "journal.jsonl").read_bytes() == before


def test_a_damaged_journal_is_not_added_to(tmp_path: Path):
    measured(tmp_path, Stub(), samples=1)
    journal = tmp_path / "journal.jsonl"
    journal.write_text("nonsense\n" + journal.read_text())
    with pytest.raises(CorruptFile, match="is damaged in line 1"):
        measure_compute(Stub(), CASES, tmp_path, Limit(budget_s=0.1))
