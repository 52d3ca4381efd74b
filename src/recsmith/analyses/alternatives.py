"""Seconds of a plan's step if a single table were placed differently.

Every option of the table in the plan's space is tried: the table is removed, and its new pieces are placed one by one
on the targets with room where they cost least, while all other tables keep their placements. A search that also moves
other tables can find better plans.

Legend: N placed pieces, P = N + the table's own; the pieces of a trial are those of one option.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recsmith._types import Ints, noun
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import CostModel
from recsmith.errors import PlanMismatch
from recsmith.planners.search.device_state import NOWHERE, QUANTUM, Assignment, DeviceState
from recsmith.planners.search.placement import place_best
from recsmith.plans import Cache, Placement, Plan, check_placements
from recsmith.problems import NO_PIECE, Problem, option_pieces
from recsmith.problems.options import Options, PieceTable
from recsmith.sharding import KERNEL_NAMES, SHARDING_TYPES, Span


@noun
class Alternative:
    """One placement of a table while all other tables keep theirs: seconds of the step, and their relative change.

    total_s and change are None, and ranks is (), if a piece finds no target with memory left, or only ranks that hold
    pieces of the table with another width. current: whether this is the plan's own placement of the table.
    """

    sharding_type: str
    compute_kernel: str
    cache: Cache | None = None
    widths: tuple[int, ...]
    ranks: tuple[int, ...]
    total_s: float | None
    change: float | None
    current: bool


def alternatives_to(
    costs: PlacedCosts, model: CostModel, plan: Plan, problem: Problem, placement: Placement
) -> tuple[Alternative, ...]:
    """The present placement of a table and every other one of the plan's space, the cheapest first.

    problem: the plan's space. Run time: sets up the state of the devices once, then goes over the targets once for each
    piece of each option.
    """
    now = Alternative(
        sharding_type=placement.sharding_type, compute_kernel=placement.compute_kernel, cache=placement.cache,
        widths=placement.widths, ranks=placement.ranks, total_s=costs.step_s, change=0.0, current=True,
    )  # fmt: skip
    tried = _all_options(costs, model, problem, plan, placement.table)
    others = [each for each in tried if not _is_no_better(each, now)]
    return tuple(sorted((now, *others), key=lambda each: float("inf") if each.change is None else each.change))


def _is_no_better(other: Alternative, now: Alternative) -> bool:
    """Whether an alternative is the present placement, or the present option on other ranks without any gain."""
    same = (other.sharding_type, other.compute_kernel, other.cache) == (
        now.sharding_type,
        now.compute_kernel,
        now.cache,
    )
    if not same or sorted(other.widths) != sorted(now.widths):
        return False
    return other.change is None or other.change >= 0 or (other.widths, other.ranks) == (now.widths, now.ranks)


def _all_options(
    costs: PlacedCosts, model: CostModel, problem: Problem, plan: Plan, name: str
) -> Iterator[Alternative]:
    """Every option of the table in the plan's space, each on its best ranks, without those that TorchRec cannot run."""
    extended = _with_options(costs, problem, name)
    devices = DeviceState(model.compile(extended))
    others = [table.name != name for table in costs.problem.tables]
    for piece, (table, target) in enumerate(zip(costs.table.tolist(), costs.footprint.target.tolist(), strict=True)):
        if others[table]:
            devices.place(piece, target)
    devices.expect(np.arange(len(costs.table)))
    for option in range(len(extended.options.mode)):
        found = _best_ranks(devices, option, costs)
        if found.total_s is None or _runs(found, name, plan):
            yield found


def _best_ranks(devices: DeviceState, option: int, costs: PlacedCosts) -> Alternative:
    """Place the pieces of an option one by one where they cost least, price the step, and remove the pieces again."""
    problem = devices.problem
    pieces = np.array(option_pieces(problem, option))
    assignment = Assignment.of_table(option, pieces, np.full(len(pieces), NOWHERE))
    quantum = float(devices.expected.sum()) * QUANTUM  # relative to the whole plan: other tables may cost nothing
    room = all(place_best(devices, assignment, i, quantum) for i in range(len(pieces)))
    total = devices.total + costs.sequences_s if room else None
    for piece, target in zip(pieces.tolist(), assignment.target.tolist(), strict=True):
        if target != NOWHERE:
            devices.place(piece, target, -1)
    mode = problem.options.mode[option]
    kind = SHARDING_TYPES[problem.modes.type[mode]]
    targets = (0,) if kind.span == Span.WORLD else tuple(assignment.target.tolist())
    widths = tuple(problem.pieces.width[pieces].tolist())
    factor = float(problem.modes.load_factor[mode])
    return Alternative(
        sharding_type=kind.name, compute_kernel=KERNEL_NAMES[problem.modes.kernel[mode]],
        cache=Cache(load_factor=factor, policy=problem.cache_policy(int(mode))) if factor else None,
        widths=widths if len(widths) > 1 else (), ranks=kind.ranks(targets, problem.cluster) if room else (),
        total_s=total, change=None if total is None else _change(total, costs.step_s), current=False,
    )  # fmt: skip


def _change(total_s: float, now_s: float) -> float:
    """Relative change, rounded to 9 digits so that options of equal cost keep their order."""
    return round(total_s / now_s - 1, 9) + 0.0 if now_s else 0.0


def _runs(other: Alternative, name: str, plan: Plan) -> bool:
    """Whether TorchRec can run an alternative with the plan's other tables: sequence tables share one column width."""
    pooled = next(table.pooled for table in plan.workload.tables if table.name == name)
    if pooled or other.sharding_type != "column_wise":
        return True
    placed = Placement(
        table=name, sharding_type=other.sharding_type, compute_kernel=other.compute_kernel,
        ranks=other.ranks, widths=other.widths, cache=other.cache,
    )  # fmt: skip
    placements = [placed if placement.table == name else placement for placement in plan.placements]
    try:
        check_placements(placements, plan.workload, plan.cluster)
    except PlanMismatch:
        return False
    return True


def _with_options(costs: PlacedCosts, problem: Problem, name: str) -> Problem:
    """The problem that prices the plan, whose pieces are the placed ones (N) and then those of the table's options."""
    wider, placed = costs.problem, costs.footprint
    table = [each.name for each in problem.tables].index(name)
    chosen = np.flatnonzero((problem.options.table == table) & ~problem.options.barred)
    pairs = problem.options.piece[chosen]
    own = np.unique(pairs[pairs != NO_PIECE])
    mode = np.concatenate([placed.mode, _modes_in(wider, problem, name, problem.pieces.mode[own])])
    width = np.concatenate([placed.width, problem.pieces.width[own]])
    head, tail = wider.memory(mode, width)
    piece = np.where(pairs == NO_PIECE, NO_PIECE, len(placed.mode) + np.searchsorted(own, pairs))
    option_mode = _modes_in(wider, problem, name, problem.options.mode[chosen])
    options = Options(
        table=wider.modes.table[option_mode], mode=option_mode, piece=piece, count=problem.options.count[chosen],
        barred=np.zeros(len(chosen), dtype=bool), start=np.array([0, len(chosen)]),
    )  # fmt: skip
    return replace(wider, pieces=PieceTable(mode=mode, width=width, head=head, tail=tail), options=options)


def _modes_in(wider: Problem, problem: Problem, name: str, modes: Ints) -> Ints:
    """The modes of the wider problem with the type, kernel and cache of the table's modes in the other problem."""
    table = [each.name for each in wider.tables].index(name)
    found = {
        mode: wider.find_mode(
            table, SHARDING_TYPES[problem.modes.type[mode]].name, KERNEL_NAMES[problem.modes.kernel[mode]],
            float(problem.modes.load_factor[mode]),
        )
        for mode in set(modes.tolist())
    }  # fmt: skip
    return np.array([found[mode] for mode in modes.tolist()], dtype=np.int64)
