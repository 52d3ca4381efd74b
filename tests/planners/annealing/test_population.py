"""Which options annealing tries: fitting ones, few of a kind, never those whose pieces only move together.

Changes: two cells may be one rank, and two parts one group.

Plans side by side: what a change is said to make of them, and which of them it changes.
"""

import numpy as np
import pytest
from support.cases import BOTH, medium_case, seeded
from support.searched import heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.annealing.population import (
    AnnealingOptions,
    GroupChange,
    Population,
    PopulationChange,
    bytes_between,
    merged_parts,
    terms_between,
)
from recsmith.planners.annealing.population_annealing import RandomChanges
from recsmith.planners.annealing.starts import DEAREST
from recsmith.planners.search.device_state import DeviceState


def test_tried_options_fit_and_belong_to_their_table() -> None:
    for seed in range(10):
        case = medium_case(seeded(seed), models=BOTH)
        problem, relaxation = case.problem, shared_relaxation(case.evaluator)
        if not relaxation.option_fits.any():
            continue
        options = AnnealingOptions(DeviceState(case.evaluator), relaxation)
        for table, count in enumerate(options.count.tolist()):
            own = options.tried[table, :count]
            assert (problem.options.table[own] == table).all()
            assert relaxation.option_fits[own].all()
            assert not options.together[own].any()
            assert options.reached[own].all()
            seconds = relaxation.option_seconds[own]
            dear = own[seconds > DEAREST * seconds.min(initial=np.inf)]
            assert len(dear) <= 1
            assert set(np.unique(options.tried[table])) == set(own.tolist()) or count == 0


def test_neighbours_differ_in_width_only_and_point_back() -> None:
    case = lopsided()
    options, all_ = (
        AnnealingOptions(DeviceState(case.evaluator), shared_relaxation(case.evaluator)),
        case.problem.options,
    )
    linked = 0
    for option in range(len(all_.mode)):
        narrower, wider = options.near[option].tolist()
        for other in (narrower, wider):
            assert (all_.mode[other], options.pieces[other]) == (all_.mode[option], options.pieces[option])
        if wider != option:
            width = case.problem.pieces.width[all_.piece[[option, wider], 0]]
            assert width[0] <= width[1]
            assert options.near[wider, 0] == option
            linked += 1
    assert linked > 5


def test_pieces_of_an_option_are_told_apart_by_width() -> None:
    case = lopsided()
    options, all_ = (
        AnnealingOptions(DeviceState(case.evaluator), shared_relaxation(case.evaluator)),
        case.problem.options,
    )
    mixed = np.flatnonzero((all_.count > 0).all(axis=1) & options.reached)
    assert mixed.size
    assert (options.first[mixed].sum(axis=1) == all_.count[mixed, 0]).all()
    assert (options.narrow[mixed] == all_.piece[mixed, 1]).all()
    single = np.flatnonzero(all_.count[:, 1] == 0)
    assert (options.tail[options.narrow[single]] == 0).all()
    assert not options.terms[options.narrow[single]].any()
    assert options.reaches(heap(case))


def change(ranks: list[list[int]], *, everywhere: bool = False) -> PopulationChange:
    none = np.zeros((2, 2), dtype=np.int64)
    return PopulationChange(np.array(ranks), (), none, None, (), np.ones(2, dtype=bool), everywhere)


def test_cells_of_one_rank_add_up() -> None:
    loads = np.zeros((1, 2, 3))
    change([[0, 2], [1, 1]]).add(loads, np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    assert loads.tolist() == [[[1.0, 0.0, 2.0], [0.0, 7.0, 0.0]]]


def test_everywhere_adds_to_all_ranks() -> None:
    loads = np.ones((1, 2, 2))
    change([[0, 1], [0, 1]], everywhere=True).add(loads, np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    assert loads.tolist() == [[[2.0, 3.0], [4.0, 5.0]]]


def test_what_leaves_one_rank_comes_to_another() -> None:
    sign = np.array([-1, 1])
    assert terms_between(np.array([[2.0, 3.0]]), sign).tolist() == [[[-2.0, -3.0], [2.0, 3.0]]]
    assert bytes_between(np.array([5, 7]), sign).tolist() == [[-5, 5], [-7, 7]]


def test_parts_of_one_group_become_one() -> None:
    """In the first plan both parts are of group 4, in the second of groups 4 and 5."""
    first = GroupChange(np.array([4, 4]), np.array([-1, -1]), np.array([[[-1.0]], [[-1.0]]]))
    second = GroupChange(np.array([4, 5]), np.array([2, 2]), np.array([[[3.0]], [[3.0]]]))
    other, last = merged_parts(second, first)
    assert (last.group.tolist(), last.count.tolist(), last.terms.ravel().tolist()) == ([4, 4], [1, -1], [2.0, -1.0])
    assert (other.group.tolist(), other.count.tolist(), other.terms.ravel().tolist()) == ([4, 5], [0, 2], [0.0, 3.0])


def population(plans: int = 4) -> tuple[Population, RandomChanges]:
    case = lopsided()
    devices = DeviceState(case.evaluator)
    options = AnnealingOptions(devices, shared_relaxation(case.evaluator))
    made = Population(devices, options, [heap(case)], plans)
    return made, RandomChanges(made, options, np.random.default_rng(0))


def step(of: Population, plan: int) -> float:
    made = of.assignment(of.option[plan], of.target[plan])
    return step_seconds(of.devices.evaluator, made.footprint(of.devices.problem))


def test_only_the_plans_that_take_a_change_change_and_as_was_said() -> None:
    plans, changes = population()
    before = plans.total.copy()
    for kind in (changes.move_piece, changes.swap_pieces, changes.replace_table):
        change = kind()
        change.legal[:] = True
        effect = plans.try_(change)
        plans.take(np.array([2]), change, effect)
        assert plans.total[2] == effect.total[2]
        assert plans.total[2] == pytest.approx(step(plans, 2), rel=1e-9)
        assert (plans.total[[0, 1, 3]] == before[[0, 1, 3]]).all()
        assert (plans.target[[0, 1, 3]] <= 0).all()


def test_copies_are_equal_and_apart() -> None:
    plans, changes = population()
    change = changes.move_piece()
    plans.take(np.flatnonzero(change.legal), change, plans.try_(change))
    plans.copy(np.array([0]), np.array([1]))
    assert plans.total[0] == plans.total[1]
    assert (plans.target[0] == plans.target[1]).all()
    plans.target[0] = -1
    assert (plans.target[1] >= 0).any()


def test_the_score_is_sharper_the_nearer_it_is_to_the_step() -> None:
    plans, _ = population()
    for sharpness in (24.0, 384.0):
        plans.sharpness = sharpness
        plans.refresh()
        assert (plans.score >= plans.total * (1 - 1e-12)).all()
    assert plans.score == pytest.approx(plans.total, rel=1e-2)


def test_memory_is_asked() -> None:
    plans, changes = population()
    plans.free[:] = 0
    change = changes.move_piece()
    moves = np.array([0]) if change.legal[0] else np.flatnonzero(change.legal)[:1]
    assert not plans.try_(change).fits[moves].any()
