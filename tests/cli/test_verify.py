"""`recsmith verify` without --torchrec: its words, what it prints, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.measured import Stub, answer

from recsmith.hardware import Case, Measurement
from recsmith.verifying import kernels as verification

Run = Callable[..., Any]


@pytest.fixture
def plans(run: Run, tables: Path, tmp_path: Path) -> list[str]:
    """A balanced plan and one that is not."""
    names = [str(tmp_path / f"{planner}.json") for planner in ("cost_greedy", "size_greedy")]
    for name in names:
        planner = Path(name).stem
        done = run("plan", tables, "-c", "h100:2", "--planner", planner, "--types", "table_wise", "-o", name)
        assert done.code == 0
    return names


def test_a_plan_is_measured_rank_by_rank(run: Run, plans: list[str]):
    done = run("verify", plans[0], "--hardware", "simulated:h100", "--visits", 3)
    assert (done.code, done.err) == (0, "")
    assert "visits   3, medians with 95 % bootstrap intervals" in done.out


def test_programs_get_json(run: Run, plans: list[str]):
    done = run("verify", *plans, "--hardware", "simulated:h100", "--seed", 1, "--format", "json")
    raw = json.loads(done.out)
    assert (raw["schema"], raw["visits"], raw["hardware"]) == ("recsmith/measured-plans/1", 7, "simulated:h100")
    assert [each["name"] for each in raw["plans"]] == plans


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--torchrec", "--visits", "3"], "--visits is not a word of --torchrec"),
        (["--torchrec", "--cost-model", "analytic"], "--cost-model is not a word of --torchrec"),
        (["--batch-size", "3"], "--batch-size goes with --torchrec"),
        (["--hardware", "gpu"], "no hardware is called 'gpu'"),
        (["--hardware", "simulated:h100", "--cost-model", "x"], "no cost model is called 'x'"),
    ],
)
def test_words_that_do_not_go_together_are_refused(run: Run, plans: list[str], words: list[str], rule: str):
    done = run("verify", plans[0], *words)
    assert (done.code, done.out) == (2, "")
    assert rule in done.err


def test_torchrec_trains_one_plan(run: Run, plans: list[str]):
    assert "--torchrec trains one plan at a time, and there are 2" in run("verify", *plans, "--torchrec").err


@pytest.mark.parametrize(("visit", "code", "said"), [(3, 0, "this is what 3 visits say"), (2, 1, "interrupted")])
def test_ctrl_c_reports_what_there_is(
    run: Run, plans: list[str], monkeypatch: pytest.MonkeyPatch, visit: int, code: int, said: str
):
    def tell(case: Case, now: int) -> Measurement:
        if now == visit:
            raise KeyboardInterrupt
        return answer(case)

    monkeypatch.setattr(verification, "open_hardware", lambda name, loads: Stub(tell))
    done = run("verify", *plans, "--hardware", "simulated:h100")
    assert (done.code, said in done.err) == (code, True)
    assert bool(done.out) == (code == 0)
