"""The cost network of policies: seconds of any set of items on a device, from sums over the items.

    item      -> terms: work times bounded unit costs
    device    -> sums of the terms of its items -> three heads: seconds forward, of communication, backward

Terms stay proportional to work, so sums of ten items and of five hundred are priced alike. Training has the same
formulas in PyTorch (learning/policies/cost_network.py); a test holds them together.

Legend: N items, D devices, x inputs, b figures of work, t learned terms, k = t + 2 terms.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural.inputs import WORK
from recsmith.planners.placing.items import INPUT_COUNT, ItemBatch

TERMS, HIDDEN, WIDE = 6, 32, 64  # t; hidden units; hidden units of the first layer of an item
BEND, REACH = 2.5, 1.5  # unit costs and heads lie within e ** these of their base
MICRO = 1e6  # terms are microseconds, of whose logarithms heads correct
LOG_SPAN = 8.0
SMALLEST = 1e-12  # seconds, below which a load is no scale
QUANTUM = 2.0**-20  # predictions and scores are compared as multiples of it, so that rounding decides nothing
COST_SHAPES: dict[str, tuple[int, ...]] = {
    "centre": (INPUT_COUNT,), "spread": (INPUT_COUNT,),
    "item0": (WIDE, INPUT_COUNT), "item0_bias": (WIDE,), "item1": (HIDDEN, WIDE), "item1_bias": (HIDDEN,),
    "unit": (TERMS * len(WORK), HIDDEN), "unit_bias": (TERMS * len(WORK),), "base": (TERMS, len(WORK)),
    "log_launch": (3,), "log_slope": (3, TERMS + 1),
    "head0": (HIDDEN, TERMS + 2), "head0_bias": (HIDDEN,), "head1": (3, HIDDEN), "head1_bias": (3,),
}  # fmt: skip


@dataclass(frozen=True)
class CostNetwork:
    """What devices cost; tensors as in COST_SHAPES, and those of a policy besides."""

    tensors: dict[str, Floats] = field(repr=False)

    def terms(self, items: ItemBatch) -> Floats:
        """A count, learned terms and link microseconds of each item (N, k)."""
        hidden = self.two_layers("item", self.scaled(items))
        bent = BEND * np.tanh(self.linear("unit", hidden) / BEND).reshape(-1, TERMS, len(WORK))
        learned = np.einsum("ntb,nb->nt", np.exp(self.tensors["base"] + bent), items.work) * MICRO
        return np.column_stack([np.ones(len(items)), learned, items.link_s * MICRO])

    def costs(self, sums: Floats) -> Floats:
        """Seconds forward, of communication and backward (..., 3) of devices with summed terms (..., k)."""
        hidden = np.maximum(self.linear("head0", np.log1p(sums) / LOG_SPAN), 0.0)
        factor = np.exp(REACH * np.tanh(self.linear("head1", hidden) / REACH))
        linear = sums[..., 1:] @ self._slope.T
        return (np.minimum(sums[..., :1], 1.0) * self._launch + linear * factor) / MICRO

    def order(self, items: ItemBatch) -> ItemBatch:
        """The items in falling predicted seconds, each alone on a device; differences of rounding do not count."""
        seconds = self.costs(self.terms(items)).sum(axis=-1)
        scale = max(float(seconds.mean()), SMALLEST) * QUANTUM if len(items) else 1.0
        return items.sorted_by(np.floor(seconds / scale))

    @cached_property
    def _launch(self) -> Floats:
        return np.exp(self.tensors["log_launch"])

    @cached_property
    def _slope(self) -> Floats:
        """Seconds a term adds forward, to communication, backward (3, t + 1): links count for communication alone."""
        slope = np.exp(self.tensors["log_slope"])
        slope[[0, 2], -1] = 0.0
        slope[1, :-1] = 0.0
        return slope

    def scaled(self, items: ItemBatch) -> Floats:
        """Inputs of items, centred and scaled as in training (N, x)."""
        return np.clip((items.inputs - self.tensors["centre"]) / self.tensors["spread"], -4.0, 4.0)

    def linear(self, name: str, flow: Floats) -> Floats:
        """A layer."""
        return flow @ self.tensors[name].T + self.tensors[f"{name}_bias"]

    def two_layers(self, name: str, flow: Floats) -> Floats:
        """Two layers with rectifiers."""
        hidden = np.maximum(self.linear(f"{name}0", flow), 0.0)
        return np.maximum(self.linear(f"{name}1", hidden), 0.0)
