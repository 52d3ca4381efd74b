"""Planner rnn: its word, that it learns, and what it does without room."""

import pytest
from per_problem_cases import WHOLE, cluster, problem_of_tables, table, workload

from recsmith import NoPlanFound, Space, UsageError
from recsmith.costs import cost_model, step_seconds
from recsmith.planners import Budget
from recsmith.planners.placing import best_split
from recsmith.planning import find_planner
from recsmith.problems import build_problem, fits
from recsmith_per_problem import Rnn, rnn
from recsmith_per_problem.item_prices import ItemPrices


def test_a_word_says_how_many_episodes() -> None:
    assert find_planner("rnn") == Rnn()
    assert find_planner("rnn?episodes=48") == Rnn("rnn?episodes=48", 48)


@pytest.mark.parametrize("word", ["rnn?", "rnn:", "rnn?episodes=0", "rnn?episodes=x", "rnn?steps=3", "rnn?episodes="])
def test_another_word_is_refused_with_the_words_there_are(word: str) -> None:
    with pytest.raises(UsageError, match=r"is no planner; write rnn, or rnn\?episodes=3200 with a number from 1 to"):
        find_planner(word)


def test_it_learns() -> None:
    """Placements that are drawn get better on the mean, not only the best of more and more."""
    problem = problem_of_tables(20)
    evaluator = cost_model().compile(problem)
    split = best_split(problem, evaluator)
    assert split is not None
    training = rnn._Training(split.items, ItemPrices.of(split.items, evaluator), seed=0)
    training.update(32)
    first = training.baseline
    for _ in range(60):
        training.update(32)
    assert first is not None
    assert training.baseline is not None
    assert training.baseline > first + 0.08  # rewards are minus the step, over that of an even share


def test_its_plan_is_the_best_that_was_drawn() -> None:
    problem = problem_of_tables(12)
    evaluator = cost_model().compile(problem)
    first, last = (Rnn().plan(problem, evaluator, budget=Budget(iterations=n)) for n in (1, 10))
    assert last.total_s < first.total_s
    assert last.total_s == step_seconds(evaluator, last.footprint)
    assert (first.iterations, last.iterations) == (1, 10)


def test_episodes_bound_the_iterations() -> None:
    problem = problem_of_tables(5)
    found = find_planner(f"rnn?episodes={rnn.BATCH + 1}").plan(problem, cost_model().compile(problem))
    assert found.iterations == 2


def test_where_no_episode_has_room_tables_go_longest_first_or_there_is_one_sentence() -> None:
    size = 1000 * 64 * 4
    tables = [table(f"t{i}", rows, 64, 5.0) for i, rows in enumerate((1000, 1000, 700, 600, 500, 150))]
    work = workload(*tables, batch_size=1)
    rows = build_problem(work, cluster(2, hbm=size * 2), Space(types=("table_wise", "row_wise"), kernels=("fused",)))
    found = find_planner("rnn?episodes=8").plan(rows, cost_model().compile(rows))
    assert fits(rows, found.footprint)
    assert found.left_out == ("rnn: no placement that was drawn had room for every table; they went longest first",)
    full = build_problem(work, cluster(2, hbm=int(size * 1.2)), WHOLE)
    with pytest.raises(NoPlanFound, match=r"planner rnn\?episodes=8 found no room for every table"):
        find_planner("rnn?episodes=8").plan(full, cost_model().compile(full))


def test_too_many_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnn, "MOST_ITEMS", 4)
    problem = problem_of_tables(5)
    with pytest.raises(UsageError, match="takes up to 4 pieces of tables; this problem has 5: use planner dreamshard"):
        Rnn().plan(problem, cost_model().compile(problem))


def test_an_interrupt_leaves_the_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, update = problem_of_tables(8), rnn._Training.update
    calls: list[int] = []

    def interrupted(training: rnn._Training, count: int) -> object:
        calls.append(count)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return update(training, count)

    monkeypatch.setattr(rnn._Training, "update", interrupted)
    found = Rnn().plan(problem, cost_model().compile(problem))
    assert (found.truncated, found.iterations) == (True, 2)
