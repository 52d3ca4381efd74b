"""The split rule that suits a problem: the one whose items, placed longest first, make the shortest step.

Planner longest_first makes a plan of it. Planners that learn for one problem begin with it; other planners fall back on
it if they find no room.
"""

from typing import NamedTuple

import numpy as np

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator, step_seconds
from recsmith.planners.placing.items import SPLITS, ItemBatch, items_of
from recsmith.planners.search.device_state import NOWHERE, QUANTUM, Assignment, DeviceState
from recsmith.planners.search.placement import place_in_fewest_pieces, place_longest_first, repair
from recsmith.planners.search.smooth_max import LEAST_LOAD
from recsmith.problems import Problem


class SplitItems(NamedTuple):
    """Items in falling seconds, and their longest-first placement after repair; some may still be NOWHERE."""

    items: ItemBatch
    draft: Assignment


def best_split(problem: Problem, evaluator: Evaluator) -> SplitItems | None:
    """The items of the rule with the best longest-first placement; None if a table placed before finds no room."""
    devices = DeviceState(evaluator)
    best: SplitItems | None = None
    least = (0.0, 0.0)  # (bytes of items that found no room, seconds)
    for rule in SPLITS:
        items = items_of(problem, evaluator, rule)
        if items is None:
            continue
        draft = _longest_first(devices, items)
        lost = float(problem.pieces.tail.device[draft.piece[draft.target == NOWHERE]].sum())
        rank = (lost, 0.0 if lost else step_seconds(evaluator, draft.footprint(problem)))
        if best is None or rank < least:
            best, least = SplitItems(_ordered(devices, items), draft), rank
    return best


def longest_first_plan(evaluator: Evaluator, split: SplitItems | None) -> Assignment | None:
    """The draft if it is complete, else all tables in as few pieces as fit; None if that finds no room."""
    if split is not None and split.draft.complete:
        return split.draft
    return place_in_fewest_pieces(DeviceState(evaluator), shared_relaxation(evaluator))


def _longest_first(devices: DeviceState, items: ItemBatch) -> Assignment:
    """Place all items, longest first, next to the tables that are placed before them."""
    devices.clear()
    draft = items.draft
    for i in np.flatnonzero(draft.target != NOWHERE).tolist():
        devices.place(int(draft.piece[i]), int(draft.target[i]))
    rest = Assignment(draft.option, draft.table[items.row], draft.piece[items.row], draft.target[items.row].copy())
    place_longest_first(devices, rest, devices.seconds)
    repair(devices, rest)
    return items.assignment(rest.target)


def _ordered(devices: DeviceState, items: ItemBatch) -> ItemBatch:
    """The items in falling seconds; rounding errors do not change the order."""
    seconds = devices.seconds[items.draft.piece[items.row]]
    scale = max(float(seconds.mean()), LEAST_LOAD) * QUANTUM if len(items) else 1.0
    return items.sorted_by(np.floor(seconds / scale))
