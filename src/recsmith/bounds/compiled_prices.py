"""The least prices of tables in compiled code, if the package has it: those of `TablePrices` to the last bit.

It takes a seventh of the time, and lets other threads run meanwhile.

Legend: K nodes side by side, N pieces, G fusion groups, J planes, o options.
"""

from typing import Any, Protocol, cast

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.dual_feasible import FUNCTIONS
from recsmith.bounds.phase_nodes import NodeArrays

CODE = "bounds._prices"


class PricedPieces(Protocol):
    """The attributes of LocalPieces (phase_prices.py) that are read."""

    group: Ints
    ready: Floats
    rest: Floats
    in_steps: Floats
    alone: Floats
    alone_rest: Floats
    fits: Bools
    size: Floats
    bytes: Floats
    families: list[Ints]
    count: Ints


class PricedTables(Protocol):
    """The attributes of TablePrices (phase_prices.py) that are read."""

    world: int
    worldwide: Floats
    worldwide_bytes: Floats
    worldwide_group: Ints
    key: Ints
    copies: Ints
    groups: int


class CompiledPrices:
    """Tables and their pieces in the form of the compiled code; `least` may be called many times."""

    def __init__(
        self, tables: PricedTables, pieces: PricedPieces, rest_shares: tuple[float, ...], most_steps: int
    ) -> None:
        ready = np.ascontiguousarray(pieces.ready.T)
        usable = pieces.fits & (ready > 0)
        own = np.where(pieces.fits, ready, np.inf)
        families = [family.shape for family in pieces.families]
        options, pairs = pieces.count.shape
        rows = sum(modes for modes, _ in families) + options
        self._cells = len(tables.copies), tables.groups
        self._pieces = len(pieces.group)
        self._rows = (rows, options, pairs, most_steps, len(tables.worldwide), tables.groups * len(tables.copies),
                      tables.world)  # fmt: skip
        self._arrays = (
            _ints(pieces.group), ready, np.divide(1.0, ready, where=usable, out=np.zeros_like(ready)), own,
            own.min(axis=1, initial=np.inf),
            *map(_floats, (pieces.rest, pieces.in_steps, pieces.alone, pieces.alone_rest)), _ints(pieces.fits),
            *map(_floats, (pieces.size, pieces.bytes / pieces.size)), _ints(families).ravel(),
            _floats(pieces.count), _floats(rest_shares), _floats(FUNCTIONS).ravel(),
            _floats(tables.worldwide), _floats(tables.worldwide_bytes), _ints(tables.worldwide_group),
            _ints(tables.key),
        )  # fmt: skip

    def least(self, nodes: NodeArrays, taken: Floats) -> Floats:
        """The least price of each table in each group (K, C, G), as in TablePrices.least."""
        count, groups, planes = nodes.mix.shape
        sizes = _ints((self._pieces, groups, planes, count, *self._rows))
        each = (nodes.ready, nodes.rest, nodes.ready_multiplier, nodes.rest_multiplier, nodes.byte_price, nodes.mix,
                nodes.dual, nodes.step_multiplier, nodes.filled)  # fmt: skip
        prices: Floats = np.empty((count, *self._cells))
        call_compiled(
            compiled(CODE).price,
            (sizes, *self._arrays, *map(_floats, each), _ints(nodes.plane), _floats(taken), prices),
        )
        return prices


def cheapest_groups(least: Floats, open_: Bools, which: Ints) -> Floats:
    """The least price (K, C) of tables in the groups that are open to them, as in `TablePrices.selected`."""
    found: Floats = np.empty(least.shape[:2])
    call_compiled(compiled(CODE).select, (_floats(least), _ints(open_), _ints(which), found))
    return found


class CompiledOptions:
    """Options (O,) of tables (T,) in the form of the compiled code; `cheapest` may be called many times."""

    def __init__(
        self, seconds: Floats, bytes_: Floats, largest: Floats, heaviest: Floats, worldwide: Bools, fits: Bools,
        group: Ints, start: Ints,
    ) -> None:  # fmt: skip
        self._arrays = (
            *map(_floats, (seconds, bytes_, largest, heaviest)), *map(_ints, (worldwide, fits, group, start))
        )  # fmt: skip

    def cheapest(self, limits: Floats, groups: Bools | None) -> tuple[Ints, Floats, Floats]:
        """(option, its seconds, its bytes) of each table; -1, infinity and 0 if no option is open.

        limits: the limit of a piece, of one that does not span the world, and of its bytes; the world penalty and byte
        price.
        """
        tables = len(self._arrays[-1]) - 1
        found = (np.empty(tables, np.int64), np.empty(tables), np.empty(tables))
        call_compiled(
            compiled(CODE).choose, (*self._arrays, _ints(() if groups is None else groups), limits, *found)
        )  # fmt: skip
        return found


def can_split() -> bool:
    """Whether the compiled code that finds the cheapest splits is available."""
    return hasattr(compiled(CODE), "split")


def cheapest_splits(cost: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(least total cost, the bytes of the split with this cost), both (m,), as in `least_cost_and_bytes`."""
    found = (np.empty(len(cost)), np.empty(len(cost)))
    call_compiled(compiled(CODE).split, (_floats(cost), _floats(size), *found))
    return found


def can_choose() -> bool:
    """Whether the compiled code that chooses options is available."""
    return hasattr(compiled(CODE), "choose")


def is_compiled() -> bool:
    """Whether the package was built with a C compiler."""
    return compiled(CODE) is not None


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(cast(Any, values), dtype=np.int64)


def _floats(values: object) -> Floats:
    return np.ascontiguousarray(cast(Any, values), dtype=np.float64)
