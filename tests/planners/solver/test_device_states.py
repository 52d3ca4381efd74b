"""What each search keeps of the devices is what its plan puts there: `memory_used`, `device_sums` and `step_seconds`.

A state here is (bytes free on each device, bytes free on each host or None, summed terms (G, W, k), groups in use).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support.cases import (
    BOTH,
    LOOSE,
    TIGHT,
    Case,
    cluster,
    make_case,
    medium_case,
    random_placements,
    seeded,
    small_case,
    table,
    under,
    workload,
)

from recsmith.costs import device_sums, step_seconds
from recsmith.errors import PlanMismatch
from recsmith.planners import neuroshard
from recsmith.planners.neuroshard_rollouts import NOWHERE, ColumnHalves, Rollouts, RolloutState
from recsmith.planners.solver.enumeration import Enumeration, arrangements_of
from recsmith.planners.solver.layouts import all_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.plans import Placement, check_placements
from recsmith.problems import Footprint, fits, footprint_of, memory_used, ordered_footprint

State = tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]


def check_state(case: Case, footprint: Footprint, state: State) -> None:
    """A state is that of a plan."""
    free, host_free, sums, used = state
    device, host = memory_used(case.problem, footprint)
    assert free.tolist() == (case.problem.capacity - device).tolist()
    assert host_free is None or host_free.tolist() == (case.problem.host_capacity - host).tolist()
    assert np.allclose(sums, np.moveaxis(device_sums(case.evaluator, footprint), 0, 1), rtol=1e-12, atol=0.0)
    assert set(np.flatnonzero(used)) == set(case.evaluator.group[footprint.mode].tolist())


def placed_cases(
    seeds: range, model: str, tightness: Sequence[float] = TIGHT
) -> Iterator[tuple[Case, tuple[Placement, ...]]]:
    """Cases with random placements that TorchRec would run; many are beyond some device's memory."""
    for seed in seeds:
        pick = seeded(seed)
        if seed % 2:
            case = small_case(pick, tightness, (model,))
        else:
            case = medium_case(pick, tightness, (model,), dims=(4, 8, 20))
        placements = random_placements(pick, case)
        try:
            check_placements(placements, case.workload, case.cluster)
        except PlanMismatch:
            continue
        yield case, placements


# --- enumeration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", BOTH)
def test_partial_plans_of_an_enumeration(model: str) -> None:
    """Table by table, whatever arrangement each takes, until a device is full."""
    checked = 0
    for seed in range(12):
        case = small_case(seeded(seed), models=(model,))
        shares = all_shares(case.evaluator)
        arrangements = arrangements_of(case.problem, shares, 3_000)
        if arrangements is None:
            continue
        tree = Enumeration(case.evaluator, shares, arrangements, np.inf, monotone=True)
        rng = np.random.default_rng(seed)
        for _ in range(3):
            node = tree._empty()
            for each in tree.arrangements:
                node = tree._extended(node, int(rng.integers(len(each.group))))
                check_state(case, tree.footprint(node), (node.free, node.host_free, node.sums, node.used))
                checked += 1
    assert checked > 30


@pytest.mark.parametrize("model", BOTH)
def test_an_enumeration_opens_what_fits_at_its_cost(model: str) -> None:
    for seed in range(8):
        case = small_case(seeded(seed), models=(model,))
        shares = all_shares(case.evaluator)
        arrangements = arrangements_of(case.problem, shares, 3_000)
        if arrangements is None or len(arrangements) > 1:
            continue
        tree = Enumeration(case.evaluator, shares, arrangements, np.inf, monotone=False)
        for bound, node, row in tree.open:
            footprint = tree.footprint(tree._extended(node, row))
            assert fits(case.problem, footprint)
            assert bound == pytest.approx(step_seconds(case.evaluator, footprint), rel=1e-12)


# --- roll-outs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", BOTH)
def test_rollouts(model: str) -> None:
    """After the last piece, in each roll-out that found room for all."""
    checked = beside = 0
    for seed in range(12):
        pick = seeded(seed)
        shapes = ((2, 1), (3, 1), (2, 2))
        case = under(pick, make_case(pick, counts=(4, 6), dims=(8, 16, 32), shapes=shapes, tightness=LOOSE), (model,))
        halves = ColumnHalves.of(case.problem, case.evaluator)
        first = neuroshard._first(case.problem, case.evaluator, halves)
        if first is None or not len(halves.whole):
            continue
        placed = first.footprint(case.problem)
        rollouts = Rollouts(case.problem, case.evaluator, halves, np.array([1.0, 1.5, 9.0]), placed)
        pieces = halves.sorted(halves.whole)
        state = RolloutState(rollouts, np.tile(pieces, (3, 1)), rollouts.caps)
        for step in range(len(pieces)):
            state.place(step, {})
        totals = state.totals()
        for row in np.flatnonzero((state.target != NOWHERE).all(axis=1)).tolist():
            mode = np.append(halves.mode[pieces], placed.mode)
            width = np.append(halves.width[pieces], placed.width)
            footprint = ordered_footprint(case.problem, mode, width, np.append(state.target[row], placed.target))
            sums = np.moveaxis(state.sums[:, :, row], 1, -1)
            check_state(case, footprint, (state.free[row], None, sums, state.used[:, row]))
            assert totals[row] == pytest.approx(step_seconds(case.evaluator, footprint), rel=1e-12)
            columns = np.bincount(state.target[row], halves.width[pieces], case.cluster.world_size)
            assert state.room[row].tolist() == (rollouts.caps[row] - columns).tolist()
            checked += 1
            beside += len(placed.mode) > 0
    assert checked > 10
    assert beside > 0


def test_rollouts_without_room_say_so() -> None:
    """The cap leaves three of four columns out."""
    case = Case(workload(*(table(name, 100, 16) for name in "abcd")), cluster(2))
    halves = ColumnHalves.of(case.problem, case.evaluator)
    none = Footprint(*np.empty((3, 0), dtype=np.int64))
    rollouts = Rollouts(case.problem, case.evaluator, halves, np.array([0.25]), none)
    pieces = halves.sorted(halves.whole)
    state = RolloutState(rollouts, pieces[None], rollouts.caps)
    for step in range(len(pieces)):
        state.place(step, {})
    assert (state.target == NOWHERE).any()
    assert state.totals().tolist() == [np.inf]


# --- the model of CP-SAT ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", BOTH)
def test_memory_in_the_model_of_cp_sat(model: str) -> None:
    """With its slots fixed to a plan, the model is feasible exactly where the plan is within memory."""
    pytest.importorskip("ortools")
    from recsmith.planners.solver.cp_sat import solve
    from recsmith.planners.solver.cp_sat_model import SpaceModel

    answers = []
    for case, placements in placed_cases(range(24), model):
        shares, footprint = all_shares(case.evaluator), footprint_of(case.problem, placements)
        linear_pieces = linear_pieces_of(case.evaluator, shares.terms)
        assert linear_pieces is not None
        space = SpaceModel(case.evaluator, shares, linear_pieces)
        _fix(space, footprint)
        run = solve(space, {})
        assert run.impossible != fits(case.problem, footprint)
        if run.best is not None:
            assert memory_used(case.problem, run.best)[0].tolist() == memory_used(case.problem, footprint)[0].tolist()
        answers.append(run.impossible)
    assert min(answers.count(True), answers.count(False)) >= 3


@pytest.mark.parametrize("model", BOTH)
def test_seconds_in_the_model_of_cp_sat(model: str) -> None:
    """With its slots fixed to a plan, the least objective is the plan's step, rounded down piece by piece."""
    pytest.importorskip("ortools")
    from recsmith.planners.solver.cp_sat import solve
    from recsmith.planners.solver.cp_sat_model import SpaceModel

    checked = 0
    for case, placements in placed_cases(range(24), model, LOOSE):
        footprint, total_s = footprint_of(case.problem, placements), 0.0
        if fits(case.problem, footprint):
            total_s = step_seconds(case.evaluator, footprint)
        if total_s == 0.0:
            continue
        shares = all_shares(case.evaluator)
        linear_pieces = linear_pieces_of(case.evaluator, shares.terms)
        assert linear_pieces is not None
        space = SpaceModel(case.evaluator, shares, linear_pieces, total_s * 1.25)
        _fix(space, footprint)
        run = solve(space, {})
        assert run.proven
        roundings = len(case.evaluator.step_rule.phases) * (len(footprint.mode) + 2 * case.evaluator.groups) + 1
        assert total_s * (1 - 1e-11) - roundings * space.tick_s <= run.bound_s <= total_s * (1 + 1e-12)
        checked += 1
    assert checked >= 5


def _fix(space: Any, footprint: Footprint) -> None:
    """Let the model have one plan only: the layout and the share of each target that hold the plan's own pieces."""
    from recsmith.planners.solver.cp_sat import _ordered_targets

    target = _ordered_targets(space, footprint)
    variables, shares, filled = space.variables, space.shares, set[int]()
    for mode in set(footprint.mode.tolist()):
        own = footprint.mode == mode
        pieces = Counter(zip(target[own].tolist(), footprint.width[own].tolist(), strict=True))
        wanted = {(*piece, count) for piece, count in pieces.items()}
        for number, layout in enumerate(shares.layouts):
            slots = np.flatnonzero(variables.layout == number) if layout.mode == mode else np.zeros(0, dtype=int)
            share = variables.share[slots]
            keys = zip(
                variables.target[slots].tolist(),
                shares.width[share].tolist(),
                shares.count[share].tolist(),
                strict=True,
            )
            held = dict(zip(keys, slots.tolist(), strict=True))
            if wanted <= held.keys():
                filled |= {held[key] for key in wanted}
                break
        else:
            raise AssertionError("no layout holds the table")
    for slot, variable in enumerate(variables.filled):
        space.model.add(variable == int(slot in filled))
