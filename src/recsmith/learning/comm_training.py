# pyright: basic
"""The loop that trains a model of all-to-alls: relative loss, the best epoch by validation (imports torch)."""

import copy
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from recsmith._types import noun
from recsmith.errors import RecSmithError
from recsmith.learning.comm_data import Exchanges
from recsmith.learning.comm_network import CommNetwork
from recsmith.learning.training import BEND_AT, DECAY, LONGEST, RATE, Epoch, rate_at

BATCH, LEAST_BATCHES = 128, 4  # exchanges of a step, all of one number of ranks; steps of an epoch for each number


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
    run, judged = _Run(network, recipe, blocks), [_Tensors(block) for block in chosen_by if len(block)]
    best, kept, number = math.inf, None, 0
    try:
        while number < recipe.epochs and not run.out_of_time:
            run.epoch()
            number += 1
            error = _mean_error(network, judged)
            if error < best:
                best, kept = error, copy.deepcopy(network.state_dict())
            if on_epoch:
                on_epoch(Epoch(number=number, epochs=recipe.epochs, elapsed_s=run.elapsed_s, error=error, best=best))
    except KeyboardInterrupt:
        if kept is None:
            raise
    if kept is None:
        raise RecSmithError("training diverged: no epoch predicts finite times; give another --seed")
    network.load_state_dict(kept)
    return network, number


def predict_comm(network: CommNetwork, block: Exchanges) -> np.ndarray:
    """Seconds (N, W) of exchanges, by PyTorch."""
    with torch.no_grad():
        return _Tensors(block).predict(network).double().numpy()


class _Tensors:
    """A block as tensors."""

    def __init__(self, block: Exchanges) -> None:
        load = block.load
        self._told = [torch.as_tensor(each, dtype=torch.float32) for each in (load.inputs(), load.work(), load.wait_s)]
        self.seconds = torch.as_tensor(block.seconds, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.seconds)

    def predict(self, network: CommNetwork, some: np.ndarray | slice = slice(None)) -> Tensor:
        """Seconds of some exchanges."""
        return network(*(each[some] for each in self._told))


class _Run:
    """An optimizer over batches of blocks, drawn by a seed."""

    def __init__(self, network: CommNetwork, recipe: CommRecipe, blocks: Sequence[Exchanges]) -> None:
        self._network, self._recipe = network, recipe
        self._blocks = [_Tensors(block) for block in blocks if len(block)]
        self._rng = np.random.default_rng(recipe.seed)
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
        self._batches = sum(map(_batches, self._blocks))
        self._step, self._begun = 0, time.monotonic()

    def epoch(self) -> None:
        """Every exchange once, in a new order; a batch is of one number of ranks."""
        steps = [
            (block, some) for block in self._blocks
            for some in np.array_split(self._rng.permutation(len(block)), _batches(block)) if len(some)
        ]  # fmt: skip
        for i in self._rng.permutation(len(steps)):
            block, some = steps[i]
            for group in self._optimizer.param_groups:
                group["lr"] = RATE * rate_at(self._done)
            loss = _loss(block.predict(self._network, some), block.seconds[some])
            self._optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), LONGEST)
            self._optimizer.step()
            self._step += 1

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    @property
    def out_of_time(self) -> bool:
        return self._recipe.budget_s is not None and self.elapsed_s >= self._recipe.budget_s

    @property
    def _done(self) -> float:
        """Share of the run that is over, by epochs or by time."""
        spent = self.elapsed_s / self._recipe.budget_s if self._recipe.budget_s else 0.0
        return min(1.0, max(spent, self._step / (self._recipe.epochs * self._batches)))


def _batches(block: _Tensors) -> int:
    return max(LEAST_BATCHES, len(block) // BATCH)


def _loss(predicted: Tensor, measured: Tensor) -> Tensor:
    """Of logarithms, rank by rank, so that 30 us and 30 ms count alike."""
    off = torch.log(predicted / measured)
    return smooth_l1_loss(off, torch.zeros_like(off), beta=BEND_AT)


def _mean_error(network: CommNetwork, blocks: Sequence[_Tensors]) -> float:
    """The mean relative error of a block, in the mean of all blocks."""
    with torch.no_grad():
        errors = [(block.predict(network) / block.seconds - 1).abs().mean() for block in blocks]
    return float(torch.stack(errors).mean())
