"""Every arrangement of every table: which share of it is on which rank, and what that puts there.

Legend: n arrangements of a table, W ranks, H hosts, L ranks a host, S shares, k work terms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.planners.solver.layouts import SharedWidth, Shares
from recsmith.problems import Problem
from recsmith.sharding.coverage import bytes_on, covering_target, first_rank


@dataclass(frozen=True)
class Arrangements:
    """All arrangements (n,) of one table, and what each puts on every rank.

    group (n,): fusion group. share (n, W): the share that covers a rank, or S where none does. terms (n, W, k): work
    terms. device (n, W), host (n, H): bytes. shared_width: (collection, width) of column-wise sequences, else None.
    """

    group: Ints
    share: Ints
    terms: Floats
    device: Ints
    host: Ints
    shared_width: list[SharedWidth | None]


def arrangements_of(problem: Problem, shares: Shares, most: int) -> list[Arrangements] | None:
    """The arrangements of every table; None where all tables together have more than `most`."""
    found: list[Arrangements] = []
    for table in range(len(problem.tables)):
        own = [number for number, layout in enumerate(shares.layouts) if layout.table == table]
        rows = [row for number in own for row in _rows(problem, shares, number, most)]
        if problem.legality.any:
            rows = [row for row in rows if keeps_rules(problem, shares, table, row[1])]
        most -= len(rows)
        if most < 0:
            return None
        found.append(_arrangements(problem, shares, rows))
    return found


def _rows(problem: Problem, shares: Shares, number: int, most: int) -> list[tuple[int, list[int]]]:
    """(layout, share on each rank) of all ways to spread a layout's columns; at most one more than `most` of them."""
    layout, none = shares.layouts[number], len(shares.layout)
    own = np.flatnonzero(shares.layout == number)
    sizes = list(zip(own.tolist(), shares.columns[own].tolist(), strict=True))
    dim = int(problem.demand.dim[layout.table])
    before = [none] * layout.targets.start
    after = [none] * (problem.cluster.world_size // layout.coverage - layout.targets.stop)
    return [
        (number, [share for share in (*before, *filling, *after) for _ in range(layout.coverage)])
        for filling in islice(_fillings([(none, 0), *sizes], len(layout.targets), dim), most + 1)
    ]


def keeps_rules(problem: Problem, shares: Shares, table: int, held: list[int]) -> bool:
    """Whether a table keeps the rules for itself alone with these shares on the ranks (W,)."""
    share = np.array(held)
    rank = np.flatnonzero(share < len(shares.layout))
    coverage = shares.coverage[share[rank]]
    target = covering_target(rank, coverage)
    first = first_rank(target, coverage) == rank
    pieces = shares.footprint(problem, share[rank][first], target[first])
    return not problem.legality.broken_alone(pieces)[table]


def _fillings(sizes: list[tuple[int, int]], targets: int, columns: int) -> Iterator[tuple[int, ...]]:
    """Every choice of a (share, its columns) for each target whose columns add up."""
    if targets == 0:
        yield from [()] if columns == 0 else []
        return
    for share, size in sizes:
        if size <= columns:
            yield from ((share, *others) for others in _fillings(sizes, targets - 1, columns - size))


def _arrangements(problem: Problem, shares: Shares, rows: list[tuple[int, list[int]]]) -> Arrangements:
    """The arrangements of these (layout, share on each rank)."""
    share = np.array([row for _, row in rows], dtype=np.int64).reshape(len(rows), problem.cluster.world_size)
    layouts = [shares.layouts[number] for number, _ in rows]
    coverage = np.array([layout.coverage for layout in layouts], dtype=np.int64)
    none = np.zeros((1, 2), dtype=np.int64)
    head, tail = (np.vstack([end, none])[share] for end in (shares.head, shares.tail))  # (n, W, 2)
    size = bytes_on(np.arange(problem.cluster.world_size)[:, None], coverage[:, None, None], head, tail)
    terms = np.vstack([shares.terms, np.zeros_like(shares.terms[:1])])
    return Arrangements(
        group=np.array([layout.group for layout in layouts], dtype=np.int64), share=share, terms=terms[share],
        device=size[:, :, 0],
        host=size[:, :, 1].reshape(len(rows), problem.cluster.hosts, problem.cluster.local_world_size).sum(axis=2),
        shared_width=[layout.shared_width for layout in layouts],
    )  # fmt: skip
