"""What the step of a plan would cost if one table alone were laid another way.

Every way of the plan's space is tried: the table leaves, its new pieces go one by one where they suit best among the
targets with room, all other tables stay. A search that moves other tables too can do better still.

Legend: N placed pieces, P = N + the table's own; the pieces of a trial are those of one option.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recsmith._types import Ints, noun
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import CostModel
from recsmith.errors import PlanMismatch
from recsmith.planners.search.assignment import NOWHERE, Assignment, place_best
from recsmith.planners.search.device_state import QUANTUM, DeviceState
from recsmith.plans import Cache, Placement, Plan, check_placements
from recsmith.problems import NO_PIECE, Problem, option_pieces
from recsmith.problems.problem import Options, PieceTable
from recsmith.sharding import KERNEL_NAMES, SHARDING_TYPES, Span


@noun
class Alternative:
    """One way to lay a table, all others staying: the step's seconds and their change; None where it has no room.

    No room: a piece finds no target with memory left, or only ranks that hold another width of the table.
    ranks: of its shards; () where it has no room. current: the table as it stands in the plan.
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
    standing: PlacedCosts, model: CostModel, plan: Plan, problem: Problem, placement: Placement
) -> tuple[Alternative, ...]:
    """The present way of a placement's table and every other of the plan's space, from cheap to dear.

    problem: the plan's space. Cost: builds one ledger; then a step over the targets for each piece of each option.
    """
    now = Alternative(
        sharding_type=placement.sharding_type, compute_kernel=placement.compute_kernel, cache=placement.cache,
        widths=placement.widths, ranks=placement.ranks, total_s=standing.total_s, change=0.0, current=True,
    )  # fmt: skip
    ways = [way for way in _ways(standing, model, problem, plan, placement.table) if not _is_no_better(way, now)]
    return tuple(sorted((now, *ways), key=lambda way: float("inf") if way.change is None else way.change))


def _is_no_better(way: Alternative, now: Alternative) -> bool:
    """Whether it is the way the table lies already, on ranks that gain nothing."""
    alike = (way.sharding_type, way.compute_kernel, way.cache) == (now.sharding_type, now.compute_kernel, now.cache)
    if not alike or sorted(way.widths) != sorted(now.widths):
        return False
    return way.change is None or way.change >= 0


def _ways(standing: PlacedCosts, model: CostModel, problem: Problem, plan: Plan, name: str) -> Iterator[Alternative]:
    """Every option of the table in the plan's space, with its best ranks."""
    laid = _with_options(standing, problem, name)
    ledger = DeviceState(model.compile(laid))
    others = [table.name != name for table in standing.problem.tables]
    for piece, (table, target) in enumerate(
        zip(standing.table.tolist(), standing.footprint.target.tolist(), strict=True)
    ):
        if others[table]:
            ledger.place(piece, target)
    ledger.expect(np.arange(len(standing.table)))
    for option in range(len(laid.options.mode)):
        way = _way(ledger, option, standing.total_s)
        if way.total_s is None or _runs(way, name, plan):
            yield way


def _way(ledger: DeviceState, option: int, now_s: float) -> Alternative:
    """The option's pieces one by one where they suit best, and away again."""
    problem = ledger.problem
    pieces = np.array(option_pieces(problem, option))
    assignment = Assignment.of_table(option, pieces, np.full(len(pieces), NOWHERE))
    quantum = max(float(ledger.load.mean()), 1e-300) * QUANTUM
    room = all(place_best(ledger, assignment, i, quantum) for i in range(len(pieces)))
    total = ledger.total if room else None
    for piece, target in zip(pieces.tolist(), assignment.target.tolist(), strict=True):
        if target != NOWHERE:
            ledger.place(piece, target, -1)
    mode = problem.options.mode[option]
    kind = SHARDING_TYPES[problem.modes.type[mode]]
    targets = (0,) if kind.span == Span.WORLD else tuple(assignment.target.tolist())
    widths = tuple(problem.pieces.width[pieces].tolist())
    factor = float(problem.modes.load_factor[mode])
    return Alternative(
        sharding_type=kind.name, compute_kernel=KERNEL_NAMES[problem.modes.kernel[mode]],
        cache=Cache(load_factor=factor) if factor else None,
        widths=widths if len(widths) > 1 else (), ranks=kind.ranks(targets, problem.cluster) if room else (),
        total_s=total, change=None if total is None else _change(total, now_s), current=False,
    )  # fmt: skip


def _change(total_s: float, now_s: float) -> float:
    """Relative change, free of rounding, so that ways that cost alike stay in the order of the options."""
    return round(total_s / now_s - 1, 9) + 0.0 if now_s else 0.0


def _runs(way: Alternative, name: str, plan: Plan) -> bool:
    """Whether TorchRec runs it beside the plan's other tables: sequences share one width of column pieces."""
    pooled = next(table.pooled for table in plan.workload.tables if table.name == name)
    if pooled or way.sharding_type != "column_wise":
        return True
    laid = Placement(
        table=name, sharding_type=way.sharding_type, compute_kernel=way.compute_kernel,
        ranks=way.ranks, widths=way.widths, cache=way.cache,
    )  # fmt: skip
    placements = [laid if placement.table == name else placement for placement in plan.placements]
    try:
        check_placements(placements, plan.workload, plan.cluster)
    except PlanMismatch:
        return False
    return True


def _with_options(standing: PlacedCosts, problem: Problem, name: str) -> Problem:
    """The standing problem with the placed pieces, in their order, then those of the table's options in `problem`."""
    host, placed = standing.problem, standing.footprint
    table = [each.name for each in problem.tables].index(name)
    chosen = np.flatnonzero((problem.options.table == table) & ~problem.options.barred)
    pairs = problem.options.piece[chosen]
    own = np.unique(pairs[pairs != NO_PIECE])
    mode = np.concatenate([placed.mode, _modes_in(host, problem, name, problem.pieces.mode[own])])
    width = np.concatenate([placed.width, problem.pieces.width[own]])
    head, tail = host.memory(mode, width)
    piece = np.where(pairs == NO_PIECE, NO_PIECE, len(placed.mode) + np.searchsorted(own, pairs))
    option_mode = _modes_in(host, problem, name, problem.options.mode[chosen])
    options = Options(
        table=host.modes.table[option_mode], mode=option_mode, piece=piece, count=problem.options.count[chosen],
        barred=np.zeros(len(chosen), dtype=bool), start=np.array([0, len(chosen)]),
    )  # fmt: skip
    return replace(host, pieces=PieceTable(mode=mode, width=width, head=head, tail=tail), options=options)


def _modes_in(host: Problem, problem: Problem, name: str, modes: Ints) -> Ints:
    """The host's modes for the table's modes in the other problem: of the same type, kernel and cache."""
    table = [each.name for each in host.tables].index(name)
    found = {
        mode: host.find_mode(
            table, SHARDING_TYPES[problem.modes.type[mode]].name, KERNEL_NAMES[problem.modes.kernel[mode]],
            float(problem.modes.load_factor[mode]),
        )
        for mode in set(modes.tolist())
    }  # fmt: skip
    return np.array([found[mode] for mode in modes.tolist()], dtype=np.int64)
