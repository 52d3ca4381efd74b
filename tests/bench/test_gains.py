"""Figures of hand-made tasks: medians of ranks over visits, means of ratios over tasks, and their intervals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.benched import SETTINGS

from recsmith._types import Floats
from recsmith.bench.gains import (
    ALL,
    ESTIMATES,
    LEAST_TASKS,
    RESAMPLES,
    mean_of_tasks,
    planning_medians,
    references,
    row_gains,
    steps_of,
    tables_of,
    verdict,
)
from recsmith.bench.journal import MeasuredVisit
from recsmith.bench.sharding import BenchResults


def visits(name: str, comm: float = 0.0, **ready: list[float]) -> list[MeasuredVisit]:
    """The visits of a task of two ranks: the second takes what is given, half of it forward, the first a third."""
    return [
        MeasuredVisit(
            task=name, visit=visit, comm={word: np.full((2, 2), comm) for word in ready},
            kernels={word: np.array([[s[visit] / 6] * 2, [s[visit] / 2] * 2]) for word, s in ready.items()},
            probe_s=1.0, device="d", versions="v", date="2026-01-01", elapsed_s=1.0,
        )
        for visit in range(len(ready["auto"]))
    ]  # fmt: skip


def task(name: str, **ready: list[float]) -> dict[str, Floats]:
    """The steps of the plans of such a task."""
    return steps_of(visits(name, 0.0, **ready), "median")


def test_a_step_is_that_of_the_slowest_rank_and_the_collectives():
    made = visits("a", comm=0.25, auto=[2.0, 3.0, 9.0])
    found = steps_of(made, "median")["auto"]
    assert found[0] == pytest.approx(3.5)  # backward before, forward after the kernels
    assert set(np.round(found, 6)) == {2.5, 3.5, 9.5}  # medians of three visits, drawn with replacement
    assert steps_of(made, "kernels")["auto"][0] == pytest.approx(3.0)
    assert set(np.round(steps_of(made, "fastest")["auto"], 6)) == {2.5}


def test_a_rank_that_is_disturbed_in_one_visit_does_not_make_the_step_longer():
    made = visits("a", auto=[1.0, 1.0, 1.0])
    for rank, visit in enumerate(made[:2]):  # in each visit another rank
        visit.kernels["auto"][:] = 1.0
        visit.kernels["auto"][rank] = 5.0
    made[2].kernels["auto"][:] = 1.0
    assert steps_of(made, "median")["auto"][0] == 2.0


def test_the_fastest_visit_is_that_of_each_rank_forward_and_backward():
    first, second = visits("a", auto=[1.0, 1.0])
    first.kernels["auto"][:] = [[1.0, 5.0], [2.0, 1.0]]
    second.kernels["auto"][:] = [[3.0, 1.0], [1.0, 2.5]]
    assert steps_of([first, second], "fastest")["auto"][0] == pytest.approx(2.0)  # 1 + 1 on both ranks


def test_a_figure_is_the_mean_over_tasks_of_ratios_of_steps():
    tasks = [
        task("a", auto=[1.0, 2.0, 4.0], size_greedy=[1.1, 2.4, 4.4]),  # +20 % of the medians
        task("b", auto=[1.0, 1.0, 1.0], size_greedy=[1.5, 1.3, 1.0]),  # +30 %
    ]
    row = row_gains("4x4", tasks, "auto", ("auto", "size_greedy"))
    (gain,) = row.gains
    assert gain.interval is not None
    assert gain.interval.value == pytest.approx((0.2 + 0.3) / 2)
    assert 0 <= gain.interval.low < gain.interval.value < gain.interval.high <= 0.5
    assert (row.tasks, gain.tasks) == (2, 2)
    assert row.step_s == pytest.approx((2.0 + 1.0) / 2)
    assert gain.step_s == pytest.approx((2.4 + 1.3) / 2)
    assert not gain.worse


def test_a_planner_without_a_plan_is_left_out_of_its_mean():
    tasks = [task("a", auto=[1.0], dim_greedy=[2.0]), task("b", auto=[1.0])]
    row = row_gains("4x4", tasks, "auto", ("auto", "dim_greedy", "random"))
    gain, none = row.gains
    assert (gain.tasks, none.tasks, none.interval, none.step_s) == (1, 0, None, None)
    assert gain.interval is not None
    assert gain.interval.value == gain.interval.low == gain.interval.high == 1.0


def test_what_slows_a_whole_visit_is_in_no_ratio():
    took = np.array([1.0, 3.0, 1.5, 1.0, 2.0])
    tasks = [task(name, auto=took.tolist(), random=(1.03 * took).tolist()) for name in "ab"]
    row = row_gains("4x4", tasks, "auto", ("auto", "random"))
    found = row.gains[0].interval
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.03, 0.03, 0.03))


def test_spread_ratios_have_the_interval_of_their_mean():
    values = np.random.default_rng(1).normal(0.1, 0.05, (144, 1))
    found = mean_of_tasks(np.repeat(values, 1 + RESAMPLES, axis=1))
    assert found.value == pytest.approx(values.mean())
    half = 1.96 * values.std() / 12
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)
    assert RESAMPLES >= 1000


def test_the_verdict_counts_rows_and_names_who_is_better():
    better = row_gains("4x4", [task("a", auto=[1.0], size_greedy=[1.4], dim_greedy=[1.2])] * 5, "auto",
                     ("auto", "size_greedy", "dim_greedy"))  # fmt: skip
    worse = row_gains("4x8", [task("b", auto=[1.0], size_greedy=[1.4], dim_greedy=[0.9])] * 5, "auto",
                    ("auto", "size_greedy", "dim_greedy"))  # fmt: skip
    assert better.best_greedy is not None
    assert better.best_greedy.planner == "dim_greedy"
    said = verdict([better, worse], "auto")
    assert (said.better, said.worse, said.rows) == (("4x4",), (("4x8", "dim_greedy"),), 2)


def test_a_row_without_measurements_says_nothing():
    row = row_gains("4x4", [], "auto", ("auto", "size_greedy"))
    assert (row.step_s, row.best_greedy, row.gains[0].tasks) == (None, None, 0)
    assert verdict([row], "auto").rows == 0


def test_few_tasks_tell_nothing_apart():
    for tasks, told in ((LEAST_TASKS - 1, False), (LEAST_TASKS, True)):
        row = row_gains("4x4", [task("a", auto=[1.0], size_greedy=[2.0], dim_greedy=[0.5])] * tasks, "auto",
                      ["size_greedy", "dim_greedy"])  # fmt: skip
        assert [(gain.better, gain.worse) for gain in row.gains] == [(told, False), (False, told)]


def test_planners_are_compared_with_auto_and_neuroshard_where_they_take_part(whole: tuple[Path, BenchResults]):
    words = ("random", "neuroshard", "auto@torchrec", "auto")
    changed = replace(whole[1], settings=replace(SETTINGS, planners=words))
    assert references(changed) == ("auto@torchrec", "auto", "neuroshard")
    assert references(whole[1]) == ("random",)


def test_a_table_has_the_rows_and_that_of_all_by_every_estimate(whole: tuple[Path, BenchResults]):
    (table,) = tables_of(whole[1])
    assert tuple(table.rows) == ESTIMATES
    assert table.main_rows == table.rows["median"]
    assert [(row.row, row.tasks) for row in table.main_rows] == [("4x64", 1), ("4x128", 1), (ALL, 2)]
    assert table.verdict("median").rows == 0  # no classic greedy takes part: size_greedy has a cost model of its own


def test_all_tasks_count_as_many_visits_as_the_one_with_the_fewest(whole: tuple[Path, BenchResults]):
    found = whole[1]
    last = next(key for key in found.measured if key[1] == 1)
    fewer = replace(found, measured={key: each for key, each in found.measured.items() if key != last})
    one = replace(found, measured={key: each for key, each in found.measured.items() if key[1] == 0})
    assert tables_of(fewer) == tables_of(one) != tables_of(found)


def test_planning_takes_its_median_over_tasks(whole: tuple[Path, BenchResults]):
    attempts = [each.plan_s for each in whole[1].attempts.values() if each.planner == "random"]
    medians = planning_medians(whole[1])
    assert medians["random"] == pytest.approx(sum(attempts) / 2)
    none = planning_medians(replace(whole[1], attempts={}))["random"]
    assert none != none
