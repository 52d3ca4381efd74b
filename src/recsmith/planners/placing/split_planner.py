"""Plans made by a split policy: the cost model decides where pieces are placed, and which of many episodes is best.

The first episode takes the likelier decisions of the policy, the others draw theirs. If no table can or may be split,
there is nothing to decide, so the other episodes perturb the placement of pieces instead. If every episode came to a
dead end, tables are placed longest first, and the report says so.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recsmith.planners.placing.best_split import best_split, longest_first_plan
from recsmith.planners.placing.shapes import shapes_of
from recsmith.planners.placing.split_episodes import EndedEpisodes, PricedShapes
from recsmith.planners.placing.split_policy import SplitPolicy
from recsmith.planners.protocol import Search, Solution
from recsmith.planners.search.device_state import Assignment

LARGE = 60_000  # tables times devices beyond which there is only one episode
AT_ONCE = 256  # episodes side by side: bounds their memory


def plan_by_splits(
    search: Search, policy: SplitPolicy, planner: str, count: int, *, whole: bool = False
) -> tuple[Solution, Assignment | None]:
    """Return the plan of the best of `count` episodes, and its draft; NoPlanFound if tables find no room.

    planner: its name in reports. whole: tables that fit a device stay whole. An iteration is up to AT_ONCE episodes.
    """
    best, note = None, ""
    with search.interruptible():
        for ended in _episodes(search, policy, count, whole=whole):
            made = ended.episodes.assignment(ended.best) if np.isfinite(ended.step_s).any() else None
            if search.try_(made.footprint(search.problem) if made else None) <= search.total_s:
                best = made or best
            if search.stop:
                break
        if search.best is None:
            note = f"{planner}: the policy found no room for every table; they went longest first"
            split = None if whole else best_split(search.problem, search.evaluator)
            best = longest_first_plan(search.evaluator, split)
            search.try_(best.footprint(search.problem) if best else None)
    return replace(search.found(planner), left_out=(note,) if note else ()), best


def _episodes(search: Search, policy: SplitPolicy, count: int, *, whole: bool) -> Iterator[EndedEpisodes]:
    """Play all episodes, AT_ONCE of them side by side."""
    shapes = shapes_of(search.problem, search.evaluator)
    if shapes is None:
        return
    priced, random = PricedShapes(shapes, search.evaluator, whole=whole), np.random.default_rng(search.seed)
    count = 1 if len(shapes.table) * shapes.devices > LARGE else count
    for first in range(0, count, AT_ONCE):
        decide = policy.drawn(random, likeliest=first == 0)
        yield priced.play(min(AT_ONCE, count - first), decide, None if priced.free_choice else random)
