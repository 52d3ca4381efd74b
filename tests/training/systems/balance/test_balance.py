"""Samples dealt by the work of histories: losses of the plain run, the same bits after a restart, told before."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from training.models.test_model_jobs import ARGUMENTS, BATCH, DATA, EVENTS, EVERY, STEPS, a_run
from training.test_jobs import from_step, losses
from training.unsharded import unsharded_losses

from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import gain_of, pays, said_of
from recsmith.data.dealing import Deal
from recsmith.errors import RecSmithError
from recsmith.training import Run, RunData, RunModel, run_from_raw, run_to_raw, train
from recsmith.training.launch.dry_run import DryRun, described
from recsmith.units import format_time

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]


def balanced(output: Path, balance: Any, *, train: Any = None, **words: Any) -> Run:
    data = RunData(
        train=train or {**DATA, "split": "train"}, test={**DATA, "split": "test"}, global_batch_size=BATCH,
        balance=balance,
    )  # fmt: skip
    return a_run(output, **{"ranks": 2, "data": data, **words})


def said(run: Run) -> list[str]:
    return said_in(described(run))


def said_in(description: DryRun) -> list[str]:
    return [each.said for each in description.systems if each.key == "data.balance"]


def test_losses_are_those_of_the_plain_run_and_a_job_goes_on_with_the_same_bits(tmp_path: Path):
    run = balanced(tmp_path / "out", "histories")
    result = train(run)
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()


def long_histories(output: Path, balance: Any, **words: Any) -> Run:
    """A run whose later samples have histories that are several times as long."""
    long = {**DATA, "generated": {**EVENTS, "users": 400, "events": 150}, "longest": 400}
    arguments = {**ARGUMENTS["hstu"], "longest": 400}
    return balanced(output, balance, train=long, model=RunModel(name="hstu", embedding_dim=8, arguments=arguments),
                    **words)  # fmt: skip


@cache
def described_long(balance: Any, ranks: int = 2) -> DryRun:
    """What a dry run tells of long histories, worked out once for all tests."""
    return described(long_histories(Path("nowhere"), balance, ranks=ranks))


def test_a_dry_run_tells_what_it_brings_and_the_step_of_the_busiest_rank(tmp_path: Path):
    plain, dealt = (described_long(each) for each in (None, "histories"))
    (line,) = said_in(dealt)
    assert "balance: in the first steps the busiest of 2 ranks has 1.0" in line
    assert "times the mean work of histories when they are dealt, and 1." in line
    assert said_in(plain) == []
    before, after = plain.step, dealt.step
    assert before is not None
    assert after is not None
    assert before.layers_s > 1.05 * after.layers_s
    assert f"a step takes {format_time(after.step_s)} in place of {format_time(before.step_s)}, which " in line
    raw = run_to_raw(balanced(tmp_path / "out", Deal(feature="history", squared=0.5)))
    assert run_from_raw(raw, "the run").data.balance == Deal(feature="history", squared=0.5)


@pytest.mark.parametrize("ranks", [4, pytest.param(16, marks=pytest.mark.soak)])
def test_auto_deals_where_dry_runs_say_that_it_pays(ranks: int):
    """As advice asks: what dry runs with and without tell is what `auto` goes by, and says."""
    plain, dealt, auto = (described_long(each, ranks) for each in (None, "histories", "auto"))
    assert plain.step is not None
    assert dealt.step is not None
    assert auto.step is not None
    gain = gain_of(plain.step.step_s, dealt.step.step_s)
    assert (auto.run.data.balance is not None) == pays(gain)
    assert auto.step.step_s == pytest.approx((dealt if pays(gain) else plain).step.step_s)  # pyright: ignore
    (line,) = said_in(auto)
    assert said_of(gain, NAMED["step"]) in line


def test_auto_leaves_it_off_where_it_does_not_pay(tmp_path: Path):
    (line,) = said(balanced(tmp_path / "out", "auto", ranks=1))
    assert line == "balance: off, since one rank has all samples of a step"
    alike = {**DATA, "longest": 1}
    arguments = {**ARGUMENTS["hstu"], "longest": 1}
    model = RunModel(name="hstu", embedding_dim=8, arguments=arguments)
    (line,) = said(balanced(tmp_path / "out", "auto", train=alike, model=model))
    assert line.startswith("balance: off: in the first steps the busiest of 2 ranks has 1.000 times the mean work of")
    assert line.endswith("% more of the device time of a sample")  # dealing is work, too


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ({"model": RunModel(name="dlrm", embedding_dim=8)}, "model dlrm has no histories"),
        ({"keep": 8}, "data.keep_together is 8; leave one of them out"),
        ({"balance": "often"}, 'data.balance is "often"'),
        ({"deduplicate": "auto"}, "data.deduplicate"),
    ],
)
def test_what_cannot_be_dealt_is_refused(tmp_path: Path, words: dict[str, Any], wanted: str):
    raw = run_to_raw(balanced(tmp_path / "out", "histories"))
    raw["data"] = {
        **raw["data"], "balance": words.get("balance", "histories"), "keep_together": words.get("keep", 1),
        **{key: words[key] for key in ("deduplicate",) if key in words},
    }  # fmt: skip
    if "model" in words:
        raw["model"] = {"name": "dlrm", "embedding_dim": 8}
    with pytest.raises(RecSmithError, match=wanted):
        described(run_from_raw(raw, "the run"))
