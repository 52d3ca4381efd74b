"""The least cost of each table by the multipliers of a node of phase_branching.py.

The prices of all pieces on a rank add up to at most

    ready_multiplier * ready + rest_multiplier * rest,

whatever it holds, for any ready and rest within a node's ranges (docs/bounds.md proves it), so the least prices of all
tables bound the step. A piece that takes more than half of `ready` is big: it also pays for the part of its rank that
no other piece can use, or of each rank of the host that it covers.

Tables that differ only in their names are priced once, and counted as often as they occur: public models repeat a
handful of tables hundreds of times.

Legend: K nodes side by side, C different tables, N pieces, G fusion groups, J planes, F phases, k work terms, m modes,
n width steps, o options.
"""

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.bends import BentPlanes, bent_planes, most_taken
from recsmith.bounds.compiled_prices import CompiledPrices, cheapest_groups, is_compiled
from recsmith.bounds.dual_feasible import FUNCTIONS, MOST_SHARE, SHRUNK, dual_feasible
from recsmith.bounds.fill_levels import LEVELS, MOST_PRICES, PAID, FillLevels, SpreadTables
from recsmith.bounds.groups import GroupCosts
from recsmith.bounds.linear_bounds import BYTES_ROUNDING, kept_for
from recsmith.bounds.phase_nodes import (
    STEP_SAFE,
    Multipliers,
    NodeArrays,
    PhaseRanges,
    in_steps,
    least_product,
    stacked,
)
from recsmith.bounds.relaxation import Relaxation, covered_bytes, shared_relaxation
from recsmith.bounds.table_totals import MOST_STEPS, least_cost
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct, matmul
from recsmith.problems import NO_PIECE
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP, Span

REST_SHARES = (0.0, 0.5, 1.0, 3.0)
"""Times what the later phases are worth in the price of what could have filled a rank beside a big piece: above 1,
where it is these that are full. Trade-off: any are valid; more find slightly higher prices and cost a pass over all
pieces each; not tuned further."""
PIECE_FACTS = ("fits", "size", "bytes", "group", "terms", "alone", "alone_rest", "ready", "rest", "in_steps", "modes",
               "widths", "table", "columns")  # fmt: skip
OPERATIONS = 12  # array operations on all pieces in one evaluation, roughly: counts work equally on every machine


class TablePrices:
    """The least price of every different table in every fusion group, for many nodes at once.

    copies (C,): number of tables like each; like (T,): the different table that each table is like. tables (C,): the
    first table of each kind. costs: of the groups in use. numbers: how many numbers one evaluation of one node works
    on, roughly. taken: seconds of a launch that pieces pay for, by the last planes; empty without prices by levels.
    levels: those levels.
    """

    def __init__(self, evaluator: Evaluator, dominated: Bools) -> None:
        """dominated: groups (G,) that no table needs to be placed in; they are not priced."""
        problem = evaluator.problem
        self.groups, self.world = evaluator.groups, problem.cluster.world_size
        self.capacity = float(problem.capacity.sum())
        self.planes, self.taken = bent_planes(evaluator), np.zeros(0)
        self.levels: FillLevels | None = None
        opening = self.planes.launch
        self.costs = GroupCosts(evaluator, opening)
        relaxation = shared_relaxation(evaluator)
        relaxation = relaxation.reopened(dominated[relaxation.option_group])

        tables = np.arange(len(problem.tables))
        self._set_worldwide(evaluator, relaxation, tables)
        self.pieces = LocalPieces(evaluator, relaxation, opening, self.planes, dominated)
        first, self.like = different_tables(len(tables), [self._worldwide_facts(), self.pieces.facts()])
        self.copies: Ints = np.bincount(self.like)
        self.tables = first
        if len(first) < len(tables):
            self._set_worldwide(evaluator, relaxation, first)
            self.pieces = self.pieces.of(first)
        self.key = np.concatenate([self.worldwide_key, self.pieces.key])  # different table * G + group of each price
        self.numbers = self.pieces.numbers + len(self.key)

    def _set_worldwide(self, evaluator: Evaluator, relaxation: Relaxation, tables: Ints) -> None:
        """Set the options of some tables that span the world: seconds on every rank by plane (o, J), bytes, group."""
        problem, options = evaluator.problem, evaluator.problem.options
        mine = relaxation.option_fits & relaxation.option_worldwide & np.isin(options.table, tables)
        mine = np.flatnonzero(mine)
        modes, width = options.mode[mine], problem.pieces.width[options.piece[mine, 0]]
        terms, planes = evaluator.terms(modes, width), self.planes
        alone = evaluator.loads(terms).sum(axis=0) - planes.launch
        self.worldwide = planes.of_pieces(terms, planes.slopes.sum(axis=1), alone)
        self.worldwide_bytes, self.worldwide_group = relaxation.option_bytes[mine], evaluator.group[modes]
        self.worldwide_key = np.searchsorted(tables, options.table[mine]) * self.groups + self.worldwide_group

    def _worldwide_facts(self) -> tuple[Ints, Floats]:
        """The tables (o,) of options that span the world, and all that their prices depend on."""
        facts: Floats = np.array([*self.worldwide.T, self.worldwide_bytes, self.worldwide_group], dtype=np.float64).T
        return self.worldwide_key // self.groups, facts

    def levelled(self, evaluator: Evaluator, most: float, groups: Bools | None) -> "TablePrices":
        """The same prices with those by levels as further, last planes; see `levelled_prices`."""
        other, pieces = copy(self), copy(self.pieces)
        other.__dict__.pop("_compiled", None)  # computed for fewer planes
        pieces.__dict__.pop("numbers", None)
        levels = FillLevels(evaluator, most, self.pieces, self.copies)
        used = np.ones(self.groups, dtype=bool) if groups is None else groups
        seconds = self.world * np.einsum("oj,oj->o", self.worldwide, self.mix(used)[self.worldwide_group])
        seconds[~used[self.worldwide_group]] = np.inf
        spread = SpreadTables(self.worldwide_key // self.groups, seconds)
        pieces.ready, other.pieces = np.hstack([self.pieces.ready, levels.seconds(spread)]), pieces
        first = np.repeat(self.worldwide[:, :1], len(PAID), axis=1)  # levels belong to other groups
        other.worldwide = np.hstack([self.worldwide, first])
        other.taken, other.levels = levels.launch * np.array(PAID), levels
        other.numbers = pieces.numbers + len(self.key)
        return other

    @property
    def mixed(self) -> int:
        """The number of planes that are mixed."""
        return self.pieces.ready.shape[1]

    def suits_fillings(self) -> bool:
        """Whether bounds by fillings of a rank support these prices: several ranks, no planes below zero, no levels."""
        return self.world > 1 and not self.planes.bent and not len(self.taken)

    def mix(self, groups: Bools) -> Floats:
        """The mix (G, J) of planes under which tables cost much in these groups (G,), without levels."""
        return self.padded(self.planes.mix(groups))

    @property
    def levelled_mix(self) -> Floats:
        """The mix (G, J) with levels alone in groups that have them."""
        mix = self.mix(np.ones(self.groups, dtype=bool))
        levels = np.arange(self.mixed) >= self.mixed - len(self.taken)
        mix[~self.costs.worldwide] = levels / len(self.taken)
        return mix

    def padded(self, mix: Floats) -> Floats:
        """A mix of the other planes, extended by levels with a share of 0."""
        return np.pad(mix, ((0, 0), (0, self.mixed - mix.shape[1])))

    def least(
        self, ranges: Sequence[PhaseRanges], multipliers: Sequence[Multipliers], open_: Bools, paid: Bools
    ) -> tuple[Floats, Floats]:
        """(least prices of different tables in each group (K, C, G), seconds of ranges and bytes (K,)) of nodes.

        open_, paid (K, G): groups that plans of a node may use, and groups that they certainly use.
        """
        nodes = stacked(ranges, multipliers, self.pieces.step_s)
        everywhere, taken = self._taken(nodes.mix, open_, paid)
        if self.taken.any():  # those functions apply to shares of a rank's seconds, which here may exceed `ready`
            nodes.dual[taken > 0] = 0.0
        constant = (
            least_product(1 - nodes.ready_multiplier, nodes.ready)
            + least_product(1 - nodes.rest_multiplier, nodes.rest)
            - nodes.byte_price * self.capacity * (1 + BYTES_ROUNDING)
            + everywhere - nodes.ready_multiplier * taken - nodes.filled
        )  # fmt: skip
        return (self._compiled.least(nodes, taken) if is_compiled() else self._least(nodes, taken)), constant

    def _least(self, nodes: NodeArrays, taken: Floats) -> Floats:
        """The least price of each table in each group (K, C, G), by array operations."""
        mix, spread = nodes.mix[:, self.worldwide_group], np.zeros((len(taken), len(self.worldwide)))
        for plane, seconds in enumerate(self.worldwide.T):  # in this order, as compiled code adds them up
            spread += seconds * mix[:, :, plane]
        spread += nodes.byte_price[:, None] * self.worldwide_bytes
        local = self.pieces.cheapest(nodes, nodes.byte_price * self.world, taken) / self.world
        order, cells, first = self._by_cell
        least = np.full((len(taken), len(self.copies) * self.groups), np.inf)
        least[:, cells] = np.minimum.reduceat(np.concatenate([spread, local], axis=1)[:, order], first, axis=1)
        return least.reshape(len(taken), len(self.copies), self.groups)

    def selected(self, least: Floats, open_: Bools, which: Ints) -> Floats:
        """The least price (K, C) of different tables, from prices (K, C, G), over the groups that are open to them.

        open_ (U, C, G): in nodes; which (K,): the node of each.
        """
        if is_compiled():
            return cheapest_groups(least, open_, which)
        return np.where(open_[which], least, np.inf).min(axis=2)

    @cached_property
    def _by_cell(self) -> tuple[Ints, Ints, Ints]:
        """The order of prices by table and group, the cells with prices, and the first price of each."""
        order = np.argsort(self.key, kind="stable")
        return order, *np.unique(self.key[order], return_index=True)

    @cached_property
    def _compiled(self) -> CompiledPrices:
        return CompiledPrices(self, self.pieces, REST_SHARES, MOST_STEPS)

    def _taken(self, mix: Floats, open_: Bools, paid: Bools) -> tuple[Floats, Floats]:
        """(seconds (K,) of openings of groups that span the world beyond a launch, taken (K,)), by mixes (K, G, J).

        taken: by how much the seconds of a rank's pieces in other groups, by the mix, may exceed `ready`.
        """
        if self.taken.any():
            lower = np.where(open_ & ~self.costs.worldwide, matmul(mix[:, :, -len(self.taken) :], self.taken), 0.0)
            return np.zeros(len(mix)), lower.max(axis=1)
        if not self.planes.bent:
            return np.zeros(len(mix)), np.zeros(len(mix))
        opening, worldwide = matmul(mix, self.planes.opening), self.costs.worldwide
        certain = np.where(worldwide & paid, opening - self.planes.launch, 0.0)
        maybe = np.where(worldwide & open_ & ~paid, np.minimum(opening, 0.0), 0.0)
        local = open_ & ~worldwide
        if self.world == 1:  # `ready` is the time beyond the launches of all groups
            return (certain + maybe).sum(axis=1), np.maximum(self.planes.launch - opening, 0.0).sum(axis=1, where=local)
        return (certain + maybe).sum(axis=1), most_taken(self.planes.launch, opening, local)


# --- pieces that do not span the world -------------------------------------------------------------------------------


class LocalPieces:
    """Pieces of single ranks and hosts, of every width, and the rows of pieces that tables are placed with.

    rows: first the modes whose columns may be split at will, then single options of all other modes.
    """

    def __init__(
        self, evaluator: Evaluator, relaxation: Relaxation, opening: float, planes: BentPlanes, dominated: Bools
    ) -> None:  # fmt: skip
        """opening: the least that a rank pays for holding a piece of a group.

        dominated: groups (G,) that no table needs to be placed in; their pieces are left out.
        """
        self.problem = problem = evaluator.problem
        self.families: list[Ints] = []  # each (m, n): pieces of m modes by width
        split = self._split_at_will()
        split = split[~dominated[evaluator.group[split]]]
        modes, widths = self._every_width(split)
        single = relaxation.option_fits & ~relaxation.option_worldwide & ~np.isin(problem.options.mode, split)
        whole = np.flatnonzero(single)
        piece = problem.options.piece[whole]
        self.count = np.where(piece != NO_PIECE, problem.options.count[whole], 0)  # (o, 2)
        self.whole = len(modes) + np.arange(piece.size).reshape(-1, piece.shape[1])
        modes = np.concatenate([modes, np.repeat(problem.options.mode[whole], piece.shape[1])])
        widths = np.concatenate([widths, problem.pieces.width[piece].ravel()])
        head, tail = problem.least_memory(modes, widths)
        self.fits: Bools = problem.fits_alone(modes, head, tail) & problem.allowed(modes, widths)
        self.size = problem.modes.coverage[modes].astype(np.float64)  # ranks that a piece covers
        self.bytes = covered_bytes(problem, modes, head, tail)
        self.group = evaluator.group[modes]
        self.groups = evaluator.groups
        self.terms = evaluator.terms(modes, widths)
        self._set_seconds(evaluator, self.terms, opening, planes)
        self.modes, self.widths, self.table = modes, widths, problem.modes.table[modes]
        self.columns = widths / problem.demand.dim[self.table]
        self._set_steps()

    @cached_property
    def of_group(self) -> list[tuple[int, Ints]]:
        """Each group with pieces, and the indices of these."""
        return [(group, np.flatnonzero(self.group == group)) for group in distinct(self.group).tolist()]

    @cached_property
    def key(self) -> Ints:
        """For each row, its table times the number of groups, plus its group."""
        first = np.concatenate([family[:, 0] for family in (*self.families, self.whole)])
        return self.table[first] * self.groups + self.group[first]

    def of(self, tables: Ints) -> "LocalPieces":
        """The pieces of some tables (C,), in order and numbered anew."""
        made, kept = copy(self), np.isin(self.table, tables)
        for name in PIECE_FACTS:
            setattr(made, name, getattr(self, name)[kept])
        for name in ("of_group", "key", "numbers"):
            made.__dict__.pop(name, None)
        made.table = np.searchsorted(tables, made.table)
        number, whole = np.cumsum(kept) - 1, kept[self.whole[:, 0]]
        families = [family[kept[family[:, 0]]] for family in self.families]
        made.families = [number[family] for family in families if len(family)]
        made.whole, made.count = number[self.whole[whole]], self.count[whole]
        return made

    def _split_at_will(self) -> Ints:
        """Modes whose columns may be split into any widths."""
        modes = self.problem.modes
        own = np.flatnonzero(modes.span != Span.WORLD)
        return own[np.isin(modes.type[own], SPLIT_AT_WILL)] if self.problem.space.widths == "any" else own[:0]

    def _every_width(self, modes: Ints) -> tuple[Ints, Ints]:
        """(mode, columns) of pieces of every width of modes that are split at will; records them by dim."""
        dims = self.problem.demand.dim[self.problem.modes.table[modes]]
        every, widths, made = [modes[:0]], [modes[:0]], 0
        for dim in distinct(dims).tolist():
            mine, steps = modes[dims == dim], int(dim) // WIDTH_STEP
            self.families.append(made + np.arange(len(mine) * steps).reshape(-1, steps))
            every.append(np.repeat(mine, steps))
            widths.append(np.tile(WIDTH_STEP * (1 + np.arange(steps)), len(mine)))
            made += len(mine) * steps
        return np.concatenate(every), np.concatenate(widths)

    def _set_seconds(self, evaluator: Evaluator, terms: Floats, opening: float, planes: BentPlanes) -> None:
        """Set seconds of pieces with terms (N, k): by plane in the first phase, in later phases, and alone."""
        loads = evaluator.loads(terms)
        self.alone, self.alone_rest = loads[0] - opening, loads[1:].sum(axis=0)
        self.ready = planes.of_pieces(terms, planes.slopes[:, 0], self.alone)  # (N, J)
        self.rest = np.einsum("nk,fk->n", terms, planes.slopes[:, 1:].min(axis=0))

    def _set_steps(self) -> None:
        """Set the seconds of a step of width in the later phases, the median over pieces, and of whole steps (N,)."""
        alone = self.fits & (self.size == 1) & (self.rest > 0)
        self.step_s = 0.0
        if alone.any():
            step = int(np.gcd.reduce(self.widths[alone]))
            of_step = np.sort(self.rest[alone] / self.widths[alone] * step)
            self.step_s = float(of_step[len(of_step) // 2])
        self.in_steps = in_steps(self.rest, self.step_s, STEP_SAFE)

    def facts(self) -> tuple[Ints, Floats]:
        """The tables (N,) of pieces, and all that their prices depend on."""
        count = np.concatenate([np.full(len(self.size) - self.count.size, -1), self.count.ravel()])
        known = (self.widths, count, self.group, self.size, self.bytes, self.fits, self.alone, self.alone_rest,
                 self.rest, *self.ready.T)  # fmt: skip
        facts: Floats = np.array(known, dtype=np.float64).T
        return self.problem.modes.table[self.modes], facts

    @cached_property
    def numbers(self) -> int:
        """Numbers that one evaluation works on, roughly."""
        return OPERATIONS * self.ready.size + sum(family.size * family.shape[1] // 4 for family in self.families)

    def cheapest(self, nodes: NodeArrays, byte_price: Floats, taken: Floats) -> Floats:
        """Least price (K, rows) of a row's table, placed by its mode with pieces that fit the ranges of the nodes.

        taken (K,): seconds by which a rank's pieces may exceed `ready` by the mix of a node.
        """
        price = self._priced(nodes, taken) + byte_price[:, None] * (self.bytes / self.size)
        fits = self.fits & (self.alone <= nodes.ready[:, 1:]) & (self.alone_rest <= nodes.rest[:, 1:])
        price = np.where(fits, price * self.size, np.inf)
        split = [least_cost(price[:, family]) for family in self.families]
        whole = price[:, self.whole]  # (K, o, 2)
        return np.concatenate(
            [*split, np.where(self.count > 0, whole * np.maximum(self.count, 1), 0.0).sum(axis=2)], axis=1
        )

    def _priced(self, nodes: NodeArrays, taken: Floats) -> Floats:
        """The price of each piece on each rank that it covers (K, N), without bytes."""
        first = self._first_phase(nodes)
        last = self.rest * nodes.rest_multiplier[:, None] + self.in_steps * nodes.step_multiplier[:, None]
        last_multiplier = nodes.rest_multiplier + nodes.step_multiplier
        own = self.ready.T[nodes.plane]  # (K, N): by the plane that decides which pieces are big
        big: Bools = own > nodes.ready[:, 1:] / 2
        beside = self.fits & ~big  # pieces that may share a rank with a big one
        free: Bools = np.logical_or.reduce(
            beside & (own <= 0), axis=1
        )  # if some of them take no time, nothing is left unused
        inverse = np.divide(1.0, own, where=beside & (own > 0), out=np.zeros_like(own))
        first_ratio, last_ratio = first * inverse, self.rest * last_multiplier[:, None] * inverse
        alone = np.full_like(first, -np.inf)
        for share in REST_SHARES:
            ratio = first_ratio + (1 - share) * last_ratio
            fill, rest_fill = ratio.max(axis=1, initial=0.0), share * last_multiplier
            unused = (
                least_product(nodes.ready_multiplier - fill, nodes.ready)
                + least_product(nodes.rest_multiplier - rest_fill, nodes.rest)
                + nodes.ready_multiplier * taken + nodes.filled
            )  # fmt: skip
            np.maximum(alone, unused[:, None] + fill[:, None] * own + rest_fill[:, None] * self.rest, out=alone)
        price = first + last
        return np.where(big & ~free[:, None], np.maximum(price, alone), price)

    def _first_phase(self, nodes: NodeArrays) -> Floats:
        """The prices of pieces for their seconds in the first phase (K, N)."""
        first: Floats = np.zeros((len(nodes.ready), len(self.group)))
        for group, mine in self.of_group:
            worth = nodes.ready_multiplier[:, None] * nodes.mix[:, group]
            for plane, seconds in enumerate(self.ready[mine].T):  # in this order, as compiled code adds them up
                first[:, mine] += worth[:, plane, None] * seconds
        if nodes.dual.any():
            self._add_dual(nodes, first)
        return first

    def _add_dual(self, nodes: NodeArrays, first: Floats) -> None:
        """Add the prices of dual feasible functions to those of the first phase (K, N)."""
        seconds: Floats = np.zeros(first.shape)
        for group, mine in self.of_group:
            for plane, own in enumerate(self.ready[mine].T):
                seconds[:, mine] += nodes.mix[:, group, plane, None] * own
        scale = np.divide(SHRUNK, nodes.ready[:, 1], where=nodes.dual.any(axis=1), out=np.zeros(len(seconds)))
        share = np.minimum(seconds * scale[:, None], MOST_SHARE)
        for function, worth in zip(FUNCTIONS, nodes.dual.T, strict=True):
            first += np.where(worth[:, None] > 0, worth[:, None] * dual_feasible(function, share), 0.0)


def table_prices(evaluator: Evaluator, dominated: Bools) -> TablePrices:
    """TablePrices(evaluator, dominated), built at the first call."""
    return kept_for(evaluator, ("table prices", dominated.tobytes()), lambda: TablePrices(evaluator, dominated))


def levelled_prices(evaluator: Evaluator, dominated: Bools, most: float, groups: Bools | None) -> TablePrices | None:
    """Prices with those by levels as further, last planes; None if that is too much work.

    most: seconds that no rank exceeds in the first phase. groups (G,): groups whose use these prices should make
    costly.
    """
    plain = table_prices(evaluator, dominated)
    if len(plain.pieces.modes) * LEVELS > MOST_PRICES or not len(plain.pieces.modes):
        return None
    return plain.levelled(evaluator, most, groups)


def different_tables(tables: int, facts: list[tuple[Ints, Floats]]) -> tuple[Ints, Ints]:
    """(the first of each set of tables with equal facts (C,), in order; the index of each table's set (T,)).

    facts: (table (N,), numbers (N, ...)) pairs; a table's rows are compared in their order, to the last bit.
    """
    keys = [b""] * tables
    for table, numbers in facts:
        order = np.argsort(table, kind="stable")
        ends = np.searchsorted(table[order], np.arange(tables + 1))
        ordered = np.ascontiguousarray(numbers[order])
        for each in range(tables):
            keys[each] += b"|%d|" % (ends[each + 1] - ends[each]) + ordered[ends[each] : ends[each + 1]].tobytes()
    copies: dict[bytes, list[int]] = {}
    for each, key in enumerate(keys):
        copies.setdefault(key, []).append(each)
    like: Ints = np.empty(tables, dtype=np.int64)
    for number, some in enumerate(copies.values()):
        like[some] = number
    return np.array([some[0] for some in copies.values()]), like
