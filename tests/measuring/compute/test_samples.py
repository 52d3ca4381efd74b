"""Samples: case_of case each is of, when its visits agree, and in case_of order samples of a block take turns."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.measuring.compute.samples import (
    AGREE_WITHIN,
    BLOCK_SAMPLES,
    MOST_VISITS,
    SLOW_PROBE,
    VISIT_COLUMNS,
    Sample,
    Schedule,
    Visit,
    judge,
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
    assert judge(0, [], status) == Sample(sample=0, visits=1, status=status)


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


@given(SEEDS, st.integers(0, VISITED - 1))
def test_rows_give_the_schedule_again(seed: int, count: int):
    going_on = Schedule()
    rows = list(visits(going_on, seed, VISITED))
    again = schedule_of(columns(rows[:count]))
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
    kept = schedule_of(columns([row for row in rows if row[0] >= BLOCK_SAMPLES]))
    assert kept.next == (0, 0)
