"""What planners keep of a search: the best, the count, and when to stop."""

import pytest
from support.searched import heap, lopsided

from recsmith.costs import step_seconds
from recsmith.errors import UsageError
from recsmith.planners.protocol import Budget, Search
from recsmith.problems import Footprint


def footprints() -> tuple[Footprint, Footprint]:
    """A bad plan and a better one."""
    case, better = lopsided(), heap(lopsided())
    better.target[:6] = 1
    return heap(case).footprint(case.problem), better.footprint(case.problem)


def test_the_best_is_kept_and_each_try_counts() -> None:
    bad, better = footprints()
    heard: list[float] = []
    search = Search(lopsided().evaluator, None, None, heard.append)
    totals = [search.try_(each) for each in (bad, better, bad, None)]
    assert totals == [step_seconds(search.evaluator, bad), search.total_s, totals[0], float("inf")]
    assert search.best is better
    assert search.iterations == 4
    assert heard == [totals[0], totals[1]]


def test_known_seconds_are_believed() -> None:
    bad, better = footprints()
    search = Search(lopsided().evaluator)
    assert search.try_(better, 5.0) == 5.0
    assert search.try_(bad, 4.0) == search.total_s == 4.0
    assert search.best is bad


def test_a_start_is_kept_but_no_iteration() -> None:
    bad, better = footprints()
    search = Search(lopsided().evaluator, None, better)
    search.try_(bad)
    assert search.best is better
    assert search.iterations == 1


def test_at_least_one_iteration_is_made_and_the_caller_may_cancel() -> None:
    bad, _ = footprints()
    search = Search(lopsided().evaluator, Budget(time_limit_s=1e-9), bad, lambda _: True)
    assert not search.stop
    search.try_(None)
    assert search.stop
    assert search.truncated


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_search_without_limits_ends_where_the_caller_cancels(answer: bool | None) -> None:
    bad, _ = footprints()
    search = Search(lopsided().evaluator, None, None, lambda _: answer)
    search.try_(bad)
    assert search.stop == search.truncated == bool(answer)


def test_an_interrupt_counts_what_was_found() -> None:
    bad, _ = footprints()
    search = Search(lopsided().evaluator)
    with pytest.raises(KeyboardInterrupt), search.interruptible():
        raise KeyboardInterrupt
    search.try_(bad)
    with search.interruptible():
        raise KeyboardInterrupt
    solution = search.solution()
    assert solution is not None
    assert solution.truncated


@pytest.mark.parametrize("limits", [{"iterations": 0}, {"time_limit_s": 0.0}, {"time_limit_s": -1.0}])
def test_budgets_that_leave_nothing_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Budget(**limits)  # pyright: ignore[reportArgumentType]
