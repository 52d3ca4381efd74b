"""Costs of items on devices under any cost model: for many placements at once, and for every change of a placement.

Legend: E placements, N items, D devices, G fusion groups, k work terms, F phases of the step.
"""

from dataclasses import dataclass

import numpy as np

from recsmith.costs import Evaluator, device_sums, phase_seconds
from recsmith.elementary import matmul
from recsmith.planners.placing import NOWHERE, ItemBatch
from recsmith.problems import Footprint
from recsmith_per_problem.arrays import Floats, Ints

SMALLEST = 1e-12  # seconds: a smaller load is not used as a scale


@dataclass(frozen=True)
class ItemPrices:
    """Costs of items on devices, in addition to the tables that are already placed.

    terms (N, k), group (N,): of items. before (G, D, k): summed terms of the tables already placed. common (F,):
    seconds that every device spends in addition. alone (N,): seconds of an item by itself. even_s: seconds of a device
    with an even share.
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
        """The prices of items, given the tables placed before them."""
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
        """Summed terms (E, G, D, k) for placements (E, N)."""
        device = np.arange(len(self.before[0]))
        sums = np.repeat(self.before[None], len(target), axis=0)
        for group in range(len(self.before)):
            mine = self.group == group
            there = target[:, mine][:, None, :] == device[:, None]  # (E, D, n)
            sums[:, group] += matmul(there, self.terms[mine])
        return sums

    def loads(self, sums: Floats) -> Floats:
        """Seconds of each phase (F, ..., D) for devices with summed terms (..., G, D, k)."""
        return self.evaluator.loads(sums).sum(axis=-2)

    def steps(self, target: Ints) -> Floats:
        """Seconds of the step (E,) for placements (E, N)."""
        slowest = self.loads(self.sums(target)).max(axis=-1)  # (F, E)
        return (slowest + self.common[:, None]).sum(axis=0)

    def changes(self, target: Ints) -> tuple[Floats, Floats]:
        """Loads (F, D) of one placement (N,), and the seconds (F, N, D) that each item adds to each device.

        On its own device an item adds the device's seconds with it less those without it.
        """
        sums = self.sums(target[None])[0]  # (G, D, k)
        own = sums[self.group]  # (N, D, k): of the item's group
        here = target[:, None] == np.arange(len(self.before[0]))
        terms = self.terms[:, None, :]
        without = np.maximum(own - here[..., None] * terms, 0.0)
        adds = self.evaluator.loads(without + terms) - self.evaluator.loads(without)
        return self.loads(sums), adds
