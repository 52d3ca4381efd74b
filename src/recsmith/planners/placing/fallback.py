"""A plan where what a planner learned found no room for every table: repaired, or else in as few pieces as fit."""

import numpy as np

from recsmith.bounds.shared_relaxations import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.fewest_pieces import place_in_fewest_pieces
from recsmith.planners.search.repair import repair


def fallback(evaluator: Evaluator, draft: Assignment | None) -> Assignment | None:
    """The draft once what found no room has pushed smaller pieces away, or all tables longest first; None for none."""
    devices = DeviceState(evaluator)
    if draft is not None:
        draft.target = draft.target.copy()
        for i in np.flatnonzero(draft.target != NOWHERE).tolist():
            devices.place(int(draft.piece[i]), int(draft.target[i]))
        repair(devices, draft)
        if draft.complete:
            return draft
    return place_in_fewest_pieces(devices, shared_relaxation(evaluator))
