"""Planner surco: its word, what it learns, its gradient, what it needs, and its assignments against all there are."""

import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from per_problem_cases import BOTH, WHOLE, cluster, drawn_problem, problem_of_tables, table, workload

from recsmith import MissingExtra, NoPlanFound, Space, UsageError
from recsmith.costs import cost_model, step_seconds
from recsmith.planners import Budget
from recsmith.planners.placing import best_split
from recsmith.planning import find_planner
from recsmith.problems import build_problem, fits
from recsmith_per_problem import SurCo, surco
from recsmith_per_problem.arrays import Floats
from recsmith_per_problem.item_prices import ItemPrices
from recsmith_per_problem.surco import NEAR, SOLVER, LinearAssignment, is_installed

needs_solver = pytest.mark.skipif(not is_installed(), reason="needs OR-Tools")


def test_a_word_says_how_many_steps() -> None:
    assert find_planner("surco") == SurCo()
    assert find_planner("surco?steps=9") == SurCo("surco?steps=9", 9)


@pytest.mark.parametrize("word", ["surco?", "surco:", "surco?steps=0", "surco?steps=-1", "surco?episodes=3"])
def test_another_word_is_refused_with_the_words_there_are(word: str) -> None:
    with pytest.raises(UsageError, match=r"is no planner; write surco, or surco\?steps=200 with a number from 1 to"):
        find_planner(word)


@needs_solver
def test_learned_costs_beat_the_placement_that_they_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, solved = LinearAssignment._solve, list[bool]()
    monkeypatch.setattr(LinearAssignment, "_solve", lambda *words: solved.append(True) or solve(*words))
    gained = 0
    for seed, room in product(range(4), (1.1, 1.3)):
        problem = drawn_problem(seed, room)
        evaluator = cost_model("analytic").compile(problem)
        first, last = (SurCo().plan(problem, evaluator, budget=Budget(iterations=n)) for n in (1, 40))
        assert last.total_s == step_seconds(evaluator, last.footprint)
        assert fits(problem, last.footprint)
        gained += last.total_s < first.total_s
    assert gained >= 5
    assert solved


@pytest.mark.parametrize("model", BOTH)
def test_slopes_are_what_single_placements_add_to_the_smoothed_step(model: str) -> None:
    problem = problem_of_tables(9)
    evaluator = cost_model(model).compile(problem)
    split = best_split(problem, evaluator)
    assert split is not None
    prices = ItemPrices.of(split.items, evaluator)
    target = np.arange(9) % 4
    found = surco.slopes(*prices.changes(target), target)
    for item in range(9):
        for device in range(4):
            sums = prices.sums(target[None])[0]
            group, own = int(prices.group[item]), device == target[item]
            without, with_it = sums.copy(), sums.copy()
            without[group, device] -= own * prices.terms[item]
            with_it[group, device] += (not own) * prices.terms[item]
            expected = smoothed(prices, with_it) - smoothed(prices, without)
            assert found[item, device] == pytest.approx(expected, rel=1e-6, abs=1e-12)


def smoothed(prices: ItemPrices, sums: Floats) -> float:
    """The sum of the phases' norms over devices, of summed terms (G, D, k)."""
    loads = prices.loads(sums) * 1e6  # powers of seconds would be 0
    return 1e-6 * float(((loads**surco.SHARPNESS).sum(axis=1) ** (1 / surco.SHARPNESS)).sum())


@needs_solver
def test_where_the_solver_finds_no_room_tables_go_longest_first_or_there_is_one_sentence() -> None:
    size = 1000 * 64 * 4
    tables = [table(f"t{i}", rows, 64, 5.0) for i, rows in enumerate((1100, 1100, 1100, 50))]
    work = workload(*tables, batch_size=1)
    rows = build_problem(work, cluster(2, hbm=size * 2), Space(types=("table_wise", "row_wise"), kernels=("fused",)))
    found = SurCo().plan(rows, cost_model("analytic").compile(rows))
    assert fits(rows, found.footprint)
    assert found.left_out == ("surco: the solver found no room for every table; they went longest first",)
    full = build_problem(work, cluster(2, hbm=int(size * 1.2)), WHOLE)
    with pytest.raises(NoPlanFound, match="surco found no room for every table"):
        SurCo().plan(full, cost_model("analytic").compile(full))


def test_without_the_solver_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surco, "is_installed", lambda: False)
    problem = problem_of_tables(3)
    with pytest.raises(MissingExtra, match=r"planner surco needs OR-Tools: pip install 'ortools>=9.12,<10'; or use"):
        SurCo().plan(problem, cost_model("analytic").compile(problem))


@needs_solver
def test_too_large_a_problem_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surco, "MOST_CHOICES", 11)
    problem = problem_of_tables(3)
    with pytest.raises(UsageError, match="takes up to 11 choices, pieces times devices; this problem has 12: use"):
        SurCo().plan(problem, cost_model("analytic").compile(problem))


def test_what_is_to_be_installed_is_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert [f"pip install '{each}'" for each in project["optional-dependencies"]["solve"]] == [SOLVER]


def cheapest_of_all(size: np.ndarray, free: np.ndarray, costs: np.ndarray) -> float:
    """The least sum of costs of any assignment within memory; infinite for none."""
    every = np.array(list(product(range(len(free)), repeat=len(size))))
    held = (every[:, :, None] == np.arange(len(free))) * size[:, None]
    sums = np.take_along_axis(costs[None], every[:, :, None], axis=2)[..., 0].sum(axis=1)
    return float(np.where((held.sum(axis=1) <= free).all(axis=1), sums, np.inf).min())


@needs_solver
def test_it_is_the_cheapest_of_all_assignments_within_memory_again_and_again() -> None:
    random, bound, impossible = np.random.default_rng(0), 0, 0
    for _ in range(12):
        size = random.integers(1, 2**40, 6)
        free = random.integers(size.max() // 2, int(size.sum() * 0.7), 3)
        asked = LinearAssignment(size, free)
        for _ in range(3):
            costs = random.normal(size=(6, 3)) * 1e-4
            least, found = cheapest_of_all(size, free, costs), asked.cheapest(costs)
            if found is None:
                impossible += 1
                assert least == np.inf
                continue
            assert (np.bincount(found, weights=size, minlength=3) <= free).all()
            total, width = costs[np.arange(6), found].sum(), np.ptp(costs, axis=1).sum()
            assert least * (1 - 1e-9) - 1e-12 <= total <= least + 2 * NEAR * width
            bound += bool((costs.argmin(axis=1) != found).any())
    assert bound > 5
    assert impossible > 0
