"""Random and simple assignments to test states of the devices with; memory and legality are not asked."""

import numpy as np

from recsmith._types import Bools
from recsmith.planners.search.device_state import Assignment
from recsmith.problems import Problem


def random_assignment(problem: Problem, random: np.random.Generator, among: Bools | None = None) -> Assignment:
    """An option for each table, of those (O,) that are among some, and a target for each of its pieces."""
    start, choice = problem.options.start, list[int]()
    for first, last in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        own = np.arange(first, last)
        choice.append(int(random.choice(own if among is None else own[among[own]])))
    made = Assignment.of(problem, np.array(choice))
    coverage = problem.modes.coverage[problem.pieces.mode[made.piece]]
    made.target[:] = random.integers(len(problem.capacity) // coverage)
    return made
