"""Figures of hand-made tasks: ratios within visits, medians over visits, means over tasks, and their intervals."""

import numpy as np
import pytest

from recsmith.bench.book import Measured
from recsmith.bench.gains import RESAMPLES, bootstrap_tasks, figures, seconds_of, verdict


def task(name: str, comm: float = 0.0, **ready: list[float]) -> Measured:
    """A task of two ranks: the second takes what is given in each visit, half of it forward, the first a third."""
    kernels = {
        word: np.array([[[second / 6, second / 6], [second / 2, second / 2]] for second in seconds])
        for word, seconds in ready.items()
    }
    return Measured(
        task=name, kernels=kernels, comm={word: np.full((2, 2), comm) for word in ready},
        probe_s=(1.0,), device="d", versions="v", date="2026-01-01", elapsed_s=1.0,
    )  # fmt: skip


def test_a_step_is_that_of_the_slowest_rank_and_the_collectives():
    made = task("a", comm=0.25, auto=[2.0, 3.0])
    assert seconds_of(made)["auto"] == pytest.approx([2.5, 3.5])  # backward before, forward after the kernels
    assert seconds_of(made, kernels_only=True)["auto"] == pytest.approx([2.0, 3.0])


def test_a_figure_is_the_mean_over_tasks_of_the_medians_over_visits_of_ratios_within_visits():
    tasks = [
        task("a", auto=[1.0, 2.0, 4.0], size_greedy=[1.1, 2.4, 4.4]),  # +10 %, +20 %, +10 %
        task("b", auto=[1.0, 1.0, 1.0], size_greedy=[1.5, 1.3, 1.0]),  # +50 %, +30 %, 0 %
    ]
    row = figures("4x4", tasks, "auto", ("auto", "size_greedy"))
    (gain,) = row.gains
    assert gain.interval is not None
    assert gain.interval.value == pytest.approx((0.1 + 0.3) / 2)
    assert 0 <= gain.interval.low < gain.interval.value < gain.interval.high <= 0.5
    assert (row.tasks, gain.tasks) == (2, 2)
    assert row.step_s == pytest.approx((2.0 + 1.0) / 2)
    assert gain.step_s == pytest.approx((2.4 + 1.3) / 2)
    assert not gain.worse


def test_a_planner_without_a_plan_is_left_out_of_its_mean():
    tasks = [task("a", auto=[1.0], dim_greedy=[2.0]), task("b", auto=[1.0])]
    row = figures("4x4", tasks, "auto", ("auto", "dim_greedy", "random"))
    gain, none = row.gains
    assert (gain.tasks, none.tasks, none.interval, none.step_s) == (1, 0, None, None)
    assert gain.interval is not None
    assert gain.interval.value == gain.interval.low == gain.interval.high == 1.0


def test_equal_values_have_no_interval_and_spread_ones_have_that_of_their_means():
    assert bootstrap_tasks(np.full((12, 5), 0.25)).low == 0.25
    values = np.random.default_rng(1).normal(0.1, 0.05, (144, 1))
    found = bootstrap_tasks(values)
    assert found.value == pytest.approx(values.mean())
    half = 1.96 * values.std() / 12
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)
    assert RESAMPLES >= 1000


def test_the_verdict_counts_rows_and_names_who_is_better():
    better = figures("4x4", [task("a", auto=[1.0], size_greedy=[1.4], dim_greedy=[1.2])] * 3, "auto",
                     ("auto", "size_greedy", "dim_greedy"))  # fmt: skip
    worse = figures("4x8", [task("b", auto=[1.0], size_greedy=[1.4], dim_greedy=[0.9])] * 3, "auto",
                    ("auto", "size_greedy", "dim_greedy"))  # fmt: skip
    assert better.best_greedy is not None
    assert better.best_greedy.planner == "dim_greedy"
    said = verdict([better, worse], "auto")
    assert (said.better, said.worse, said.rows) == (("4x4",), (("4x8", "dim_greedy"),), 2)


def test_a_row_without_measurements_says_nothing():
    row = figures("4x4", [], "auto", ("auto", "size_greedy"))
    assert (row.step_s, row.best_greedy, row.gains[0].tasks) == (None, None, 0)
    assert verdict([row], "auto").rows == 0
