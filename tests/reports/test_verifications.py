"""What people and programs read of plans that were measured: their kernels, and whole jobs."""

import json
from dataclasses import replace

import pytest
from support.build import made_plan
from support.printed import line_of, text_of
from support.verified import named_plans

from recsmith.files import dump_json
from recsmith.measuring.statistics import Interval
from recsmith.reports.verifications import (
    difference,
    job_verification_report,
    job_verification_to_raw,
    kernel_verification_lines,
    kernel_verification_to_raw,
    verdict,
)
from recsmith.verifying import kernels
from recsmith.verifying.kernels import verify_kernels
from recsmith.verifying.verification import JobVerification, KernelVerification, RankMeasure

RANKS = tuple(
    RankMeasure(
        rank=rank, forward_s=1e-3, backward_s=2e-3, step_s=3e-3, predicted_s=4e-3, shards_bytes=2**20,
        base_bytes=2**20, peak_bytes=2**21 + rank * 2**19,
    )
    for rank in range(2)
)  # fmt: skip
FOUND = JobVerification(plan=made_plan(), steps=5, ranks=RANKS)


@pytest.fixture(scope="module")
def found() -> KernelVerification:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "REFERENCES", 6)
        return verify_kernels(named_plans(), "simulated:h100", visits=3)


@pytest.fixture(scope="module")
def alone() -> KernelVerification:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "REFERENCES", 6)
        return verify_kernels(named_plans()[:1], "simulated:h100", visits=3)


def test_one_plan_is_shown_rank_by_rank(alone: KernelVerification):
    lines = kernel_verification_lines(alone)
    assert lines[0] == "hardware h100, simulated, by formulas: nothing was measured"
    assert "factor" in lines[3]
    assert "by 6 reference samples" in lines[3]
    assert "each rank begins when it is ready; predicted by a learned model of them" in lines[4]
    assert [line.split()[0] for line in lines[-5:]] == ["rank", "0", "1", "2", "3"]
    assert [line.split()[0] for line in lines[-11:-6]] == ["rank", "0", "1", "2", "3"]
    assert lines[-5].split() == ["rank", "ready", "all-to-all", "predicted", "error", "backward", "predicted"]


def test_several_plans_are_held_against_the_one_predicted_best(found: KernelVerification):
    text = "\n".join(kernel_verification_lines(found))
    assert text.count("(predicted best)") == 1
    assert "plans are ordered alike: tau 1.00 of 3" in text
    assert text.endswith("is predicted best; no plan was measured to be faster")


@pytest.mark.parametrize(
    ("slower", "words"),
    [
        ((0.031, 0.025, 0.039), "3.1% slower [2.5%, 3.9%]"),
        ((-0.031, -0.039, -0.025), "3.1% faster [2.5%, 3.9%]"),
        ((0.01, -0.002, 0.02), "no significant difference [-0.2%, +2.0%]"),
    ],
)
def test_differences_in_words(slower: tuple[float, float, float], words: str):
    assert difference(Interval(value=slower[0], low=slower[1], high=slower[2])) == words


def test_a_plan_that_was_measured_to_be_faster_is_named(found: KernelVerification):
    place = (found.winner + 1) % 3
    equal, less = Interval(value=0.0, low=0.0, high=0.0), Interval(value=-0.1, low=-0.2, high=-0.05)
    faster = replace(found.plans[place], slower=(less,) * 3)
    plans = tuple(faster if i == place else replace(each, slower=(equal,) * 3) for i, each in enumerate(found.plans))
    assert verdict(replace(found, plans=plans)) == f"{faster.name} was measured 10.0% faster [5.0%, 20.0%]"


def test_what_makes_figures_doubtful_is_noted(found: KernelVerification):
    text = "\n".join(kernel_verification_lines(replace(found, probe_moved=0.4, alike=False)))
    assert "not a quiet machine: its probe moved by 40% between visits" in text
    assert "steps do not do equal work" in text


def test_programs_read_the_same(found: KernelVerification):
    raw = kernel_verification_to_raw(found)
    assert raw["schema"] == "recsmith/measured-plans/1"
    assert [each["name"] for each in raw["plans"]] == ["greedy", "random", "sizes"]
    assert raw["plans"][0]["error"] == found.plans[0].error
    assert raw["plans"][0]["ranks"][1]["predicted_s"] == found.plans[0].ranks[1].predicted_s


def test_what_predicts_the_collectives_is_said(alone: KernelVerification):
    (plan,) = alone.plans
    without_model = replace(alone, plans=(replace(plan, exchanges=()),))
    priced = replace(alone, plans=(replace(plan, exchanges=(), collectives="one rank exchanges nothing"),))
    assert "cost model analytic, all ranks at once" in "\n".join(kernel_verification_lines(without_model))
    assert "collectives are those of cost model analytic: one rank" in "\n".join(kernel_verification_lines(priced))
    measured = replace(without_model, hardware="cpu")
    assert "all-to-alls were measured between 4 local ranks" in "\n".join(kernel_verification_lines(measured))
    cut = "\n".join(kernel_verification_lines(replace(alone, complete=False)))
    assert "over visits; the run was interrupted" in cut


def test_each_rank_has_its_times_and_its_memory(capsys: pytest.CaptureFixture[str]):
    text = text_of(job_verification_report(FOUND), capsys)
    assert "5 steps of 16 samples on 2 ranks, TorchRec on CPU (gloo)" in text
    assert "predicted within 20.0% of measured" in text
    assert line_of("1", text).split() == [
        "1", "1", "ms", "2", "ms", "3", "ms", "4", "ms", "2.5", "MiB", "2", "MiB", "1", "MiB", "0.800",
    ]  # fmt: skip


def test_the_data_holds_what_was_predicted_and_its_parts():
    raw = job_verification_to_raw(FOUND)
    assert json.loads(dump_json(raw)) == raw
    assert (raw["schema"], raw["backend"], raw["digest"]) == ("recsmith/verification/1", "torchrec", FOUND.plan.digest)
    first = raw["ranks"][0]
    assert first["predicted_bytes"] == first["shards_bytes"] + first["base_bytes"] == 2**21
