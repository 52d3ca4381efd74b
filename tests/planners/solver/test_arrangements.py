"""Arrangements are all placements of a table that differ on some rank, with what each puts there."""

from collections import Counter

import numpy as np
import pytest
from support.cases import Case, all_placements, seeded, slow_memory, small_case

from recsmith.planners.solver.arrangements import Arrangements, arrangements_of
from recsmith.planners.solver.layouts import Shares, all_shares
from recsmith.problems import footprint_of, placements_of
from recsmith.sharding.coverage import covering_target, first_rank

CASES = [small_case(seeded(seed), models=("analytic",)) for seed in range(8)]


def placed(case: Case, shares: Shares, share: list[int]) -> tuple:
    """The (mode, pieces by target and width) of shares on ranks."""
    held = [(s, rank) for rank, s in enumerate(share) if s < len(shares.layout)]
    pieces: Counter[tuple[int, int]] = Counter()
    for s, rank in held:
        coverage = shares.layouts[shares.layout[s]].coverage
        target = int(covering_target(np.array(rank), coverage))
        if first_rank(target, coverage) == rank:
            pieces[target, int(shares.width[s])] += int(shares.count[s])
    return shares.layouts[shares.layout[held[0][0]]].mode, frozenset(pieces.items())


@pytest.mark.parametrize("case", CASES)
def test_they_are_the_placements_of_brute_force(case: Case) -> None:
    shares = all_shares(case.evaluator)
    every = arrangements_of(case.problem, shares, 100_000)
    assert every is not None
    one = {name: placements[0] for name, placements in all_placements(case).items()}
    for number, arrangements in enumerate(every):
        name = case.problem.tables[number].name
        listed = set()
        for placement in all_placements(case)[name]:
            footprint = footprint_of(case.problem, tuple({**one, name: placement}.values()))
            own = case.problem.modes.table[footprint.mode] == number
            pieces = zip(footprint.target[own].tolist(), footprint.width[own].tolist(), strict=True)
            listed.add((int(footprint.mode[own][0]), frozenset(Counter(pieces).items())))
        found = [placed(case, shares, row) for row in arrangements.share.tolist()]
        assert set(found) == listed
        assert len(found) == len(listed)


def test_they_weigh_what_their_shards_do() -> None:
    for case in CASES:
        shares = all_shares(case.evaluator)
        every = arrangements_of(case.problem, shares, 100_000)
        assert every is not None
        chosen = [number * 7 % len(arrangements.group) for number, arrangements in enumerate(every)]
        placements = placements_of(case.problem, _footprint(case, shares, every, chosen))
        device, host = slow_memory(case, placements)
        assert np.sum([a.device[row] for a, row in zip(every, chosen, strict=True)], axis=0).tolist() == device
        assert np.sum([a.host[row] for a, row in zip(every, chosen, strict=True)], axis=0).tolist() == host


def _footprint(case: Case, shares: Shares, every: list[Arrangements], chosen: list[int]):
    share, target = [], []
    for arrangements, row in zip(every, chosen, strict=True):
        for rank, s in enumerate(arrangements.share[row].tolist()):
            if s < len(shares.layout) and rank % shares.layouts[shares.layout[s]].coverage == 0:
                share.append(s)
                target.append(rank // shares.layouts[shares.layout[s]].coverage)
    return shares.footprint(case.problem, np.array(share), np.array(target))


def test_more_than_are_asked_for_are_none() -> None:
    case = CASES[0]
    shares = all_shares(case.evaluator)
    every = arrangements_of(case.problem, shares, 100_000)
    assert every is not None
    count = sum(len(arrangements.group) for arrangements in every)
    assert arrangements_of(case.problem, shares, count) is not None
    assert arrangements_of(case.problem, shares, count - 1) is None
