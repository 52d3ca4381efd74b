"""A recurrent network trained for one problem, after Mirhoseini et al. (ICML 2017): the baseline of learned placement.

An untrained network reads the items and chooses a device for each (rnn_network.py). BATCH placements at a time are
drawn from it, the reward is minus their step under the cost model, and REINFORCE raises the probability of devices in
short steps. The best placement that was drawn is the plan; the trained weights are discarded.

Devices without room are never drawn. An episode that reaches a dead end gives no plan; its reward is DEAD_END.

Legend: E episodes, N items, D devices, x features of an item.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recsmith import UsageError
from recsmith.costs import Evaluator
from recsmith.elementary import log, log1p
from recsmith.planners.placing import Assignment, ItemBatch, SplitItems
from recsmith_per_problem.arrays import Floats, Ints
from recsmith_per_problem.item_prices import ItemPrices
from recsmith_per_problem.planner import PerProblemPlanner
from recsmith_per_problem.rnn_network import Adam, DrawnEpisodes, draw, first_tensors, gradient

NAME = "rnn"
EPISODES, MOST_EPISODES = 3_200, 10_000_000
BATCH = 32  # episodes of an update
MOST_ITEMS = 2_000  # attention is over all pairs of items: 0.5 GiB for this many
RATE = 0.003  # learning rate of Adam; chosen on tasks of training tables, as ENTROPY is
ENTROPY = 0.03  # weight of the entropy bonus relative to the reward
FORGET = 0.1  # weight of a new batch in the moving baseline
DEAD_END = -10.0  # reward of a dead end; other rewards are minus the step, in multiples of even_s


@dataclass(frozen=True)
class Rnn(PerProblemPlanner):
    """A recurrent network for one problem. episodes: placements that it is trained on."""

    lost: ClassVar[str] = f"{NAME}: no placement that was drawn had room for every table; they went longest first"
    option: ClassVar[str] = "episodes"
    most: ClassVar[int] = MOST_EPISODES

    name: str = NAME
    episodes: int = EPISODES
    about: str = "An LSTM trained per problem (Mirhoseini et al., 2017)."

    def check(self, split: SplitItems | None) -> None:
        """Raise UsageError if the problem would not fit in memory."""
        if split is not None and len(split.items) > MOST_ITEMS:
            raise UsageError(
                f"planner {NAME} takes up to {MOST_ITEMS:,} pieces of tables; this problem has {len(split.items):,}: "
                "use planner dreamshard, or auto"
            )

    def drafts(self, split: SplitItems | None, evaluator: Evaluator, seed: int) -> Iterator[Assignment | None]:
        """The best placement of each update of BATCH episodes; None if all its episodes reached dead ends."""
        if split is None:
            return
        if not len(split.items):
            yield split.draft
            return
        training = _Training(split.items, ItemPrices.of(split.items, evaluator), seed)
        for first in range(0, self.episodes, BATCH):
            target = training.update(min(BATCH, self.episodes - first))
            yield None if target is None else split.items.assignment(target)


class _Training:
    """REINFORCE with a moving baseline, on the items of one problem."""

    def __init__(self, items: ItemBatch, prices: ItemPrices, seed: int) -> None:
        self.items, self.prices, self.random = items, prices, np.random.default_rng(seed)
        self.features = _features(items, prices)
        self.tensors = first_tensors(self.features.shape[1], items.devices, self.random)
        self.adam = Adam(self.tensors, RATE)
        self.baseline: float | None = None
        self.spread = 0.0

    def update(self, count: int) -> Ints | None:
        """Draw `count` episodes, learn from them, and return the best (N,); None if all reached dead ends."""
        drawn = draw(self.tensors, self.features, self.items, count, self.random)
        reward = self._rewards(drawn)
        slope = gradient(self.tensors, self.features, drawn, self._advantage(reward), ENTROPY)
        self.adam.step(self.tensors, slope)
        best = int(reward.argmax())
        return None if drawn.dead[best] else drawn.target[best]

    def _rewards(self, drawn: DrawnEpisodes) -> Floats:
        reward = np.full(len(drawn.target), DEAD_END)
        alive = ~drawn.dead
        if alive.any():
            reward[alive] = -self.prices.steps(drawn.target[alive]) / self.prices.even_s
        return reward

    def _advantage(self, reward: Floats) -> Floats:
        """Rewards minus the moving baseline, divided by their moving standard deviation (E,)."""
        if self.baseline is None:
            self.baseline, self.spread = float(reward.mean()), float(reward.std())
        advantage = (reward - self.baseline) / max(self.spread, 1e-6)
        self.baseline += FORGET * (float(reward.mean()) - self.baseline)
        self.spread += FORGET * (float(reward.std()) - self.spread)
        return advantage


def _features(items: ItemBatch, prices: ItemPrices) -> Floats:
    """Features of items (N, x): inputs of learned cost models, work, seconds and bytes, standardised, within +-4."""
    raw = np.column_stack([
        items.inputs, log1p(items.work), log(np.maximum(prices.alone / prices.even_s, 1e-9)),
        log1p(items.bytes),
    ])  # fmt: skip
    spread = np.maximum(raw.std(axis=0), 1e-6)
    return np.clip((raw - raw.mean(axis=0)) / spread, -4.0, 4.0)
