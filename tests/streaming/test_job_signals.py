"""Signals of a job by its sums: each fault is named once, clean looks say nothing, state goes on; hot sets."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("river")

from recsmith._random import mixed, unmixed
from recsmith.errors import CorruptFile
from recsmith.streaming.causes import Causes
from recsmith.streaming.column_levels import LEVELS, ColumnLevels
from recsmith.streaming.frequent_ids import FrequentIds
from recsmith.streaming.hot_sets import HotSet, added_up, packed, unpacked
from recsmith.streaming.job_signals import CAUSES, SIGNALS, JobSignals
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.levels import Levels
from recsmith.streaming.likely_causes import with_cause

LAYOUT = JobLayout(("f", "g"), ("d",), 3, ((1.0, 0.0, 0.0), (0.0, 0.5, 0.5)), ("click",))
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
        "empty": [0, 25 + int(chance.integers(-5, 6))], "step_s": 0.05 + 0.002 * chance.random(),
    }  # fmt: skip
    if change is not None:
        change(parts)
    sums = JobSums(LAYOUT)
    sums.add_predictions(parts["logits"], parts["labels"])
    sums["samples"], sums["rows"], sums["loss"] = SAMPLES, SAMPLES, sums["entropy"]
    for name in ("gradient", "checked", "repeated"):
        sums[name] = parts[name]
    sums["dense_rate"] = parts["rate"]
    for row, ids in enumerate(parts["ids"]):
        sums.features[row, :2] = parts["lookups"][row], SAMPLES
        sums.add_ids(row, ids, parts["hits"][row] if len(ids) else 0)
    sums.features[:, 8] = parts["empty"]
    sums.add_dense(parts["dense"][:, None])
    sums.labels[0, :2] = parts["labels"].sum(), SAMPLES
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
    "label_rate": (lambda parts: parts.update(labels=parts["labels"] * (np.arange(SAMPLES) % 2)), "label 'click' is "),
    "dense_mean": (lambda parts: parts.update(dense=parts["dense"] + 3), "the mean of dense column 'd' is "),
    "dense_spread": (lambda parts: parts.update(dense=(parts["dense"] - 3) * 100), "deviation of dense column 'd' is "),
    "missing_values": (
        lambda parts: parts.update(dense=parts["dense"] * (np.arange(SAMPLES) % 5 > 1)),
        "of dense column 'd' are missing (0, or no number) since step 4",
    ),
    "frequent_id": (
        lambda parts: parts["ids"].__setitem__(0, np.where(np.arange(256) % 10 < 3, 7, parts["ids"][0])),
        "more of the ids of feature 'f' than before are 7",
    ),
    "slow_rank": (lambda parts: parts.update(own=[0.01, 0.04, 0.01]), "rank 1 is slow: its own work takes 40.0 ms"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_named_once_within_100_steps(kind: str) -> None:
    signals = JobSignals(LAYOUT)
    assert run(signals, 60) == []
    change, said = FAULTS[kind]
    found = [finding for finding in run(signals, 12, change, seed=1, first=480) if finding.kind not in SIGNALS]
    assert [finding.kind for finding in found] == [kind]
    assert said in found[0].because
    assert re.search(r": .*; look at \S", found[0].because)  # what it may mean, and where to look
    assert found[0].step < 480 + 96


def test_a_job_that_begins_where_another_ended_judges_its_data_from_the_first_look_and_nothing_of_the_job() -> None:
    yesterday, today = JobSignals(LAYOUT), JobSignals(LAYOUT)
    assert run(yesterday, 60) == []
    today.from_raw(json.loads(json.dumps(yesterday.to_raw())))
    today.forget_job()
    elsewhere = {"rate": 0.1, "own": [0.01, 0.04, 0.01], "step_s": 1.5, "gradient": 9.0}  # another job, all of it well
    lost = FAULTS["label_rate"][0]
    found = run(today, 5, lambda parts: (parts.update(elsewhere), lost(parts)), seed=1, first=8)
    assert [finding.kind for finding in found] == ["ne", "calibration", "label_rate"]
    assert found[2].because.startswith("label 'click' is 0.")
    assert 1 <= found[2].step <= 8, "since the first look, and not since a step of yesterday"


def test_columns_that_stay_are_judged_from_the_first_look_where_others_come_and_go() -> None:
    grown = JobLayout(("h", "g", "f"), ("e",), 3, ((1.0, 0.0, 0.0),) * 3, LAYOUT.labels)

    def judged(fault: Change | None) -> list[Any]:
        signals, chance = JobSignals(LAYOUT), np.random.default_rng(1)
        assert run(signals, 60) == []
        signals.relaid(grown)
        signals.forget_job()
        return [each for step in range(12) for each in signals.look(8 * step, with_columns(look(chance, fault), grown))]

    assert judged(None) == []
    for kind in ("constant_feature", "empty_feature", "label_rate", "frequent_id"):
        assert kind in [each.kind for each in judged(FAULTS[kind][0])]


def with_columns(sums: JobSums, layout: JobLayout) -> JobSums:
    """The sums of a look, of features in another order with one that is like `f`, and of a dense column 3 times `d`."""
    made, rows = JobSums(layout), [LAYOUT.features.index(name if name in "fg" else "f") for name in layout.features]
    for name, part in made.parts.items():
        part[...] = sums.parts[name][rows] if name in ("features", "bits", "buckets") else sums.parts[name]
    made.dense *= 3
    return made


def test_what_no_cause_explains_is_told_by_its_signal() -> None:
    signals = JobSignals(LAYOUT)
    assert run(signals, 60) == []
    found = run(signals, 10, lambda parts: parts.update(gradient=9.0), seed=1)
    assert [finding.kind for finding in found] == ["gradient_norm"]
    assert "is 9, and was 1 before: values of a column may be far off" in found[0].because
    calm = JobSignals(LAYOUT, kinds=("loss",))
    assert run(calm, 60) + run(calm, 10, FAULTS["flipped_labels"][0], seed=1)[1:] == []


def test_every_kind_says_what_it_may_mean_and_where_to_look() -> None:
    for kind in (*SIGNALS, *CAUSES):
        if kind in LEVELS:
            continue  # which say it themselves
        for up in (True, False):
            said = with_cause("told", kind, up=up)
            assert said.startswith("told: ")
            assert "look " in said
    assert with_cause("it is 2", "calibration", up=False) != with_cause("it is 2", "calibration")


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
    for other in (1, 3):  # features
        with pytest.raises(ValueError, match="reshape"):
            FrequentIds(2).from_raw(FrequentIds(other).to_raw())
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


# --- levels of columns --------------------------------------------------------------------------------------------


def test_bags_without_ids_and_lost_labels_are_told_at_any_rate() -> None:
    signals = JobSignals(LAYOUT)
    assert run(signals, 60) == []
    found = run(signals, 12, lambda parts: parts.update(empty=[256, 25], labels=np.zeros(SAMPLES)), seed=1)
    said = {(finding.kind, finding.of): finding.because for finding in found if finding.kind not in SIGNALS}
    assert set(said) == {("missing_values", "f"), ("label_rate", "click")}
    assert said["label_rate", "click"].startswith("label 'click' is 0 on average since step ")
    assert said["missing_values", "f"].startswith("50% of the samples have no id of feature 'f' since step ")
    assert said["missing_values", "f"].endswith(": a part of its source may be gone; look at what fills it")

    few = Levels(["rate"])
    chance = np.random.default_rng(0)
    noise = np.array([np.sqrt(0.03 * 0.97 / 512)])
    rates = [chance.binomial(512, 0.03 if look < 200 else 0.01) / 512 for look in range(260)]
    moved = [look for look, rate in enumerate(rates) if few.add(np.array([rate]), noise)[0]]
    assert 200 < moved[0] < 220


@pytest.mark.parametrize("seed", range(3))
def test_columns_of_any_law_are_calm(seed: int) -> None:
    """Rare values, heavy tails, columns that are constant or mostly missing, labels that are few, ids of few rows."""
    chance = np.random.default_rng(seed)
    laws = (
        lambda: chance.lognormal(0, 2, SAMPLES), lambda: chance.standard_t(2.5, SAMPLES),
        lambda: (chance.random(SAMPLES) < 0.002) * 1e4, lambda: chance.poisson(0.5, SAMPLES).astype(float),
        lambda: np.full(SAMPLES, 4.0), lambda: (chance.random(SAMPLES) < 0.1) * chance.normal(0, 1, SAMPLES),
    )  # fmt: skip
    names = tuple(f"d{column}" for column in range(len(laws)))
    layout = JobLayout(("two", "sorted", "zipf"), names, 1, ((1.0,),) * 3, ("rare", "often"))
    levels, frequent = ColumnLevels(layout), FrequentIds(3)
    for number in range(800):
        sums = JobSums(layout)
        sums["rows"] = SAMPLES
        sums.add_dense(np.stack([law() for law in laws], 1))
        sums.labels[:, 0], sums.labels[:, 1] = chance.binomial(SAMPLES, (0.004, 0.3)), SAMPLES
        ids = (chance.integers(0, 2, 256), number + chance.integers(0, 500, 256), chance.zipf(1.3, 256) % 10_000)
        for row, drawn in enumerate(ids):
            sums.features[row, :2], sums.features[row, 8] = SAMPLES, chance.binomial(SAMPLES, 0.02)
            sums.add_ids(row, drawn.astype(np.int64), 0)
        assert list(levels.faults(sums)) == []
        assert list(frequent.look(sums)) == []


@given(st.integers(0, 2**40 - 1), st.integers(0, 5), st.sampled_from([3, 1000, 10**9]))
def test_the_one_id_is_found_by_its_bits(one: int, seed: int, rows: int) -> None:
    chance, layout = np.random.default_rng(seed), JobLayout(("f",), (), 1, ((1.0,),))
    assert unmixed(mixed(np.array([one], np.uint64)))[0] == one
    frequent = FrequentIds(1)
    for look in range(40):
        drawn = chance.integers(0, rows, 256)
        sums = JobSums(layout)
        sums.add_ids(0, np.where((chance.random(256) < 0.3) & (look >= 20), one, drawn), 0)
        found = list(frequent.look(sums))
        assert not found or look >= 20
        if found:
            assert found[0][:2] == (0, one)
            assert found[0][2] > 0.1
            assert look <= 25
            return
    pytest.fail("not found")


def test_sums_go_on_from_their_state_and_leave_out_times_of_other_ranks() -> None:
    sums = look(np.random.default_rng(0))
    whole, fewer = JobSums(LAYOUT), JobSums(LAYOUT)
    kept = json.loads(json.dumps(sums.to_raw()))
    whole.take(kept)
    assert (whole.vector == sums.vector).all()
    fewer.take({**kept, "ranks": kept["ranks"][:2]})
    assert not fewer.ranks.any()
    assert (fewer.features == sums.features).all()


@pytest.mark.parametrize(
    "part",
    [np.full(64, np.nan).view(np.int64), np.full(64, 9.0).view(np.int64), np.array([-3]), np.full((1, 1, 65), -1)],
    ids=["no-share", "large-share", "looks", "counts"],
)  # fmt: skip
def test_counts_of_bits_that_cannot_be_are_refused(part: np.ndarray) -> None:
    place = {64: 0, 1: 1, 65: 2}[part.size]
    raw = FrequentIds(1).to_raw()
    raw["_kept"][place] = packed(part.ravel())
    with pytest.raises(CorruptFile, match="it is damaged"):
        FrequentIds(1).from_raw(raw)


@pytest.mark.parametrize("wrong", [-1.0, 1e300, float("nan")])
@pytest.mark.parametrize("part", ["features", "bits"])
def test_sums_that_cannot_be_are_refused(part: str, wrong: float) -> None:
    raw = JobSums(LAYOUT).to_raw()
    raw[part][0][0] = wrong
    with pytest.raises(CorruptFile, match=f"too much, of {part}; it is damaged"):
        JobSums(LAYOUT).take(raw)


def test_a_deviation_that_no_column_has_is_no_error() -> None:
    levels, sums = ColumnLevels(LAYOUT), JobSums(LAYOUT)
    levels.levels.usual[levels.levels.names.index(f"spread/{LAYOUT.dense[0]}")] = 1e6
    sums["rows"] = 100.0
    sums.dense[:, :2] = 100.0
    assert list(levels.faults(sums)) == []
