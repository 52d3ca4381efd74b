# pyright: basic
"""The training loop of all networks: AdamW with warm-up and cosine decay; keeps the best epoch (imports torch)."""

import copy
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from recsmith._types import noun
from recsmith.errors import RecSmithError

RATE, DECAY = 3e-3, 1e-3  # highest learning rate, and weight decay, of AdamW; not tuned further
WARM = 0.1  # share of the run in which the rate rises; then it falls with a cosine
FIRST_RATE = 0.05  # share of the highest rate at which a run begins
LAST_RATE = 1e-4  # share of the highest rate at which a run ends
LINEAR_FROM = 0.05  # relative error from which on the loss grows linearly, so that disturbed samples count less
LONGEST = 1.0  # norm to which a longer gradient is clipped


@noun
class Epoch:
    """Progress of a training: `error` is the mean relative error of validation, `best` the least so far."""

    number: int
    epochs: int
    elapsed_s: float
    error: float
    best: float


class TrainingLoop:
    """Trains a network by AdamW for some epochs with the same number of steps, or until a time budget is spent."""

    def __init__(self, network: torch.nn.Module, epochs: int, steps: int, budget_s: float | None) -> None:
        """steps: of an epoch. budget_s: seconds after which training ends at the latest; the rate is then about 0."""
        self._network, self._epochs, self._steps, self._budget_s = network, epochs, steps, budget_s
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
        self._step, self._begun = 0, time.monotonic()

    def step(self, loss: Tensor) -> None:
        """Update the weights once by the gradient of a loss."""
        for group in self._optimizer.param_groups:
            group["lr"] = RATE * rate_at(self._done)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), LONGEST)
        self._optimizer.step()
        self._step += 1

    def run(
        self, epoch: Callable[[], None], judge: Callable[[], float], on_epoch: Callable[[Epoch], None] | None
    ) -> int:
        """Run all epochs; the network then has the weights of the epoch with the least error.

        Returns the number of epochs that were run. epoch: runs one. judge: returns the error after it. Ctrl-C ends
        training and keeps the best epoch so far.

        Raises:
            RecSmithError: no epoch predicts finite times.
        """
        best, best_weights, number = math.inf, None, 0
        try:
            while number < self._epochs and not self._out_of_time:
                epoch()
                number += 1
                error = judge()
                if error < best:
                    best, best_weights = error, copy.deepcopy(self._network.state_dict())
                if on_epoch:
                    on_epoch(
                        Epoch(number=number, epochs=self._epochs, elapsed_s=self._elapsed_s, error=error, best=best)
                    )
        except KeyboardInterrupt:
            if best_weights is None:
                raise
        if best_weights is None:
            raise RecSmithError("training diverged: no epoch predicts finite times; give another --seed")
        self._network.load_state_dict(best_weights)
        return number

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    @property
    def _out_of_time(self) -> bool:
        return self._budget_s is not None and self._elapsed_s >= self._budget_s

    @property
    def _done(self) -> float:
        """Share of the run that is over, by epochs or by time, whichever is more."""
        spent = self._elapsed_s / self._budget_s if self._budget_s else 0.0
        return min(1.0, max(spent, self._step / (self._epochs * self._steps)))


def rate_at(done: float) -> float:
    """The learning rate, relative to the highest, at a share of the run: it rises from a twentieth, then falls to 0."""
    if done < WARM:
        return FIRST_RATE + (1 - FIRST_RATE) * done / WARM
    return 0.5 * (1 + math.cos(math.pi * (done - WARM) / (1 - WARM))) + LAST_RATE


def relative_loss(off: Tensor) -> Tensor:
    """The loss of relative errors of any shape: smooth L1, quadratic below LINEAR_FROM and linear above."""
    return smooth_l1_loss(off, torch.zeros_like(off), beta=LINEAR_FROM)
