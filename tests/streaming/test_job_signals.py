"""Signals of a job by its sums: each fault is named once, clean looks say nothing, state goes on; hot sets."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("river")

from recsmith.errors import CorruptFile
from recsmith.streaming.causes import Causes
from recsmith.streaming.hot_sets import HotSet, added_up, packed, unpacked
from recsmith.streaming.job_signals import JobSignals
from recsmith.streaming.job_sums import JobLayout, JobSums

LAYOUT = JobLayout(("f", "g"), ("d",), 3, ((1.0, 0.0, 0.0), (0.0, 0.5, 0.5)))
SAMPLES = 512
Change = Callable[[dict[str, Any]], object]


def look(chance: np.random.Generator, change: Change | None = None) -> JobSums:
    """The sums of a look at a job that does well, but for what is changed of its parts."""
    logits = chance.normal(-1, 1, SAMPLES)
    labels = (chance.random(SAMPLES) < 1 / (1 + np.exp(-logits))).astype(float)
    parts: dict[str, Any] = {
        "logits": logits, "labels": labels, "ids": [chance.integers(0, 50, 256), chance.integers(0, 50, 256)],
        "hits": [180 + int(chance.integers(-8, 9)), 60], "dense": chance.normal(3, 1, SAMPLES), "gradient": 1.0,
        "checked": 200, "repeated": 0, "rate": 0.01, "own": [0.01, 0.011, 0.012], "lookups": [1024, 512],
        "step_s": 0.05 + 0.002 * chance.random(),
    }  # fmt: skip
    if change is not None:
        change(parts)
    sums = JobSums(LAYOUT)
    sums.add_predictions(parts["logits"], parts["labels"])
    sums["samples"], sums["loss"] = SAMPLES, sums["entropy"]
    for name in ("gradient", "checked", "repeated"):
        sums[name] = parts[name]
    sums["dense_rate"] = parts["rate"]
    for row, ids in enumerate(parts["ids"]):
        sums.features[row, :2] = parts["lookups"][row], SAMPLES
        sums.add_ids(row, ids, parts["hits"][row] if len(ids) else 0)
    sums.dense[0] = parts["dense"].sum(), parts["dense"] @ parts["dense"]
    sums.ranks[:, 0], sums.ranks[:, 2] = parts["step_s"], parts["own"]
    return sums


def run(signals: JobSignals, looks: int, change: Change | None = None, seed: int = 0, first: int = 0) -> list[Any]:
    chance = np.random.default_rng(seed)
    return [finding for step in range(looks) for finding in signals.look(first + 8 * step, look(chance, change))]


def test_a_job_that_does_well_raises_no_alarm() -> None:
    assert run(JobSignals(LAYOUT), 1000) == []


FAULTS: dict[str, tuple[Change, str]] = {
    "constant_feature": (lambda parts: parts["ids"].__setitem__(0, np.full(256, 7)), "all ids of feature 'f' are 7"),
    "empty_feature": (
        lambda parts: (parts["ids"].__setitem__(1, np.zeros(0, int)), parts["lookups"].__setitem__(1, 0)),
        "feature 'g' has no ids any more, and had 1 a sample",
    ),
    "constant_dense": (lambda parts: parts.update(dense=np.full(SAMPLES, 0.0)), "dense column 'd' are 0"),
    "repeated_samples": (lambda parts: parts.update(repeated=60), "8% of the samples"),
    "flipped_labels": (lambda parts: parts.update(labels=1 - parts["labels"]), "labels oppose the predictions"),
    "learning_rate": (lambda parts: parts.update(rate=0.1), "dense layers is 0.1, 10 times"),
    "slow_rank": (lambda parts: parts.update(own=[0.01, 0.04, 0.01]), "rank 1 is slow: its own work takes 40.0 ms"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_named_once_within_100_steps(kind: str) -> None:
    signals = JobSignals(LAYOUT)
    assert run(signals, 60) == []
    change, said = FAULTS[kind]
    found = run(signals, 12, change, seed=1, first=480)
    assert [finding.kind for finding in found][:1] == [kind]
    assert [finding.kind for finding in found].count(kind) == 1
    assert said in found[0].because
    assert found[0].step < 480 + 96


def test_what_no_cause_explains_is_told_by_its_signal() -> None:
    signals = JobSignals(LAYOUT)
    assert run(signals, 60) == []
    found = run(signals, 10, lambda parts: parts.update(gradient=9.0), seed=1)
    assert [finding.kind for finding in found] == ["gradient_norm"]
    assert "is 9, and was 1 before" in found[0].because
    calm = JobSignals(LAYOUT, kinds=("loss",))
    assert run(calm, 60) + run(calm, 10, FAULTS["flipped_labels"][0], seed=1)[1:] == []


def test_signals_that_go_on_from_their_state_say_the_same() -> None:
    for cut in (3, 40, 59):
        whole, begun = JobSignals(LAYOUT), JobSignals(LAYOUT)
        chance = np.random.default_rng(5)
        looks = [look(chance, FAULTS["flipped_labels"][0] if number >= 60 else None) for number in range(80)]
        for number in range(cut):
            whole.look(number, looks[number])
            begun.look(number, looks[number])
        kept = json.loads(json.dumps(begun.to_raw()))
        begun = JobSignals(LAYOUT)
        begun.from_raw(kept)
        rest = [(whole.look(number, looks[number]), begun.look(number, looks[number])) for number in range(cut, 80)]
        assert any(first for first, _ in rest)
        assert all(first == second for first, second in rest)
        assert begun.to_raw() == whole.to_raw()


def test_state_of_another_version_is_refused() -> None:
    with pytest.raises(CorruptFile, match="another version"):
        Causes(LAYOUT).from_raw({"gone": 1})
    with pytest.raises(CorruptFile, match="packed numbers"):
        unpacked("nothing")


# --- hot sets -----------------------------------------------------------------------------------------------------


def draw(chance: np.random.Generator, hot: int) -> np.ndarray:
    """Ids of which two thirds read 100 hot ones."""
    ids = chance.integers(0, 100_000, 256)
    return np.where(chance.random(256) < 0.67, hot + chance.integers(0, 100, 256), 1000 + ids)


@pytest.mark.parametrize("seed", range(3))
def test_another_hot_set_is_found_within_200_batches(seed: int) -> None:
    chance, hot = np.random.default_rng(seed), HotSet()
    assert [told for _ in range(1000) if (told := hot.add(draw(chance, 0)))] == []
    told = [(number, said) for number in range(50) if (said := hot.add(draw(chance, 500_000)))]
    assert len(told) == 1
    assert told[0][0] == 2  # the third look, for the change is sudden
    assert "now" in told[0][1]
    assert not hot.chosen  # another one is chosen, and then the stream is as usual
    said = {hot.add(draw(chance, 500_000)) for _ in range(300)}
    assert said == {None}
    assert hot.chosen


def test_single_odd_looks_and_rare_misses_are_no_other_hot_set() -> None:
    chance, hot = np.random.default_rng(0), HotSet()
    for number in range(1000):
        odd = number > 100 and number % 40 < 2  # two looks in a row are far out, and no third
        assert hot.add(draw(chance, 500_000 if odd else 0)) is None
    few = HotSet()
    few.choose(np.arange(256), np.ones(256, np.int64))
    assert {few.judge(256 - (number % 90 > 80), 256) for number in range(1000)} == {None}


def test_a_slow_change_is_found_too() -> None:
    chance, hot = np.random.default_rng(0), HotSet()
    hot.choose(np.arange(256), np.ones(256, np.int64))
    shares = np.concatenate([np.full(300, 0.6), np.linspace(0.6, 0.4, 200), np.full(200, 0.4)])
    told = [number for number, share in enumerate(shares)
            if hot.chosen and hot.judge(int(chance.binomial(256, share)), 256)]  # fmt: skip
    assert len(told) == 1
    assert 300 < told[0] < 600


def test_a_hot_set_goes_on_from_its_state_and_is_that_of_all_ranks() -> None:
    chance, hot = np.random.default_rng(1), HotSet(looks=10)
    looks = [draw(chance, 0 if number < 60 else 500_000) for number in range(120)]
    parts = [HotSet(looks=10), HotSet(looks=10)]
    for number, ids in enumerate(looks):
        told = hot.add(ids)
        hits = [part.count(ids[rank::2]) for rank, part in enumerate(parts)]
        merged = added_up([part.collected() for part in parts])
        full = parts[0].full
        for part in parts:
            if full:
                part.choose(*merged)
            else:
                assert part.judge(sum(hits), len(ids)) == told
        if number in (4, 30, 70):
            kept, hot = json.loads(json.dumps(hot.to_raw())), HotSet(looks=10)
            hot.from_raw(kept)
            assert hot.to_raw() == kept
    assert parts[0].usual == hot.usual


def test_packed_numbers_are_unpacked() -> None:
    assert unpacked(packed(np.array([3, -1, 2**62]))).tolist() == [3, -1, 2**62]
