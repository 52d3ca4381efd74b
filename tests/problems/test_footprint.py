"""Where pieces stand: to placements and back, and what each rank carries."""

import numpy as np
import pytest
from hypothesis import given
from support.cases import Case, cluster, drawn, medium_case, random_placements, slow_memory, table, workload

from recsmith.errors import PlanMismatch
from recsmith.plans import Placement, check_placements
from recsmith.problems import Space, footprint_of, memory_used, placements_of, sum_per_rank
from recsmith.sharding import SHARDING_TYPES


def _placed(pick) -> tuple[Case, tuple[Placement, ...]]:
    case = medium_case(pick)
    return case, random_placements(pick, case)


PLACED = drawn(_placed)


@given(PLACED)
def test_placements_survive_the_way_to_a_footprint_and_back(placed) -> None:
    case, placements = placed
    assert placements_of(case.problem, footprint_of(case.problem, placements)) == placements


@given(PLACED)
def test_random_placements_are_legal_but_for_widths_of_sequences(placed) -> None:
    case, placements = placed
    try:
        check_placements(placements, case.workload, case.cluster)
    except PlanMismatch as error:
        assert "one width per collection" in str(error)


@given(PLACED)
def test_spread_adds_a_piece_to_every_rank_that_it_covers(placed) -> None:
    case, placements = placed
    footprint = footprint_of(case.problem, placements)
    value = (2.0 ** np.arange(len(footprint.mode))).astype(np.float64)
    expected = np.zeros(case.cluster.world_size)
    for mode, target, share in zip(footprint.mode, footprint.target, value, strict=True):
        kind = SHARDING_TYPES[case.problem.modes.type[mode]]
        expected[list(kind.ranks((int(target),), case.cluster))] += share
    assert sum_per_rank(value, footprint, case.problem).tolist() == expected.tolist()


@given(PLACED)
def test_memory_is_that_of_the_shards(placed) -> None:
    case, placements = placed
    device, host = memory_used(case.problem, footprint_of(case.problem, placements))
    assert (device.tolist(), host.tolist()) == slow_memory(case, placements)


def test_a_placement_outside_of_the_space_has_no_footprint() -> None:
    case = Case(workload(table("a", 10, 4)), cluster(2), Space(types=("table_wise",)))
    outside = Placement(table="a", sharding_type="row_wise", compute_kernel="fused", ranks=(0, 1))
    with pytest.raises(PlanMismatch, match="table 'a': row_wise with fused is not in the space"):
        footprint_of(case.problem, (outside,))
