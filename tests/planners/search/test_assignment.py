"""Assignments: from options and footprints and back."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import Case, cluster, drawn, medium_case, table, workload
from support.placing import random_assignment

from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.problems import Footprint, Space, option_pieces, placements_of


@given(case=drawn(medium_case), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_an_assignment_survives_the_way_to_a_footprint_and_back(case: Case, seed: int) -> None:
    problem = case.problem
    made = random_assignment(problem, np.random.default_rng(seed))
    again = Assignment.from_footprint(problem, made.footprint(problem))
    assert again is not None
    assert again.option.tolist() == made.option.tolist()
    assert again.piece.tolist() == made.piece.tolist()
    sort = np.lexsort((made.target, made.piece, made.table))
    assert sorted(zip(again.table, again.piece, again.target, strict=True)) == [
        (made.table[i], made.piece[i], made.target[i]) for i in sort
    ]


def split_case() -> Case:
    work = workload(table("a", 100, 64), table("b", 100, 4))
    return Case(work, cluster(4), Space(types=("table_wise", "column_wise")))


def test_pieces_come_in_order_of_tables_wide_first_and_unplaced() -> None:
    problem = split_case().problem
    mixed = int(np.flatnonzero((problem.options.count > 0).all(axis=1))[0])
    other = int(problem.options.start[1 - problem.options.table[mixed]])
    choice = np.array(sorted([mixed, other], key=lambda option: problem.options.table[option]))
    made = Assignment.of(problem, choice)
    assert made.piece.tolist() == [piece for option in choice.tolist() for piece in option_pieces(problem, option)]
    widths = problem.pieces.width[made.piece[made.table == problem.options.table[mixed]]]
    assert (np.diff(widths) <= 0).all()
    assert widths[0] > widths[-1]
    assert (made.target == NOWHERE).all()
    assert not made.complete
    made.target[:] = 0
    assert made.complete


def test_a_split_that_is_no_option_has_no_assignment() -> None:
    problem = split_case().problem
    mode = problem.find_mode(0, "column_wise", "fused")
    other = problem.find_mode(1, "table_wise", "fused")
    assert mode is not None
    assert other is not None
    dim = problem.tables[0].embedding_dim
    widths = [dim - 12, 8, 4]
    footprint = Footprint(np.array([mode] * 3 + [other]), np.array([*widths, 4]), np.array([0, 1, 2, 0]))
    assert placements_of(problem, footprint)
    assert Assignment.from_footprint(problem, footprint) is None


def test_siblings_are_the_other_pieces_of_the_table() -> None:
    made = Assignment(np.arange(3), np.array([0, 1, 1, 1, 2]), np.arange(5), np.arange(5))
    assert [made.siblings(i).tolist() for i in range(5)] == [[], [2, 3], [1, 3], [1, 2], []]
