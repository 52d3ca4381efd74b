"""Planners that learn while they plan, for one problem, and keep nothing: what surco and rnn have in common.

Both place the items of the rule of what is split that suits the problem: the one whose items, placed longest first,
make the shortest step. What they learn are drafts, one placement after the other; the best is the plan. Where none of
them had room, tables go longest first. `ItemPrices` says what items cost on devices by any cost model: in many
placements at once, and in every change of a placement.

Legend: E placements, N items, D devices, G fusion groups, k work terms, F phases of the step.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator, device_sums, phase_seconds, step_seconds
from recsmith.elementary import matmul
from recsmith.planners.placing.items import SPLITS, ItemBatch, items_of
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.device_state import NOWHERE, QUANTUM, Assignment, DeviceState
from recsmith.planners.search.placement import place_in_fewest_pieces, place_longest_first, repair
from recsmith.planners.search.smooth_max import LEAST_LOAD
from recsmith.problems import Footprint, Problem

SMALLEST = 1e-12  # seconds, below which a load is no scale


@dataclass(frozen=True)
class PerProblemPlanner(SearchPlanner):
    """A planner whose drafts get better. lost: what a report says where no draft had room for every table."""

    lost: ClassVar[str]

    name: str

    @abstractmethod
    def check(self, split: "SplitItems | None") -> None:
        """Refuse a problem that is too large, or a machine that lacks what learning needs."""

    @abstractmethod
    def drafts(self, split: "SplitItems | None", evaluator: Evaluator, seed: int) -> Iterator[Assignment | None]:
        """One draft after the other, each an iteration; None where it had no room. No split: a table has none."""

    def solve(self, search: Search) -> Solution:
        """The best of all drafts; NoPlanFound where tables find no room. An iteration is a draft.

        Raises:
            UsageError: the problem is too large for the planner. MissingExtra: a package that it needs is missing.
        """
        lost = False
        with search.interruptible():
            split = best_split(search.problem, search.evaluator)
            self.check(split)
            lost = not self._try_drafts(search, split)
            if lost:
                found = longest_first_plan(search.evaluator, split)
                search.try_(found.footprint(search.problem) if found else None)
        return replace(search.found(self.name), left_out=(self.lost,) if lost else ())

    def _try_drafts(self, search: Search, split: "SplitItems | None") -> bool:
        """Try drafts until the budget is spent; whether one of them had room."""
        placed = False
        for draft in self.drafts(split, search.evaluator, search.seed):
            placed = placed or draft is not None
            search.try_(draft.footprint(search.problem) if draft else None)
            if search.stop:
                break
        return placed


# --- which tables are split -------------------------------------------------------------------------------------------


class SplitItems(NamedTuple):
    """Items in falling seconds, and their longest-first placement, repaired; some may be NOWHERE even so."""

    items: ItemBatch
    draft: Assignment


def best_split(problem: Problem, evaluator: Evaluator) -> SplitItems | None:
    """The items of the rule whose longest-first placement is best; None where a table placed before finds no room."""
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


def longest_first_plan(evaluator: Evaluator, split: "SplitItems | None") -> Assignment | None:
    """The draft, or all tables in as few pieces as fit, where it is not complete; None where that finds no room."""
    if split is not None and split.draft.complete:
        return split.draft
    return place_in_fewest_pieces(DeviceState(evaluator), shared_relaxation(evaluator))


def _longest_first(devices: DeviceState, items: ItemBatch) -> Assignment:
    """All items, longest first, beside what is placed before them."""
    devices.clear()
    draft = items.draft
    for i in np.flatnonzero(draft.target != NOWHERE).tolist():
        devices.place(int(draft.piece[i]), int(draft.target[i]))
    rest = Assignment(draft.option, draft.table[items.row], draft.piece[items.row], draft.target[items.row].copy())
    place_longest_first(devices, rest, devices.seconds)
    repair(devices, rest)
    return items.assignment(rest.target)


def _ordered(devices: DeviceState, items: ItemBatch) -> ItemBatch:
    """The items in falling seconds; differences of rounding do not count."""
    seconds = devices.seconds[items.draft.piece[items.row]]
    scale = max(float(seconds.mean()), LEAST_LOAD) * QUANTUM if len(items) else 1.0
    return items.sorted_by(np.floor(seconds / scale))


# --- prices of items --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemPrices:
    """What items cost on devices beside the tables that are placed before.

    terms (N, k), group (N,): of items. before (G, D, k): summed terms of the tables placed before. common (F,): seconds
    that every device spends on top. alone (N,): seconds of an item by itself. even_s: of a device with an even share.
    """

    evaluator: Evaluator
    terms: Floats
    group: Ints
    before: Floats
    common: Floats
    alone: Floats
    even_s: float

    @classmethod
    def of(cls, items: ItemBatch, evaluator: Evaluator) -> "ItemPrices":
        """Of items and what is placed before them."""
        draft = items.draft.footprint(evaluator.problem)
        placed = draft.target != NOWHERE
        first = Footprint(draft.mode[placed], draft.width[placed], draft.target[placed])
        before = np.moveaxis(device_sums(evaluator, first), 1, 0)
        mode = draft.mode[items.row]
        terms = evaluator.terms(mode, draft.width[items.row])
        used = evaluator.shared[np.unique(evaluator.group[draft.mode])].sum(axis=0)
        alone = evaluator.loads(terms).sum(axis=0)
        even_s = max((float(alone.sum()) + float(evaluator.loads(before).sum())) / items.devices, SMALLEST)
        common = phase_seconds(evaluator, used)
        return cls(evaluator, terms, evaluator.group[mode], before, common, alone, even_s)

    def sums(self, target: Ints) -> Floats:
        """Summed terms (E, G, D, k) of placements (E, N)."""
        device = np.arange(len(self.before[0]))
        sums = np.repeat(self.before[None], len(target), axis=0)
        for group in range(len(self.before)):
            mine = self.group == group
            there = target[:, mine][:, None, :] == device[:, None]  # (E, D, n)
            sums[:, group] += matmul(there, self.terms[mine])
        return sums

    def loads(self, sums: Floats) -> Floats:
        """Seconds of each phase (F, ..., D) of devices with summed terms (..., G, D, k)."""
        return self.evaluator.loads(sums).sum(axis=-2)

    def steps(self, target: Ints) -> Floats:
        """Seconds of the step (E,) of placements (E, N)."""
        slowest = self.loads(self.sums(target)).max(axis=-1)  # (F, E)
        return (slowest + self.common[:, None]).sum(axis=0)

    def changes(self, target: Ints) -> tuple[Floats, Floats]:
        """Loads (F, D) of one placement (N,), and the seconds (F, N, D) that each item adds to each device.

        On its own device an item adds what the device takes with it and would not take without it.
        """
        sums = self.sums(target[None])[0]  # (G, D, k)
        own = sums[self.group]  # (N, D, k): of the item's group
        here = target[:, None] == np.arange(len(self.before[0]))
        terms = self.terms[:, None, :]
        without = np.maximum(own - here[..., None] * terms, 0.0)
        adds = self.evaluator.loads(without + terms) - self.evaluator.loads(without)
        return self.loads(sums), adds
