# pyright: basic
"""Trains the network of a cost model: relative loss, the best epoch by validation, on one thread (imports torch).

Legend: N groups.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from recsmith._types import noun
from recsmith.costs.analytic import BACKWARD_KERNELS, FORWARD_KERNELS, LAUNCH_S
from recsmith.costs.neural.files import Variant
from recsmith.learning.costs.data import Groups
from recsmith.learning.costs.network import HINGES, TERMS, Network
from recsmith.learning.training_loop import Epoch, TrainingLoop, relative_loss

BATCH, LEAST_BATCHES = 128, 8  # groups of a step, and steps of an epoch at least; not tuned further
PART_WEIGHT = 0.5  # of the errors of forward and of backward, beside that of both together
LAUNCHES_S = (FORWARD_KERNELS * LAUNCH_S, BACKWARD_KERNELS * LAUNCH_S)  # that a corrected model begins with
PREDICT_AT_ONCE = 500  # groups; bounds memory, and changes no result beyond rounding


@noun
class Recipe:
    """How to train. budget_s: seconds after which it ends at the latest; the rate falls to 0 by then.

    epochs: on shipped:cpu, 100 do what 250 do (docs/learning.md).
    terms, hinges: sizes of the network. start: weights to begin with, as of `Network.tensors`, of the same variant.
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
    network, data = _first_network(recipe, groups), _GroupTensors(groups)
    rng, batches = np.random.default_rng(recipe.seed), max(LEAST_BATCHES, len(groups) // BATCH)
    loop = TrainingLoop(network, recipe.epochs, batches, recipe.budget_s)

    def epoch() -> None:
        """Every group once, in a new order."""
        for batch in np.array_split(rng.permutation(len(data)), batches):
            loop.step(_loss(network(*data.batch(batch)), data.seconds[batch]))

    return network, loop.run(epoch, lambda: _mean_error(predict(network, chosen_by), chosen_by), on_epoch)


def _first_network(recipe: Recipe, groups: Groups) -> Network:
    """The network before training: near the data, or the given one with its seconds brought to the data's."""
    network = Network(recipe.variant, recipe.terms, recipe.hinges)
    network.fit_scale(groups.work, groups.inputs, groups.start, groups.seconds)
    if recipe.variant == "corrected":
        network.start_analytic(LAUNCHES_S)
    if recipe.start:
        network.start_from(recipe.start, 1.0)
        network.start_from(recipe.start, float(np.median(groups.total / predict(network, groups).sum(axis=1))))
    return network


def _loss(predicted: Tensor, measured: Tensor) -> Tensor:
    """The loss of logarithms, so that 10 us and 300 ms count the same: forward, backward, and both together."""
    both = torch.log(predicted.sum(dim=1) / measured.sum(dim=1))
    apart = PART_WEIGHT * torch.log(predicted / measured)
    return relative_loss(torch.cat([apart, both[:, None]], dim=1))


class _GroupTensors:
    """Groups as tensors."""

    def __init__(self, groups: Groups) -> None:
        self._work, self._inputs, self.seconds = (
            torch.as_tensor(each, dtype=torch.float32) for each in (groups.work, groups.inputs, groups.seconds)
        )
        self._start, self._tables = groups.start, groups.tables

    def __len__(self) -> int:
        return len(self._tables)

    def batch(self, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor, int]:
        """Work, inputs and owners of the pieces of some groups, and how many groups there are."""
        count = self._tables[chosen]
        first = np.cumsum(count) - count
        pieces = np.arange(count.sum()) + np.repeat(self._start[chosen] - first, count)
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), count))
        return self._work[pieces], self._inputs[pieces], owner, len(chosen)


def predict(network: Network, groups: Groups) -> np.ndarray:
    """Seconds (N, 2) of groups, forward and backward, by PyTorch."""
    data = _GroupTensors(groups)
    with torch.no_grad():
        blocks = np.array_split(np.arange(len(data)), -(-len(data) // PREDICT_AT_ONCE) or 1)
        return torch.cat([network(*data.batch(block)) for block in blocks]).double().numpy()


def _mean_error(predicted: np.ndarray, groups: Groups) -> float:
    return float(np.abs(predicted.sum(axis=1) / groups.total - 1).mean())
