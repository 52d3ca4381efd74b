"""Where annealing begins: sets of fusion groups, and a first plan in each.

Every group in use costs launches and latencies, so a plan that uses others is many changes away, and annealing hardly
ever gets there: it begins in several sets side by side instead.

Legend: G fusion groups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from recsmith._types import Bools
from recsmith.bounds import LowerBound, SelectionLimits
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.lower_bound import always
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.candidates import place_candidate
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE

FEW_GROUPS = 4  # up to which every set is tried
LIMITS = (0.95, 0.7, 0.5, 1.3)  # times the bound: seconds of the largest piece that tables select under
TIE_PENALTY = 1e-3  # share of its seconds by which an option that spans the world counts as dearer than others
MOST_SETS = 16
PLACED = 400_000  # tables times devices of all first plans that are made; each takes about as long as these are many


@dataclass(frozen=True)
class Start:
    """A first plan: its seconds, the groups (G,) that annealing keeps to, and the plan."""

    seconds: float
    groups: Bools
    draft: Assignment


def starts_of(
    devices: DeviceState,
    relaxation: Relaxation,
    known: LowerBound,
    drafts: Sequence[tuple[float, Assignment]],
    keep_on: Callable[[], bool] = always,
) -> list[Start]:
    """First plans, best first: the best draft of each set of groups that drafts use, and placements of our own.

    keep_on: asked before each placement whether there is time for it.
    """
    kept: dict[bytes, Start] = {}
    dominated = groups_dominated_by_type(devices.evaluator)
    found = [Start(seconds, _used(relaxation, draft), draft) for seconds, draft in drafts]
    left = PLACED // (len(devices.problem.tables) * len(devices.free))
    for groups in _sets(known, ~dominated):
        for limit in LIMITS if left > 0 else ():
            if not keep_on():
                break
            limits = SelectionLimits(limit=limit * (known.bound.value_s or np.inf), groups=groups,
                                     world_penalty=TIE_PENALTY)  # fmt: skip
            choice = relaxation.choose(limits)
            if (choice.option == NO_PIECE).any():
                break
            draft, left = place_candidate(devices, relaxation, choice), left - 1
            if draft is not None:
                found.append(Start(devices.total, groups, draft))
    for start in sorted(found, key=lambda each: each.seconds):
        kept.setdefault(start.groups.tobytes(), start)
    return list(kept.values())[:MOST_SETS]


def _used(relaxation: Relaxation, draft: Assignment) -> Bools:
    """The groups (G,) that a draft uses."""
    used = np.zeros(relaxation.evaluator.groups, dtype=bool)
    used[relaxation.option_group[draft.option]] = True
    return used


def _sets(known: LowerBound, useful: Bools) -> Iterator[Bools]:
    """Sets of the groups (G,) that a best plan may need: all of them, or those that the bound found promising."""
    seen: set[bytes] = set()
    for groups in _listed(known, useful):
        if groups.any() and groups.tobytes() not in seen:
            seen.add(groups.tobytes())
            yield groups


def _listed(known: LowerBound, useful: Bools) -> Iterator[Bools]:
    members = np.flatnonzero(useful).tolist()
    if len(members) <= FEW_GROUPS:
        for number in range(len(members), 0, -1):
            yield from (np.isin(np.arange(len(useful)), some) for some in combinations(members, number))
        return
    yield useful
    yield from (limits.groups & useful for limits in known.promising if limits.groups is not None)
    for number in (1, 2):
        for some in combinations(members, number):
            yield useful & ~np.isin(np.arange(len(useful)), some)
