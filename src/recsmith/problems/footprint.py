"""Footprints: the pieces that a search or a plan has placed; and the problems that plans solve.

Legend: N placed pieces, W ranks, H hosts, L ranks per host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from recsmith._types import Ints
from recsmith.errors import PlanMismatch
from recsmith.plans import Cache, Placement, Plan, check_placements, describe_kernel
from recsmith.plans.check import tables_by_rows
from recsmith.problems.constraint_files import constraints_from_raw
from recsmith.problems.constraints import Constraints, RulesByTable
from recsmith.problems.kept import KeptRules, broken_constraint
from recsmith.problems.options import NO_PIECE
from recsmith.problems.problem import Problem, build_problem
from recsmith.problems.space import Space, kernels_of, torchrec_width
from recsmith.sharding import KERNEL_NAMES, KEY_VALUE, SHARDING_TYPES, TYPE_NAMES, Span
from recsmith.sharding.coverage import last_rank
from recsmith.sharding.kernel_limits import wrongly_divided

Number = TypeVar("Number", np.float64, np.int64)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Placed pieces (N,): mode, width, and target (a rank, a host, or 0 for the world), in order of tables."""

    mode: Ints
    width: Ints
    target: Ints


def ordered_footprint(problem: Problem, mode: Ints, width: Ints, target: Ints) -> Footprint:
    """Placed pieces (N,) in the order of footprints: by table, then widest first, then by target."""
    order = np.lexsort((target, -width, problem.modes.table[mode]))
    return Footprint(mode[order], width[order], target[order])


def option_pieces(problem: Problem, option: int) -> list[int]:
    """The pieces of an option, widest first, each as often as the option counts it."""
    pairs = zip(problem.options.piece[option].tolist(), problem.options.count[option].tolist(), strict=True)
    return [piece for piece, count in pairs if piece != NO_PIECE for _ in range(count)]


def footprint_of(problem: Problem, placements: tuple[Placement, ...], *, partial: bool = False) -> Footprint:
    """The footprint of placements; PlanMismatch if the problem has no mode for one of them.

    partial: tables may lack a placement, but at least one must have one.
    """
    by_name = {placement.table: placement for placement in placements}
    rows: list[tuple[int, int, int]] = []
    for t, table in enumerate(problem.tables):
        if partial and table.name not in by_name:
            continue
        placement = by_name[table.name]
        mode = problem.find_mode(t, placement.sharding_type, placement.compute_kernel, placement.load_factor)
        if mode is None:
            kernel = describe_kernel(placement.compute_kernel, placement.cache)
            raise PlanMismatch(f"table '{table.name}': {placement.sharding_type} with {kernel} is not in the space")
        widths = placement.widths_of(table.embedding_dim)
        targets = placement.kind.targets(placement.ranks, problem.cluster)
        rows += [(mode, width, target) for width, target in zip(widths, targets, strict=True)]
    mode, width, target = np.array(rows, dtype=np.int64).T
    return Footprint(mode, width, target)


def placements_of(problem: Problem, footprint: Footprint) -> tuple[Placement, ...]:
    """The placements of a footprint, sorted by table name."""
    start = np.searchsorted(problem.modes.table[footprint.mode], np.arange(len(problem.tables) + 1)).tolist()
    splits = problem.legality.splits
    modes, widths, targets = footprint.mode.tolist(), footprint.width.tolist(), footprint.target.tolist()
    whole: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
    made: list[Placement] = []
    for t, table in enumerate(problem.tables):
        pieces = slice(start[t], start[t + 1])
        mode = modes[start[t]]
        pin = splits[t].pin if t in splits else None
        if pin and mode == problem.find_mode(t, pin.sharding_type, pin.compute_kernel, pin.load_factor or None):
            placed = sorted(zip((-width for width in widths[pieces]), targets[pieces], strict=True))
            if tuple((-width, target) for width, target in placed) == splits[t].pinned:
                made.append(pin)  # a pin also fixes the column order of its pieces
                continue
        factor = float(problem.modes.load_factor[mode])
        kind, kernel = SHARDING_TYPES[problem.modes.type[mode]], KERNEL_NAMES[problem.modes.kernel[mode]]
        shape = tuple(targets[pieces]) if kind.span != Span.WORLD else ()
        key = (kind.name, shape)
        ranks = whole.get(key)  # shared between tables: a world of 4,096 ranks is listed once
        if ranks is None:
            ranks = whole[key] = kind.ranks(shape or (0,), problem.cluster)
        split = tuple(widths[pieces])
        made.append(
            Placement(
                table=table.name, sharding_type=kind.name, compute_kernel=kernel, ranks=ranks,
                widths=split if len(split) > 1 else (),
                cache=Cache(load_factor=factor, policy=problem.cache_policy(mode)) if factor else None,
            )
        )  # fmt: skip
    return tuple(sorted(made, key=lambda placement: placement.table))


def sum_per_rank(values: npt.NDArray[Number], footprint: Footprint, problem: Problem) -> npt.NDArray[Number]:
    """Sum per rank, shape (W, ...), of values per covered rank (N, ...): a piece adds to every rank that it covers."""
    return sum_per_group(values, np.zeros(len(values), dtype=np.int64), 1, footprint, problem)[:, 0]


def sum_per_group(
    values: npt.NDArray[Number], group: Ints, groups: int, footprint: Footprint, problem: Problem
) -> npt.NDArray[Number]:
    """Sum per rank and group, shape (W, G, ...), of values per covered rank (N, ...) of pieces of a group (N,) each."""
    cluster, span, tail = problem.cluster, problem.modes.span[footprint.mode], values.shape[1:]
    size = math.prod(tail)

    def sums(of: Span, places: int, place: Ints) -> npt.NDArray[Number]:
        on, total = span == of, np.zeros(places * groups * size, dtype=values.dtype)
        cells = (place[on] * groups + group[on])[:, None] * size + np.arange(size)
        np.add.at(total, cells.ravel(), values[on].ravel())  # many times faster than with rows of several numbers
        return total.reshape(places, groups, *tail)

    ranks = sums(Span.RANK, cluster.world_size, footprint.target)
    hosts = sums(Span.HOST, cluster.hosts, footprint.target)
    everywhere = sums(Span.WORLD, 1, 0 * footprint.target)
    return np.add(ranks + np.repeat(hosts, cluster.local_world_size, axis=0), everywhere, dtype=values.dtype)


def memory_used(problem: Problem, footprint: Footprint) -> tuple[Ints, Ints]:
    """(device bytes per rank (W,), host bytes per host (H,)) of a footprint, as a search adds them."""
    head, tail = problem.memory(footprint.mode, footprint.width)
    device = sum_per_rank(head.device, footprint, problem)
    host = sum_per_rank(head.host, footprint, problem)
    last = last_rank(footprint.target, problem.modes.coverage[footprint.mode])
    np.add.at(device, last, tail.device - head.device)
    np.add.at(host, last, tail.host - head.host)
    return device, host.reshape(problem.cluster.hosts, -1).sum(axis=1)


def memory_taken(problem: Problem, footprint: Footprint) -> tuple[Ints, Ints]:
    """The bytes that a plan takes: as `memory_used`, but slots of shared caches are only as wide as the plan's rows."""
    device, host = memory_used(problem, footprint)
    return device - _saved(problem, footprint), host


def _saved(problem: Problem, footprint: Footprint) -> Ints:
    world = problem.cluster.world_size
    return problem.memory_model.saved(footprint.mode, footprint.width, footprint.target, world)


def memory_parts(problem: Problem, footprint: Footprint) -> dict[str, Ints]:
    """Device bytes per rank (W,) of a plan by content; they add up to those of `memory_taken`."""
    kinds = memory_kinds(problem, footprint)
    both = ("ids", "outputs")
    if not set(both) <= set(kinds):
        return kinds
    ids = kinds["ids"] + kinds["outputs"]
    return {("ids and outputs" if name == "ids" else name): (ids if name == "ids" else size)
            for name, size in kinds.items() if name != "outputs"}  # fmt: skip


def memory_kinds(problem: Problem, footprint: Footprint) -> dict[str, Ints]:
    """As `memory_parts`, but with ids and outputs separate in the accounting `real`."""
    head, tail = problem.memory_model.parts_of(footprint.mode, footprint.width)
    last = last_rank(footprint.target, problem.modes.coverage[footprint.mode])
    parts = {name: sum_per_rank(size, footprint, problem) for name, size in head.items()}
    for name, size in parts.items():
        np.add.at(size, last, tail[name] - head[name])
    parts["cache"] = parts["cache"] - _saved(problem, footprint)
    return parts


def fits(problem: Problem, footprint: Footprint) -> bool:
    """Whether device and host memory are sufficient."""
    device, host = memory_taken(problem, footprint)
    return bool((device <= problem.capacity).all() and (host <= problem.host_capacity).all())


# --- problems of plans -----------------------------------------------------------------------------------------------


def problem_of(plan: Plan) -> Problem:
    """The problem that a plan solves, in the space stored with it."""
    space, constraints = constraints_from_raw(plan.constraints, "plan")
    return build_problem(plan.workload, plan.cluster, space, constraints, by_rows=tables_by_rows(plan.placements))


def problem_holding(problem: Problem, placements: Sequence[Placement]) -> Problem:
    """A problem that can price the placements: this problem, or a wider one if its space or rules exclude them."""
    space = space_holding(problem.space, placements)
    cached = any(placement.cache for placement in placements)
    given = problem.constraints
    by_rows = tables_by_rows(placements)
    divided = [wrongly_divided(problem.workload, problem.cluster.device.kind, each) for each in ((), by_rows)]
    if space == problem.space and not given.parts and not cached and divided[0] == divided[1]:
        return problem
    limits = Constraints(memory=given.memory, keep_exact=given.keep_exact, stash=given.stash)
    return build_problem(problem.workload, problem.cluster, space, limits, needless=True, by_rows=by_rows)


def space_holding(space: Space, placements: Sequence[Placement]) -> Space:
    """The space extended by the types, kernels and cache factors of the placements, with their cache policy."""
    policies = {placement.cache_policy for placement in placements if placement.compute_kernel == KEY_VALUE.name}
    return replace(
        space,
        cache_policy=min(policies, default=space.cache_policy),
        types=(*space.types, *(placement.sharding_type for placement in placements)),
        kernels=(*space.kernels, *(placement.compute_kernel for placement in placements)),
        cache_factors=(*space.cache_factors, *(placement.load_factor for placement in placements if placement.cache)),
    )


def in_space(problem: Problem, placements: Sequence[Placement]) -> bool:
    """Whether placements are in a problem's space: types, kernels, cache factors, widths, rules and constraints."""
    return PlannedSpace(problem).holds(placements)


class PlannedSpace:
    """The space of a problem, against which placements are checked: a whole plan, or table by table."""

    def __init__(self, problem: Problem) -> None:
        self._space = problem.space
        self._dims = {table.name: table.embedding_dim for table in problem.tables}
        self._least_width = dict(zip(self._dims, problem.least_width.tolist(), strict=True))
        self._by_table = RulesByTable(problem.constraints.rules)
        owners: list[int] = problem.modes.table.tolist()
        types: list[int] = problem.modes.type.tolist()
        self._types = {(problem.tables[t].name, TYPE_NAMES[kind]) for t, kind in zip(owners, types, strict=True)}
        self._kept = KeptRules(problem.constraints, problem.tables, problem.cluster)

    def holds(self, placements: Sequence[Placement]) -> bool:
        """Whether the placements are in the space, and keep its constraints."""
        return all(map(self._allows, placements)) and self._kept.broken(placements) is None

    def _allows(self, placement: Placement) -> bool:
        """Whether the space allows a placement's type, kernel, cache and widths for its table."""
        space, rule = self._space, self._by_table.merged(placement.table)
        runs = (placement.table, placement.sharding_type) in self._types
        if not runs or placement.compute_kernel not in kernels_of(space, rule):
            return False
        if placement.cache and placement.load_factor not in ((rule and rule.cache_factors) or space.cache_factors):
            return False
        if placement.compute_kernel == KEY_VALUE.name and placement.cache_policy != space.cache_policy:
            return False
        dim, least = self._dims[placement.table], self._least_width[placement.table]
        widths = placement.widths_of(dim)
        if min(widths) < min(least, dim):
            return False
        splits = placement.kind.splits_columns and space.widths == "torchrec"
        return not splits or set(widths) == {torchrec_width(dim, least or None)}


def check_solves(problem: Problem, placements: Sequence[Placement]) -> None:
    """Raise PlanMismatch for placements that cannot be run, or that do not solve the problem."""
    check_placements(placements, problem.workload, problem.cluster)
    broken = broken_constraint(problem.constraints, placements, problem.tables, problem.cluster)
    if broken:
        raise PlanMismatch(broken)
    if not in_space(problem, placements):
        raise PlanMismatch(f"a table is placed as none may be ({problem.planned_space.words}), or against a rule")
    if not fits(problem, footprint_of(problem, tuple(placements))):
        raise PlanMismatch("it needs more memory than devices and hosts have")
