"""What items cost on devices by any cost model: in many placements at once, and in every change of a placement.

Legend: E placements, N items, D devices, G fusion groups, k work terms, F phases of the step.
"""

from dataclasses import dataclass

import numpy as np

from recsmith.costs import Evaluator, device_sums, phase_seconds
from recsmith.elementary import matmul
from recsmith.planners.placing import NOWHERE, ItemBatch
from recsmith.problems import Footprint
from recsmith_per_problem.arrays import Floats, Ints

SMALLEST = 1e-12  # seconds, below which a load is no scale


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
