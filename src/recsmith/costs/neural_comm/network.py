"""A learned model of all-to-alls: bytes and starts of any number of ranks to the seconds of each, by NumPy.

    rank -> a network of its inputs -> h
    h, and the mean and the largest h of all ranks -> a network -> a bounded factor of each figure of work
    seconds = alpha + wait for the last rank + sum of (work x unit cost x factor)

Whatever the order and the number of ranks, the same weights answer (deep sets: Zaheer et al., NeurIPS 2017). Seconds
are at least alpha and the wait; proportional work is what makes them hold beyond what was measured. The wait supposes
that every rank has bytes for, or of, the last one: in a table-wise all-to-all each rank receives from all.

Source: Zha et al., Pre-train and Search (MLSys 2023), 3.2, has a network for each number of devices, and another for
each direction, of sums of dims and starts in the order of devices.

Legend: ... exchanges, W ranks, x inputs, k figures of work, h hidden.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural_comm.inputs import Load

BEND = 2.5  # the network moves a unit cost by at most a factor of e ** BEND = 12 from its base
REACH = 4.0  # standard deviations at which inputs are cut off
Layers = tuple[tuple[Floats, Floats], ...]


@dataclass(frozen=True)
class CommModel:
    """Weights of the model.

    centre, spread (x,): of the inputs. ranks: (weight, bias) pairs of the network of a rank, ReLU behind each. joint:
    those of the network of all, ReLU between them. base (k,): log of what a unit of work costs. alpha: seconds of a
    call. per_host: ranks that a host has room for; None where all were on one machine.
    """

    centre: Floats
    spread: Floats
    ranks: Layers
    joint: Layers
    base: Floats
    alpha: float
    per_host: int | None

    def seconds(self, sent: Floats, received: Floats, skew_s: Floats, *, forward: bool) -> Floats:
        """Seconds (..., W) of each rank, from its own start to its end.

        sent, received: bytes to and from other ranks (..., W). skew_s: when each starts (..., W); only differences
        count.

        Raises:
            UsageError: fewer than two ranks, shapes that differ, or numbers that are no bytes or no seconds.
        """
        sent, received, skew_s = (np.asarray(each, dtype=np.float64) for each in (sent, received, skew_s))
        load = Load(sent, received, skew_s, np.full(sent.shape[:-1], forward), self.per_host)
        load.check()
        return self.of_load(load)

    def of_load(self, load: Load) -> Floats:
        """Seconds (..., W) of a load."""
        hidden = np.clip((load.inputs() - self.centre) / self.spread, -REACH, REACH)
        for weight, bias in self.ranks:
            hidden = np.maximum(hidden @ weight.T + bias, 0.0)
        pooled = (hidden.mean(axis=-2, keepdims=True), hidden.max(axis=-2, keepdims=True))
        flow = np.concatenate([hidden, *(np.broadcast_to(each, hidden.shape) for each in pooled)], axis=-1)
        for weight, bias in self.joint[:-1]:
            flow = np.maximum(flow @ weight.T + bias, 0.0)
        weight, bias = self.joint[-1]
        bent = BEND * np.tanh((flow @ weight.T + bias) / BEND)
        return self.alpha + load.wait_s + (np.exp(self.base + bent) * load.work()).sum(axis=-1)
