"""Changes: two cells may be one rank, and two parts one group."""

import numpy as np

from recsmith.planners.annealing.population_change import (
    GroupChange,
    PopulationChange,
    bytes_between,
    merged_parts,
    terms_between,
)


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
