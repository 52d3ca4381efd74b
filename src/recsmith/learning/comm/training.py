# pyright: basic
"""Trains the network of all-to-alls: relative loss, the best epoch by validation (imports torch).

Legend: N exchanges of a block, W ranks.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from recsmith._types import noun
from recsmith.learning.comm.data import Exchanges
from recsmith.learning.comm.network import CommNetwork
from recsmith.learning.training_loop import Epoch, TrainingLoop, relative_loss

BATCH = 128  # exchanges of a step, all of one number of ranks; not tuned further
LEAST_BATCHES = 4  # steps of an epoch, at least, for each number of ranks


@noun
class CommRecipe:
    """How to train. budget_s: seconds after which it ends at the latest; the rate falls to 0 by then."""

    seed: int = 0
    epochs: int = 200
    budget_s: float | None = None


def train_comm(
    recipe: CommRecipe, blocks: Sequence[Exchanges], chosen_by: Sequence[Exchanges],
    on_epoch: Callable[[Epoch], None] | None = None, make: Callable[[], CommNetwork] = CommNetwork,
) -> tuple[CommNetwork, int]:  # fmt: skip
    """(the network of the best epoch, how many epochs were run). Ctrl-C ends training and keeps the best so far.

    Deterministic for a recipe without a budget, on one machine. make: a network in place of the usual one.
    """
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    network = make()
    network.fit_scale(blocks)
    data, judged = ([_ExchangeTensors(block) for block in some if len(block)] for some in (blocks, chosen_by))
    rng = np.random.default_rng(recipe.seed)
    loop = TrainingLoop(network, recipe.epochs, sum(map(_batches, data)), recipe.budget_s)

    def epoch() -> None:
        """Every exchange once, in a new order; a batch is of one number of ranks."""
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
