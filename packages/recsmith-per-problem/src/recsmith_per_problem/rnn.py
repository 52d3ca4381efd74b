"""A recurrent network trained for one problem, after Mirhoseini et al. (ICML 2017): the baseline of learned placement.

A network that knows nothing reads the items and names a device for each (rnn_network.py). BATCH placements at a time
are drawn from it, their steps by the cost model are the reward, and REINFORCE makes the devices of short steps
likelier. The best placement that was drawn is the plan; what was learned is thrown away.

Devices without room are never drawn, and an episode that came to a dead end is no plan; it counts as DEAD_END.

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
MOST_ITEMS = 2_000  # attention is over all pairs of items: 0.5 GiB for these
RATE = 0.003  # of Adam; chosen on tasks of training tables, as ENTROPY is
ENTROPY = 0.03  # what an even choice is worth beside the reward
FORGET = 0.1  # share of the moving baseline that a batch replaces
DEAD_END = -10.0  # reward, in steps of an even share


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
        """Refuse what would fill the memory."""
        if split is not None and len(split.items) > MOST_ITEMS:
            raise UsageError(
                f"planner {NAME} takes up to {MOST_ITEMS:,} pieces of tables; this problem has {len(split.items):,}: "
                "use planner dreamshard, or auto"
            )

    def drafts(self, split: SplitItems | None, evaluator: Evaluator, seed: int) -> Iterator[Assignment | None]:
        """The best placement of each update of BATCH episodes; None where all its episodes came to dead ends."""
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
        """Draw so many episodes, learn from them, and return the best (N,); None where all came to dead ends."""
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
        """Rewards above the moving baseline, over their moving spread (E,)."""
        if self.baseline is None:
            self.baseline, self.spread = float(reward.mean()), float(reward.std())
        advantage = (reward - self.baseline) / max(self.spread, 1e-6)
        self.baseline += FORGET * (float(reward.mean()) - self.baseline)
        self.spread += FORGET * (float(reward.std()) - self.spread)
        return advantage


def _features(items: ItemBatch, prices: ItemPrices) -> Floats:
    """What the network reads of items (N, x): inputs of learned cost models, work, seconds and bytes, within +-4."""
    raw = np.column_stack([
        items.inputs, log1p(items.work), log(np.maximum(prices.alone / prices.even_s, 1e-9)),
        log1p(items.bytes),
    ])  # fmt: skip
    spread = np.maximum(raw.std(axis=0), 1e-6)
    return np.clip((raw - raw.mean(axis=0)) / spread, -4.0, 4.0)
