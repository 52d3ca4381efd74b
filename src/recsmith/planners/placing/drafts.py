"""The placements of a policy as plans: greedy roll-outs, samples, repair of dead ends, and local search from the best.

Every planner that has learned plans by `plan_by_policy`; what it brings is a policy: how items are ordered, and which
device each goes to.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from recsmith._types import Ints
from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.auto.improvement import Improvement
from recsmith.planners.auto.stopping import StoppingRule
from recsmith.planners.placing.items import SPLITS, ItemBatch, items_of
from recsmith.planners.placing.words import PolicyWord
from recsmith.planners.protocol import Search, Solution
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.fewest_pieces import place_in_fewest_pieces
from recsmith.planners.search.repair import repair

LARGE, FEW_RULES = 60_000, 2  # tables times devices beyond which so many rules of what is split are tried
AT_ONCE = 200_000  # devices times placements drawn side by side: bounds the memory that they take


class Placed(Protocol):
    """Placements of the same items: target (episodes, items), NOWHERE where an item found no room."""

    @property
    def target(self) -> Ints:
        """The device of each item of each episode."""
        ...


class Policy(Protocol):
    """What places items, one after the other."""

    def order(self, items: ItemBatch) -> ItemBatch:
        """The items in the order in which they are placed."""
        ...

    def rollout(self, items: ItemBatch, count: int = 1, random: np.random.Generator | None = None) -> Placed:
        """So many placements of ordered items, drawn by `random`; greedy ones where it is None."""
        ...


def plan_by_policy(
    search: Search, policy: Policy, word: PolicyWord, planner: str, seed: int, note: str = ""
) -> Solution:
    """The best placement of a policy; NoPlanFound where tables find no room. An iteration is a placement.

    planner: its name in reports. note: for a report, where the policy has none of its own to give.
    """
    drafts = _Drafts(search, policy, seed)
    with search.interruptible():
        draft = drafts.best(word.samples)
        if draft is not None and word.refine and not search.stop:
            _refine(search, draft, seed)
    if drafts.lost:
        note = f"{planner}: the policy found no room for every table; they went longest first"
    return replace(search.found(planner), left_out=(note,) if note else ())


class _Drafts:
    """The placements of a policy, tried one after the other; `search` keeps the best plan."""

    def __init__(self, search: Search, policy: Policy, seed: int) -> None:
        self.search, self.policy, self.seed = search, policy, seed
        self.evaluator, self.problem = search.evaluator, search.evaluator.problem
        self.lost = False  # whether the policy placed nothing

    def best(self, samples: int) -> Assignment | None:
        """The best complete placement of greedy roll-outs and of samples; None where nothing finds room."""
        items: ItemBatch | None = None
        found: Assignment | None = None
        dead: list[Assignment] = []
        for each in self._items():
            draft = each.assignment(self.policy.rollout(each).target[0])
            if not draft.complete:
                dead.append(draft)
                continue
            better = self._try(draft, found)
            found, items = better, each if better is draft else items
            if self.search.stop:
                return found
        if found is None:
            repaired = next(filter(None, map(self._repaired, dead)), None)
            self.lost = repaired is None
            found = self._try(repaired or self._longest_first(), None)
        return found if items is None else self._drawn(items, samples, found)

    def _items(self) -> Iterator[ItemBatch]:
        """The items of each rule of what is split, in the order of placement; none twice."""
        seen: set[bytes] = set()
        size = len(self.problem.tables) * len(self.problem.capacity)
        for rule in SPLITS[: FEW_RULES if size > LARGE else None]:
            items = items_of(self.problem, self.evaluator, rule)
            if items is not None and items.draft.option.tobytes() not in seen:
                seen.add(items.draft.option.tobytes())
                yield self.policy.order(items)

    def _drawn(self, items: ItemBatch, samples: int, found: Assignment | None) -> Assignment | None:
        """The best of a placement and of those drawn from the policy."""
        random, left = np.random.default_rng(self.seed), samples
        while left > 0 and not self.search.stop:
            count = min(left, max(1, AT_ONCE // items.devices))
            left -= count
            for target in self.policy.rollout(items, count, random).target:
                if self.search.stop:
                    break
                found = self._try(_complete(items, target), found)
        return found

    def _try(self, draft: Assignment | None, other: Assignment | None) -> Assignment | None:
        """Try a placement; it, where it is the best yet or there is no other, or else the other."""
        best = self.search.total_s
        total = self.search.try_(draft.footprint(self.problem) if draft else None)
        return draft if draft is not None and (other is None or total < best) else other

    def _repaired(self, draft: Assignment) -> Assignment | None:
        """The placement once what found no room has pushed smaller pieces away; None where that does not help."""
        devices = DeviceState(self.evaluator)
        for i in np.flatnonzero(draft.target != NOWHERE).tolist():
            devices.place(int(draft.piece[i]), int(draft.target[i]))
        repair(devices, draft)
        return draft if draft.complete else None

    def _longest_first(self) -> Assignment | None:
        return place_in_fewest_pieces(DeviceState(self.evaluator), shared_relaxation(self.evaluator))


def _complete(items: ItemBatch, target: Ints) -> Assignment | None:
    """The plan of a roll-out, None where it came to a dead end."""
    draft = items.assignment(target)
    return draft if draft.complete else None


def _refine(search: Search, draft: Assignment, seed: int) -> None:
    """Local search from a placement, with the effort that planner auto gives one draft."""
    evaluator = search.evaluator
    known = lower_bound(evaluator)
    size = len(evaluator.problem.tables) * len(evaluator.problem.capacity)
    stopping = StoppingRule(search, known.bound.value_s or 0.0, size)
    if not stopping.reached:
        relaxation = shared_relaxation(evaluator, known.linear)
        Improvement(search, stopping, DeviceState(evaluator), seed).run([draft], relaxation, limited=True)
