# pyright: basic
"""The network of all-to-alls in PyTorch, the same as costs/neural_comm.py in NumPy, and its training.

The loss is relative, and validation chooses the best epoch. Imports torch.

Legend: N exchanges of a block, W ranks, x inputs, k figures of work, h hidden.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from recsmith._types import noun
from recsmith.costs.neural_comm import BEND, INPUTS, REACH, WORK
from recsmith.learning.comm import Exchanges
from recsmith.learning.training_loop import Epoch, TrainingLoop, relative_loss

HIDDEN, WIDTH = 32, 64  # units of the network of a rank, and of the network of all ranks; not tuned further
START_S = 1e-6  # seconds of alpha, at least, before training
LAST_LAYER = 0.3  # factor of the last layer's first weights: the network begins near its base
LEAST_SPREAD = 1e-3  # added to deviations of inputs, which may all be equal
ALPHA_QUANTILE = 0.02  # quantile of the seconds beyond waiting; alpha begins at half of it, below nearly all


class CommNetwork(nn.Module):
    """Turns inputs and work of ranks into seconds; `fit_scale` starts it near the data."""

    centre: Tensor
    spread: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(len(INPUTS)))
        self.register_buffer("spread", torch.ones(len(INPUTS)))
        self.rank = nn.ModuleList([nn.Linear(len(INPUTS), HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
        self.joint = nn.ModuleList([nn.Linear(3 * HIDDEN, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, len(WORK))])
        self.base = nn.Parameter(torch.zeros(len(WORK)))
        self.alpha = nn.Parameter(torch.zeros(1))  # logarithm
        with torch.no_grad():
            self.joint[-1].get_parameter("weight").mul_(LAST_LAYER)

    def fit_scale(self, blocks: Sequence[Exchanges]) -> None:
        """Start near the data: normalised inputs, unit costs that share the median time, alpha below nearly all."""
        inputs = np.concatenate([block.load.inputs().reshape(-1, len(INPUTS)) for block in blocks])
        work = np.concatenate([block.load.work().reshape(-1, len(WORK)) for block in blocks])
        beyond = np.concatenate([(block.seconds - block.load.wait_s).ravel() for block in blocks])
        usual = max(float(np.median(beyond)), START_S)
        with torch.no_grad():
            self.centre.copy_(torch.as_tensor(inputs.mean(axis=0)))
            self.spread.copy_(torch.as_tensor(inputs.std(axis=0) + LEAST_SPREAD))
            self.base.copy_(torch.as_tensor(np.log(usual / len(WORK) / _usual(work))))
            self.alpha.fill_(math.log(max(float(np.quantile(beyond, ALPHA_QUANTILE)) / 2, START_S)))

    def forward(self, inputs: Tensor, work: Tensor, wait: Tensor) -> Tensor:
        """Seconds (N, W) of inputs (N, W, x), figures of work (N, W, k) and waits (N, W)."""
        bent = BEND * torch.tanh(self.factors(((inputs - self.centre) / self.spread).clamp(-REACH, REACH)) / BEND)
        return self.alpha.exp() + wait + ((self.base + bent).exp() * work).sum(dim=2)

    def factors(self, hidden: Tensor) -> Tensor:
        """Logarithms of factors (N, W, k), before they are bounded, from normalised inputs (N, W, x)."""
        for layer in self.rank:
            hidden = layer(hidden).relu()
        pooled = (hidden.mean(dim=1, keepdim=True), hidden.amax(dim=1, keepdim=True))
        flow = torch.cat([hidden, *(each.expand_as(hidden) for each in pooled)], dim=2)
        for layer in self.joint[:-1]:
            flow = layer(flow).relu()
        return self.joint[-1](flow)

    def tensors(self) -> dict[str, np.ndarray]:
        """The weights as they are stored in files."""
        tensors = {"centre": self.centre, "spread": self.spread, "base": self.base, "alpha": self.alpha.exp()}
        for name, layers in (("rank", self.rank), ("joint", self.joint)):
            for i, layer in enumerate(layers):
                tensors |= {f"{name}_weight{i}": layer.weight, f"{name}_bias{i}": layer.bias}
        return {name: value.detach().numpy().astype(np.float32) for name, value in tensors.items()}


def _usual(work: np.ndarray) -> np.ndarray:
    """Medians of figures of work (k,); if the median of bytes across hosts is 0, that of bytes inside hosts."""
    medians = np.median(work, axis=0)
    call, inside, across = np.split(medians, [1, (1 + len(WORK)) // 2])
    return np.maximum(np.concatenate([call, inside, np.where(across > 0, across, inside)]), 1.0)


BATCH = 128  # exchanges of a step, all of one number of ranks; not tuned further
LEAST_BATCHES = 4  # fewest steps of an epoch for each number of ranks


@noun
class CommRecipe:
    """Settings of a training. budget_s: seconds after which it ends at the latest; the rate falls to 0 by then."""

    seed: int = 0
    epochs: int = 200
    budget_s: float | None = None


def train_comm(
    recipe: CommRecipe, blocks: Sequence[Exchanges], chosen_by: Sequence[Exchanges],
    on_epoch: Callable[[Epoch], None] | None = None, make: Callable[[], CommNetwork] = CommNetwork,
) -> tuple[CommNetwork, int]:  # fmt: skip
    """(the network of the best epoch, number of epochs run). Ctrl-C ends training and keeps the best so far.

    Deterministic for a recipe without a budget, on one machine. make: makes a network in place of the usual one.
    """
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    network = make()
    network.fit_scale(blocks)
    data, judged = ([_ExchangeTensors(block) for block in some if len(block)] for some in (blocks, chosen_by))
    rng = np.random.default_rng(recipe.seed)
    loop = TrainingLoop(network, recipe.epochs, sum(map(_batches, data)), recipe.budget_s)

    def epoch() -> None:
        """Train on every exchange once, in a new order; a batch is of one number of ranks."""
        for block, some in _shuffled(data, rng):
            loop.step(_loss(block.predict(network, some), block.seconds[some]))

    return network, loop.run(epoch, lambda: _mean_error(network, judged), on_epoch)


def predict_comm(network: CommNetwork, block: Exchanges) -> np.ndarray:
    """Seconds (N, W) of exchanges, by PyTorch."""
    with torch.no_grad():
        return _ExchangeTensors(block).predict(network).double().numpy()


class _ExchangeTensors:
    """A block as tensors."""

    def __init__(self, block: Exchanges) -> None:
        load = block.load
        self._inputs = [
            torch.as_tensor(each, dtype=torch.float32) for each in (load.inputs(), load.work(), load.wait_s)
        ]
        self.seconds = torch.as_tensor(block.seconds, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.seconds)

    def predict(self, network: CommNetwork, some: np.ndarray | slice = slice(None)) -> Tensor:
        """Seconds of some exchanges."""
        return network(*(each[some] for each in self._inputs))


def _shuffled(
    data: Sequence[_ExchangeTensors], rng: np.random.Generator
) -> Iterator[tuple[_ExchangeTensors, np.ndarray]]:
    """Pairs (block, some of its exchanges) in random order, which together hold every exchange once."""
    steps = [
        (block, some) for block in data
        for some in np.array_split(rng.permutation(len(block)), _batches(block)) if len(some)
    ]  # fmt: skip
    return (steps[i] for i in rng.permutation(len(steps)))


def _batches(block: _ExchangeTensors) -> int:
    return max(LEAST_BATCHES, len(block) // BATCH)


def _loss(predicted: Tensor, measured: Tensor) -> Tensor:
    """The loss of logarithms, rank by rank, so that 30 us and 30 ms count the same."""
    return relative_loss(torch.log(predicted / measured))


def _mean_error(network: CommNetwork, blocks: Sequence[_ExchangeTensors]) -> float:
    """The mean relative error of each block, averaged over the blocks."""
    with torch.no_grad():
        errors = [(block.predict(network) / block.seconds - 1).abs().mean() for block in blocks]
    return float(torch.stack(errors).mean())
