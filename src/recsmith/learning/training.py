# pyright: basic
"""The loop that trains a cost model: relative loss, the best epoch by validation, on one thread (imports torch)."""

import copy
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from recsmith._types import noun
from recsmith.costs.neural_files import Variant
from recsmith.errors import RecSmithError
from recsmith.learning.data import Groups
from recsmith.learning.network import HINGES, TERMS, Network

RATE, DECAY = 3e-3, 1e-3  # of AdamW
WARM = 0.1  # share of the run in which the rate rises; then it falls with a cosine
BATCH, LEAST_BATCHES = 128, 8  # groups of a step; steps of an epoch
BEND_AT = 0.05  # relative error from which the loss grows linearly, so that disturbed samples pull less
PART_WEIGHT = 0.5  # of forward and backward apart, beside both together
LONGEST = 1.0  # norm of a gradient
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


@noun
class Epoch:
    """How far training is: `error` is the mean relative error of validation, `best` the least so far."""

    number: int
    epochs: int
    elapsed_s: float
    error: float
    best: float


def train(
    recipe: Recipe, groups: Groups, chosen_by: Groups, on_epoch: Callable[[Epoch], None] | None = None
) -> tuple[Network, int]:
    """(the network of the best epoch, how many epochs were run). Ctrl-C ends training and keeps the best so far.

    Deterministic for a recipe without a budget, on one machine.
    """
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    network = _begun(recipe, groups)
    run = _Run(network, recipe, groups)
    best, kept, number = math.inf, None, 0
    try:
        while number < recipe.epochs and not run.out_of_time:
            run.epoch()
            number += 1
            error = _mean_error(predict(network, chosen_by), chosen_by)
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


def _begun(recipe: Recipe, groups: Groups) -> Network:
    """The network before training: near the data, or the given one with its seconds brought to the data's."""
    network = Network(recipe.variant, recipe.terms, recipe.hinges)
    network.fit_scale(groups.work, groups.inputs, groups.start, groups.seconds)
    if recipe.start:
        network.start_from(recipe.start, 1.0)
        network.start_from(recipe.start, float(np.median(groups.total / predict(network, groups).sum(axis=1))))
    return network


class _Run:
    """An optimizer over batches of groups, drawn by a seed."""

    def __init__(self, network: Network, recipe: Recipe, groups: Groups) -> None:
        self._network, self._recipe, self._data = network, recipe, _Tensors(groups)
        self._rng = np.random.default_rng(recipe.seed)
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
        self._batches = max(LEAST_BATCHES, len(groups) // BATCH)
        self._step, self._begun = 0, time.monotonic()

    def epoch(self) -> None:
        """Every group once, in a new order."""
        for batch in np.array_split(self._rng.permutation(len(self._data)), self._batches):
            for group in self._optimizer.param_groups:
                group["lr"] = RATE * rate_at(self._done)
            predicted, measured = self._network(*self._data.batch(batch)), self._data.seconds[batch]
            loss = _loss(predicted, measured)
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


def rate_at(done: float) -> float:
    """Rises from a twentieth, then falls to nearly 0."""
    if done < WARM:
        return 0.05 + 0.95 * done / WARM
    return 0.5 * (1 + math.cos(math.pi * (done - WARM) / (1 - WARM))) + 1e-4


def _loss(predicted: Tensor, measured: Tensor) -> Tensor:
    """Of logarithms, so that 10 us and 300 ms count alike: forward and backward apart, and both together."""
    both = torch.log(predicted.sum(dim=1) / measured.sum(dim=1))
    apart = PART_WEIGHT * torch.log(predicted / measured)
    off = torch.cat([apart, both[:, None]], dim=1)
    return smooth_l1_loss(off, torch.zeros_like(off), beta=BEND_AT)


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
