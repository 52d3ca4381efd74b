"""The networks of policies: predicted seconds of any set of items on a device, and the device for each item.

    item      -> terms: work times bounded unit costs
    device    -> sums of the terms of its items -> three heads: seconds forward, of communication, backward

Terms stay proportional to work, so sums of ten items and of five hundred are priced alike. In a roll-out, a network
that scores devices places item after item, in many episodes side by side:

    item      -> 32 numbers, times its share of the mean load       (the policy's own representation of an item)
    device    -> their sum, including the item in question; its predicted costs then, relative to those of a device with
                 an even share of everything; memory used; what is left -> a score; softmax over devices with room

Every figure that a policy sees is relative, so it means the same for other numbers of items and devices. Each policy
defines its own score of a device (planners/dreamshard.py, autoshard.py). learning/policies/cost_network.py trains the
same formulas in PyTorch; a test checks that both agree.

Legend: N items, D devices, E episodes, x inputs, b figures of work, t learned terms, k = t + 2 terms, p = 32.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.neural.inputs import WORK
from recsmith.elementary import exp, log1p, matmul, tanh
from recsmith.planners.placing.items import INPUT_COUNT, Episodes, ItemBatch

TERMS, HIDDEN, WIDE = 6, 32, 64  # t; hidden units; hidden units of the first layer of an item
BEND, REACH = 2.5, 1.5  # unit costs and heads differ from their base by a factor of at most e ** these
MICRO = 1e6  # terms are in microseconds; heads read their logarithms
LOG_SPAN = 8.0
SMALLEST = 1e-12  # seconds; smaller loads are not used as a scale
QUANTUM = 2.0**-20  # predictions and scores are compared as multiples of it, so that rounding decides nothing
COST_SHAPES: dict[str, tuple[int, ...]] = {
    "centre": (INPUT_COUNT,), "spread": (INPUT_COUNT,),
    "item0": (WIDE, INPUT_COUNT), "item0_bias": (WIDE,), "item1": (HIDDEN, WIDE), "item1_bias": (HIDDEN,),
    "unit": (TERMS * len(WORK), HIDDEN), "unit_bias": (TERMS * len(WORK),), "base": (TERMS, len(WORK)),
    "log_launch": (3,), "log_slope": (3, TERMS + 1),
    "head0": (HIDDEN, TERMS + 2), "head0_bias": (HIDDEN,), "head1": (3, HIDDEN), "head1_bias": (3,),
}  # fmt: skip
REPRESENTED, FIGURES = 32, 7  # p; figures of a device next to the representation, the first of which is its seconds
NO_ROOM = -1e9  # the score of a device without room: its probability is 0
OWN_SHAPES: dict[str, tuple[int, ...]] = {
    "own0": (WIDE, INPUT_COUNT), "own0_bias": (WIDE,), "own1": (REPRESENTED, WIDE), "own1_bias": (REPRESENTED,),
}  # fmt: skip


@dataclass(frozen=True)
class CostNetwork:
    """Predicts the costs of devices; tensors as in COST_SHAPES, next to those of a policy."""

    tensors: dict[str, Floats] = field(repr=False)

    def terms(self, items: ItemBatch) -> Floats:
        """A count, learned terms and link microseconds of each item (N, k)."""
        hidden = self.two_layers("item", self.scaled(items))
        bent = BEND * tanh(self.linear("unit", hidden) / BEND).reshape(-1, TERMS, len(WORK))
        learned = np.einsum("ntb,nb->nt", exp(self.tensors["base"] + bent), items.work) * MICRO
        return np.column_stack([np.ones(len(items)), learned, items.link_s * MICRO])

    def costs(self, sums: Floats) -> Floats:
        """Predicted seconds forward, of communication and backward (..., 3) of devices with summed terms (..., k)."""
        hidden = np.maximum(self.linear("head0", log1p(sums) / LOG_SPAN), 0.0)
        factor = exp(REACH * tanh(self.linear("head1", hidden) / REACH))
        linear = matmul(sums[..., 1:], self._slope.T)
        return (np.minimum(sums[..., :1], 1.0) * self._launch + linear * factor) / MICRO

    def order(self, items: ItemBatch) -> ItemBatch:
        """The items in falling predicted seconds, each alone on a device; rounding errors do not change the order."""
        seconds = self.costs(self.terms(items)).sum(axis=-1)
        scale = max(float(seconds.mean()), SMALLEST) * QUANTUM if len(items) else 1.0
        return items.sorted_by(np.floor(seconds / scale))

    @cached_property
    def _launch(self) -> Floats:
        return exp(self.tensors["log_launch"])

    @cached_property
    def _slope(self) -> Floats:
        """Seconds per term forward, of communication, backward (3, t + 1): links count for communication alone."""
        slope = exp(self.tensors["log_slope"])
        slope[[0, 2], -1] = 0.0
        slope[1, :-1] = 0.0
        return slope

    def scaled(self, items: ItemBatch) -> Floats:
        """Inputs of items, centred and scaled as in training (N, x)."""
        return np.clip((items.inputs - self.tensors["centre"]) / self.tensors["spread"], -4.0, 4.0)

    def linear(self, name: str, flow: Floats) -> Floats:
        """A linear layer."""
        return matmul(flow, self.tensors[name].T) + self.tensors[f"{name}_bias"]

    def two_layers(self, name: str, flow: Floats) -> Floats:
        """Two linear layers with rectifiers."""
        hidden = np.maximum(self.linear(f"{name}0", flow), 0.0)
        return np.maximum(self.linear(f"{name}1", hidden), 0.0)


# --- roll-outs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollout:
    """Placements of the same items: target (E, N), dead (E,), and the step's predicted seconds (E,).

    figures (N, E, D, FIGURES), room (N, E, D), scores (N, E, D): what the policy saw at each step next to
    representations, and its scores, NO_ROOM for devices without room; empty unless recorded.
    """

    target: Ints
    dead: Bools
    step_s: Floats
    figures: Floats
    room: Bools
    scores: Floats


@dataclass(frozen=True)
class PlacingNetwork(CostNetwork):
    """A cost network and a policy that uses it; tensors as in COST_SHAPES, OWN_SHAPES, and those that score."""

    @abstractmethod
    def step(self, sums: Floats) -> Floats:
        """Predicted seconds of the step (...) from summed terms of devices (..., D, k)."""

    @abstractmethod
    def scorer(self, items: ItemBatch, view: "PolicyView") -> Callable[[int, Floats], Floats]:
        """A function of an item's index i and what is seen of devices (E, D, p + FIGURES) that scores them (E, D)."""

    def rollout(
        self, items: ItemBatch, count: int = 1, random: np.random.Generator | None = None, *, record: bool = False
    ) -> Rollout:
        """Place ordered items, each on the device with the highest score, or on one drawn from the softmax of scores.

        random: the generator of draws; None takes the highest score. record: keep what the policy saw, to train on.
        """
        episodes, view = Episodes(items, count), PolicyView.of(self, items)
        score = self.scorer(items, view)
        sums = np.zeros((count, items.devices, TERMS + 2))
        held = np.zeros((count, items.devices, REPRESENTED))
        each, steps = np.arange(count), len(items) if record else 0
        figures = np.empty((steps, count, items.devices, FIGURES))
        rooms, scored = np.empty((2, steps, count, items.devices))
        while not episodes.done:
            i, room = episodes.step, episodes.room()
            seen = view.seen(self, sums + view.terms[i], held + view.represented[i], episodes.free, i)
            scores = np.where(room, score(i, seen), NO_ROOM)
            if record:
                figures[i], rooms[i], scored[i] = seen[..., REPRESENTED:], room, scores
            device = np.floor(scores / QUANTUM).argmax(axis=1) if random is None else _draw(scores, random)
            placed = episodes.place(device)
            sums[each[placed], device[placed]] += view.terms[i]
            held[each[placed], device[placed]] += view.represented[i]
        return Rollout(episodes.target, episodes.dead, self.step(sums), figures, rooms > 0, scored)

    def greedy_score(self, hidden: Floats, seen: Floats) -> Floats:
        """Scores (...) from a last hidden layer, minus the predicted seconds of the device times the learned greed."""
        greed = exp(self.tensors["log_greed"][0])
        return matmul(hidden, self.tensors["score1"][0]) - greed * seen[..., REPRESENTED]

    def represented(self, items: ItemBatch) -> Floats:
        """Representation of items in the policy network, before it is multiplied by shares of the load (N, p)."""
        return self.two_layers("own", self.scaled(items))


@dataclass(frozen=True)
class LongestFirstNetwork(PlacingNetwork):
    """Uses no policy: each item is placed on the device that takes least with it, by the cost network."""

    def step(self, sums: Floats) -> Floats:
        """Seconds of the slowest device (...)."""
        return self.costs(sums).sum(axis=-1).max(axis=-1)

    def scorer(self, items: ItemBatch, view: "PolicyView") -> Callable[[int, Floats], Floats]:
        """A function that scores devices by their negative seconds with the item."""
        del items, view
        return lambda _, seen: -seen[..., REPRESENTED]


@dataclass(frozen=True)
class PolicyView:
    """What the policy sees of items, computed once.

    terms (N, k), represented (N, p): of items. even_s: predicted seconds of a device with an even share of everything.
    share (N,): the item's share of the mean load; left (N,): the share of all items that is not placed before it.
    capacity (D,).
    """

    terms: Floats
    represented: Floats
    even_s: float
    share: Floats
    left: Floats
    capacity: Floats
    bytes: Floats

    @classmethod
    def of(cls, network: PlacingNetwork, items: ItemBatch) -> Self:
        """The view of ordered items."""
        terms = network.terms(items)
        alone = network.costs(terms).sum(axis=-1)
        total = max(float(alone.sum()), SMALLEST)
        share = alone / total * items.devices
        even = network.costs(terms.sum(axis=0) / items.devices).sum()
        left = 1.0 - np.concatenate([[0.0], np.cumsum(alone)[:-1]]) / total if len(items) else np.zeros(0)
        return cls(
            terms, network.represented(items) * share[:, None], max(float(even), SMALLEST), share, left,
            np.maximum(items.free, 1).astype(np.float64), items.bytes.astype(np.float64),
        )  # fmt: skip

    def seen(self, network: CostNetwork, after: Floats, held: Floats, free: Ints, i: int) -> Floats:
        """What is seen of devices (E, D, p + FIGURES): from terms (E, D, k), representations (E, D, p) with item i."""
        costs = network.costs(after) / self.even_s
        used = np.clip(1.0 - (free - self.bytes[i]) / self.capacity, 0.0, 1.0)
        seen = np.empty((*used.shape, REPRESENTED + FIGURES))
        seen[..., :REPRESENTED] = held
        seen[..., REPRESENTED] = costs.sum(axis=-1)
        seen[..., REPRESENTED + 1 : REPRESENTED + 4] = costs
        seen[..., REPRESENTED + 4] = used
        seen[..., REPRESENTED + 5] = self.left[i]
        seen[..., REPRESENTED + 6] = self.share[i]
        return seen


def _draw(scores: Floats, random: np.random.Generator) -> Ints:
    """A device for each episode, drawn from the softmax of scores (E, D): the largest score plus Gumbel noise."""
    return (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
