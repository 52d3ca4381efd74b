# pyright: basic
"""The loop that trains a cost model: relative loss, the best epoch by validation, on one thread (imports torch)."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from recsmith._types import noun
from recsmith.costs.neural.files import Variant
from recsmith.learning.costs.data import Groups
from recsmith.learning.training_loop import Descent, Epoch, bent
from recsmith.learning.costs.network import HINGES, TERMS, Network

BATCH, LEAST_BATCHES = 128, 8  # groups of a step; steps of an epoch
PART_WEIGHT = 0.5  # of forward and backward apart, beside both together
PREDICT_AT_ONCE = 500


@noun
class Recipe:
    """How to train. budget_s: seconds after which it ends at the latest; the rate falls to 0 by then.

    start: weights to begin with (`Network.tensors`), of the same variant: those learned on another device, say.
    """

    variant: Variant = "convex"
    seed: int = 0
    epochs: int = 250
    budget_s: float | None = None
    terms: int = TERMS
    hinges: int = HINGES
    start: dict[str, np.ndarray] | None = None


def train(
    recipe: Recipe, groups: Groups, chosen_by: Groups, on_epoch: Callable[[Epoch], None] | None = None
) -> tuple[Network, int]:
    """(the network of the best epoch, how many epochs were run). Ctrl-C ends training and keeps the best so far.

    Deterministic for a recipe without a budget, on one machine.
    """
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    network, data = _begun(recipe, groups), _Tensors(groups)
    rng, batches = np.random.default_rng(recipe.seed), max(LEAST_BATCHES, len(groups) // BATCH)
    descent = Descent(network, recipe.epochs, batches, recipe.budget_s)

    def epoch() -> None:
        """Every group once, in a new order."""
        for batch in np.array_split(rng.permutation(len(data)), batches):
            descent.step(_loss(network(*data.batch(batch)), data.seconds[batch]))

    return network, descent.run(epoch, lambda: _mean_error(predict(network, chosen_by), chosen_by), on_epoch)


def _begun(recipe: Recipe, groups: Groups) -> Network:
    """The network before training: near the data, or the given one with its seconds brought to the data's."""
    network = Network(recipe.variant, recipe.terms, recipe.hinges)
    network.fit_scale(groups.work, groups.inputs, groups.start, groups.seconds)
    if recipe.start:
        network.start_from(recipe.start, 1.0)
        network.start_from(recipe.start, float(np.median(groups.total / predict(network, groups).sum(axis=1))))
    return network


def _loss(predicted: Tensor, measured: Tensor) -> Tensor:
    """Of logarithms, so that 10 us and 300 ms count alike: forward and backward apart, and both together."""
    both = torch.log(predicted.sum(dim=1) / measured.sum(dim=1))
    apart = PART_WEIGHT * torch.log(predicted / measured)
    return bent(torch.cat([apart, both[:, None]], dim=1))


class _Tensors:
    """Groups as tensors."""

    def __init__(self, groups: Groups) -> None:
        self._work, self._inputs, self.seconds = (
            torch.as_tensor(each, dtype=torch.float32) for each in (groups.work, groups.inputs, groups.seconds)
        )
        self._start, self._tables = groups.start, groups.tables

    def __len__(self) -> int:
        return len(self._tables)

    def batch(self, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor, int]:
        """Work, inputs and owners of the pieces of some groups, and how many groups."""
        count = self._tables[chosen]
        first = np.cumsum(count) - count
        pieces = np.arange(count.sum()) + np.repeat(self._start[chosen] - first, count)
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), count))
        return self._work[pieces], self._inputs[pieces], owner, len(chosen)


def predict(network: Network, groups: Groups) -> np.ndarray:
    """Seconds (N, 2) of groups, forward and backward, by PyTorch."""
    data = _Tensors(groups)
    with torch.no_grad():
        blocks = np.array_split(np.arange(len(data)), -(-len(data) // PREDICT_AT_ONCE) or 1)
        return torch.cat([network(*data.batch(block)) for block in blocks]).double().numpy()


def _mean_error(predicted: np.ndarray, groups: Groups) -> float:
    return float(np.abs(predicted.sum(axis=1) / groups.total - 1).mean())
