"""Where a learned cost model is asked beyond what it was trained on.

Legend: M modes, T tables, C cells.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.neural.files import Card
from recsmith.costs.neural.reach import distances, figures_of
from recsmith.problems import Problem

CLOSE = 1.0 + 1e-9  # a factor; up to it an input counts as within the range
LEAST = 1e-9  # what a most of 0 is taken for, so that factors are finite


def extrapolations(
    problem: Problem, covered: Bools, card: Card, unique: Floats, cells: Floats | None
) -> dict[str, float]:
    """By what factor inputs exceed the most that training saw, the largest factor first; those within it are left out.

    Inputs of tables count as those of the largest piece that any covered mode may put on a rank; inputs of devices as
    what ranks hold on average, as if all of it were one fusion group. unique: different rows of each mode (M,). cells
    (C, 4): where trained tables lie; the table that is farthest from them counts, by its name.
    """
    modes, world = problem.modes, problem.cluster.world_size
    asked = {
        "device ids": float(problem.demand.ids.sum()),
        "device outputs": float((problem.demand.bags * problem.demand.dim).sum()),
        "device tables": len(problem.tables) / world,
    }
    if covered.any():
        table = modes.table[covered]
        asked |= {
            "ids": float(modes.ids[covered].max()),
            "bags": float(modes.bags[covered].max()),
            "rows": float(modes.head_rows[covered].max()),
            "columns": float(problem.demand.dim[table].max()),
        }
    known = {name: value for name, value in asked.items() if name in card.ranges}
    factors = {name: value / max(card.ranges[name].most, LEAST) for name, value in known.items()}
    if cells is not None and len(cells) and covered.any():
        factors |= _farthest(problem, covered, unique, cells)
    beyond = [(name, factor) for name, factor in factors.items() if factor > CLOSE]
    return dict(sorted(beyond, key=lambda pair: -pair[1]))


def _farthest(problem: Problem, covered: Bools, unique: Floats, cells: Floats) -> dict[str, float]:
    """The table that lies farthest from all cells with every column on one rank, and how far."""
    modes, which = problem.modes, np.flatnonzero(covered)
    table = modes.table[which]
    figures = figures_of(
        modes.head_rows[which].astype(np.float64), modes.ids[which], modes.bags[which],
        problem.demand.dim[table].astype(np.float64), unique[which],
    )  # fmt: skip
    far = distances(figures, cells)
    worst = int(far.argmax())
    return {f"table '{problem.tables[int(table[worst])].name}'": float(far[worst])}
