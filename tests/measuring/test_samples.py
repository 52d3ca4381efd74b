"""Steady samples as arrays: the same from parquet, journal or both; nothing of samples that are not steady."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.measured import Stub, answer

from recsmith.errors import MissingExtra, UsageError
from recsmith.hardware import SCALES, Case, Measurement, load_hardware
from recsmith.measuring import folder as folders
from recsmith.measuring import parquet_parts
from recsmith.measuring.about import About, load_about
from recsmith.measuring.cases import Cases, case_of
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.folder import Limit, open_folder
from recsmith.measuring.samples import (
    AGREE_WITHIN,
    BLOCK_SAMPLES,
    MOST_VISITS,
    SLOW_PROBE,
    VISIT_COLUMNS,
    KernelSample,
    Samples,
    Schedule,
    Visit,
    judge,
    read_samples,
    schedule_of,
)

Told = tuple[int, int, str, Visit | None]  # sample, its how manieth visit, status, seconds
SEEDS = st.integers(0, 10**6)
VISITED = BLOCK_SAMPLES * MOST_VISITS + 20  # visits: the first block is over
TIMES = st.floats(1e-6, 1.0)
PAIRS = st.lists(st.builds(Visit, TIMES, TIMES, TIMES), min_size=2, max_size=MOST_VISITS)

# --- a sample ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("totals", "status", "apart"),
    [
        ((), "open", None),
        ((1.0,), "open", None),
        ((1.0, 1.0), "ok", 0.0),
        ((1.0, 1.04), "ok", 0.04),
        ((1.0, 1.06), "open", 0.06),
        ((2.0, 1.06, 1.0), "open", 0.06),
        ((2.0, 1.0, 1.5, 1.03), "ok", 0.03),
        ((2.0, 2.0, 1.0), "open", 1.0),
        ((1.0, 1.1, 1.2, 1.3, 1.4), "unsteady", 0.1),
        ((1.4, 1.3, 1.2, 1.1, 1.14), "ok", 1.14 / 1.1 - 1),
    ],
)
def test_the_two_fastest_visits_decide(totals: tuple[float, ...], status: str, apart: float | None):
    found = judge(3, [Visit(total / 4, total * 3 / 4, 1.0) for total in totals])
    assert (found.sample, found.visits, found.status) == (3, len(totals), status)
    assert found.apart == (None if apart is None else pytest.approx(apart))
    assert found.over == (status != "open")


def test_forward_and_backward_are_each_the_fastest():
    found = judge(0, [Visit(1.0, 2.0, 1.0), Visit(1.02, 1.97, 0.9), Visit(5.0, 1.5, 1.1)])
    assert (found.status, found.forward_s, found.backward_s, found.probe_s) == ("ok", 1.0, 1.5, 0.9)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_visits_does_not_matter(visits: list[Visit], dice: Random):
    assert judge(0, dice.sample(visits, len(visits))) == judge(0, visits)


@given(PAIRS)
def test_a_slower_visit_changes_nothing_but_that_no_more_follow(visits: list[Visit]):
    before, after = judge(0, visits), judge(0, [*visits, Visit(2.0, 2.0, 2.0)])
    assert (after.forward_s, after.backward_s, after.apart) == (before.forward_s, before.backward_s, before.apart)
    assert (after.status == "ok") == (before.status == "ok")


@given(PAIRS, st.sampled_from(["out_of_memory", "failed", "interrupted"]))
def test_a_visit_that_fails_ends_a_sample(visits: list[Visit], status: str):
    found = judge(0, visits, status)
    assert (found.status, found.over, found.visits) == (status, True, len(visits) + 1)
    assert judge(0, [], status) == KernelSample(sample=0, visits=1, status=status)


# --- the schedule ------------------------------------------------------------------------------------------------


def hardware(seed: int, sample: int, visit: int) -> tuple[str, Visit | None]:
    """One that now and then fails, and is now and then slowed down."""
    dice = Random(f"{seed} {sample} {visit}")
    if dice.random() < 0.03:
        return "failed", None
    slower = 1 + dice.random() ** 3
    return "ok", Visit(slower, 2 * slower, 1.0)


def visits(schedule: Schedule, seed: int, count: int) -> Iterator[Told]:
    """The next visits of a schedule."""
    for _ in range(count):
        sample, visit = schedule.next
        status, seconds = hardware(seed, sample, visit)
        schedule.note(sample, status, seconds)
        yield sample, visit, status, seconds


def columns(rows: list[Told]) -> dict[str, list[Any]]:
    told = [(sample, status, *(seconds or (None, None, None))) for sample, _, status, seconds in rows]
    return {name: [row[i] for row in told] for i, name in enumerate(VISIT_COLUMNS)}


@given(SEEDS)
def test_samples_of_a_block_take_turns_until_all_are_over(seed: int):
    schedule = Schedule()
    rows = list(visits(schedule, seed, VISITED))
    order = [(sample // BLOCK_SAMPLES, visit, sample) for sample, visit, *_ in rows]
    assert order == sorted(set(order))
    block = order[-1][0]
    assert block > 0
    assert [each.over for each in schedule][: block * BLOCK_SAMPLES] == [True] * block * BLOCK_SAMPLES
    assert [each.sample for each in schedule][: block * BLOCK_SAMPLES] == list(range(block * BLOCK_SAMPLES))


@given(SEEDS)
def test_a_sample_is_visited_until_two_agree_or_one_fails(seed: int):
    schedule = Schedule()
    rows = list(visits(schedule, seed, VISITED))
    for found in schedule:
        mine = [row for row in rows if row[0] == found.sample]
        assert [visit for _, visit, *_ in mine] == list(range(found.visits))
        assert found.visits <= MOST_VISITS
        totals = [seconds.forward_s + seconds.backward_s for *_, seconds in mine if seconds]
        steady = [
            judge(0, [Visit(total, 0.0, 1.0) for total in totals[:count]]).status for count in range(len(totals) + 1)
        ]
        assert "ok" not in steady[:-1]
        assert found.status == (mine[-1][2] if mine[-1][2] != "ok" else steady[-1])
        assert (found.status == "unsteady") == (
            found.visits == MOST_VISITS == len(totals) and (found.apart or 0) > AGREE_WITHIN
        )
    assert schedule.steady == [each.status for each in schedule].count("ok")


def test_one_visit_of_a_gpu_is_a_steady_sample() -> None:
    rows: list[Told] = [(0, 0, "ok", Visit(1.0, 2.0, 0.1)), (1, 0, "failed", None)]
    assert [each.status for each in schedule_of(columns(rows), "cuda")] == ["ok", "failed"]
    assert [each.status for each in schedule_of(columns(rows), "cpu")] == ["open", "failed"]


@given(SEEDS, st.integers(0, VISITED - 1))
def test_rows_give_the_schedule_again(seed: int, count: int):
    going_on = Schedule()
    rows = list(visits(going_on, seed, VISITED))
    again = schedule_of(columns(rows[:count]), "cpu")
    assert again.next == rows[count][:2]
    assert list(visits(again, seed, VISITED - count)) == rows[count:]
    assert list(again) == list(going_on)
    assert again.steady == going_on.steady


def test_without_noise_a_sample_takes_two_visits():
    schedule = Schedule()
    for _ in range(2 * BLOCK_SAMPLES):
        schedule.note(schedule.next[0], "ok", Visit(1.0, 2.0, 1.0))
    assert schedule.steady == BLOCK_SAMPLES
    assert {each.visits for each in schedule} == {2}
    assert schedule.next == (BLOCK_SAMPLES, 0)


def test_samples_of_slow_minutes_are_set_aside():
    schedule = Schedule()
    for turn in range(4 * BLOCK_SAMPLES):
        sample, _ = schedule.next
        slow = sample >= BLOCK_SAMPLES and sample % 4 == 0  # all visits of these
        schedule.note(sample, "ok", Visit(1.0, 2.0, 1.01 * SLOW_PROBE if slow else 1.0 if turn % 2 else SLOW_PROBE))
    assert [each.status for each in schedule] == ["ok"] * BLOCK_SAMPLES + ["slowed", "ok", "ok", "ok"] * (
        BLOCK_SAMPLES // 4
    )
    assert schedule.steady == 2 * BLOCK_SAMPLES - BLOCK_SAMPLES // 4


def test_samples_whose_rows_are_lost_are_visited_again():
    schedule = Schedule()
    rows = list(visits(schedule, 0, VISITED))
    kept = schedule_of(columns([row for row in rows if row[0] >= BLOCK_SAMPLES]), "cpu")
    assert kept.next == (0, 0)


CASES = Cases(seed=0, scale=SCALES["check"])
FIELDS = tuple(Samples.__dataclass_fields__)


def say(case: Case, visit: int) -> Measurement:
    """Cases 3, 4 and 5 fail, never agree, and get faster in forward, slower in backward."""
    if case.number == 3:
        return Measurement(status="failed", message="odd")
    if case.number == 4:
        return answer(case, seconds=1 + visit)
    if case.number == 5:
        return answer(case, forward_s=1 - 0.01 * visit, backward_s=2 + 0.01 * visit)
    return answer(case, seconds=1 + case.number)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal: samples 3 and 4 failed and unsteady, 18 of the first block steady, 1 of the next, the others open."""
    monkeypatch.setattr(folders, "has_pyarrow", lambda: False)
    measure_compute(Stub(say), CASES, tmp_path, Limit(samples=BLOCK_SAMPLES - 1))
    return tmp_path


def fold(path: Path) -> None:
    with open_folder(path, load_about(path)) as opened:
        opened.fold()


def test_steady_samples_have_the_figures_of_their_cases(folder: Path):
    found = read_samples(folder)
    assert found.sample.tolist() == [sample for sample in range(BLOCK_SAMPLES + 1) if sample not in (3, 4)]
    assert found.number.tolist() == [case_of(sample)[0] for sample in found.sample.tolist()]
    assert (found.start[0], found.start[-1], len(found)) == (0, len(found.rows), 19)
    for i, number in enumerate(found.number.tolist()):
        case, tables = CASES.case(number), slice(*found.start[i : i + 2].tolist())
        assert (found.optimizer[i], found.data_type[i]) == (case.workload.optimizer, case.data_type)
        assert found.batch_size[i] == case.workload.batch_size
        assert found.rows[tables].tolist() == [table.num_embeddings for table in case.tables]
        assert found.dim[tables].tolist() == [table.embedding_dim for table in case.tables]
        assert found.pooling_factor[tables].tolist() == [table.features[0].pooling_factor for table in case.tables]
        assert found.zipf[tables].tolist() == [table.access and table.access.zipf for table in case.tables]
        assert found.lookups[tables].tolist() == found.unique_rows[tables].tolist() == list(case.lookups)
        assert (found.owner[tables] == i).all()


def test_a_sample_takes_its_fastest_forward_and_backward(folder: Path):
    found = read_samples(folder)
    assert (found.forward_s[3], found.backward_s[3]) == (0.99, 2.0)
    others = np.delete(np.arange(len(found)), 3)
    assert found.forward_s[others].tolist() == (1 + found.number[others]).tolist()
    assert found.backward_s[others].tolist() == (2 + 2 * found.number[others]).tolist()


def test_parts_and_journal_say_the_same(folder: Path):
    pytest.importorskip("pyarrow")
    before = read_samples(folder)
    fold(folder)
    after = read_samples(folder)
    measure_compute(Stub(say), CASES, folder, Limit(samples=BLOCK_SAMPLES + 10))
    both = read_samples(folder)
    assert len(both) == BLOCK_SAMPLES + 10
    for name in FIELDS:
        first, again, more = (getattr(each, name) for each in (before, after, both))
        assert (first.dtype, first.shape) == (again.dtype, again.shape)
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, more[: len(first)])


def test_reuse_bins_are_of_each_table(tmp_path: Path):
    hardware = load_hardware("simulated:h100", "check")
    measure_compute(hardware, CASES, tmp_path, Limit(samples=5))
    found = read_samples(tmp_path)
    assert found.reuse_bins.shape == (len(found.rows), 17)
    assert found.reuse_bins.sum(axis=1).tolist() == found.unique_rows.tolist()


@pytest.mark.parametrize("folded", [False, True])
def test_a_folder_without_steady_samples_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folded: bool):
    def odd(case: Case, visit: int) -> Measurement:
        if case.number:
            raise KeyboardInterrupt
        return Measurement(status="failed")

    monkeypatch.setattr(folders, "has_pyarrow", lambda: False)
    measure_compute(Stub(odd), CASES, tmp_path, Limit(samples=1))
    if folded:
        pytest.importorskip("pyarrow")
        fold(tmp_path)
    found = read_samples(tmp_path)
    assert (len(found), found.start.tolist(), found.reuse_bins.shape) == (0, [0], (0, 17))


def test_exchanges_are_no_samples(tmp_path: Path):
    with open_folder(tmp_path, About(kind="comm", hardware="local ranks", seed=0, ranks=2)):
        pass
    with pytest.raises(UsageError, match="holds comm measurements of local ranks, seed 0, 2 ranks; samples are of"):
        read_samples(tmp_path)


def test_parts_need_pyarrow_and_a_journal_does_not(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(parquet_parts, "find_spec", missing)
        assert len(read_samples(folder)) == BLOCK_SAMPLES - 1
    pytest.importorskip("pyarrow")
    fold(folder)
    monkeypatch.setattr(parquet_parts, "find_spec", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'pyarrow>=20'"):
        read_samples(folder)
