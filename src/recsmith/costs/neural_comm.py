"""A learned model of all-to-alls, in NumPy: from bytes and start times of any number of ranks to each rank's seconds.

    rank -> a network of its inputs -> h
    h, and the mean and the largest h of all ranks -> a network -> a bounded factor of each figure of work
    seconds = alpha + wait for the last rank + sum of (work x unit cost x factor)

The same weights serve any order and number of ranks (deep sets: Zaheer et al., NeurIPS 2017): properties of all ranks
enter as means and maxima. Bytes are divided into those that stay in a host and those that leave it, as in
costs/collectives.py: forward, a rank sends the same bytes to each other rank; backward, it receives the same from each.
Seconds are at least alpha plus the wait; because work is proportional, predictions extend beyond the measured range.
The wait assumes that every rank exchanges bytes with the last one: in a table-wise all-to-all each rank receives from
all.

Source: Zha et al., Pre-train and Search (MLSys 2023), 3.2, has a network for each number of devices, and another for
each direction, of sums of dims and starts in the order of devices.

Legend: ... exchanges, W ranks, x inputs, k figures of work, h hidden.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.collectives import ranks_per_host
from recsmith.elementary import exp, log, matmul, tanh
from recsmith.errors import UsageError

INPUTS = (
    "log sent", "log received", "log most sent", "log most received", "log mean bytes", "log wait", "log lateness",
    "log latest", "log mean wait", "log ranks", "share across hosts", "forward",
)  # fmt: skip
WORK = (
    "call", "sent in host", "received in host", "most sent in host", "most received in host", "sent across",
    "received across", "most sent across", "most received across",
)  # fmt: skip
SHORTEST_S = 1e-6  # seconds added to waits, so that their logarithms are finite
LEAST_RANKS = 2  # fewest ranks of an exchange
BEND = 2.5  # the network changes a unit cost by at most a factor of e ** BEND = 12
REACH = 4.0  # standard deviations at which inputs are clipped
Layers = tuple[tuple[Floats, Floats], ...]


@dataclass(frozen=True)
class AllToAlls:
    """All-to-alls of W ranks. sent, received: bytes to and from other ranks (..., W). skew_s: start times (..., W).

    forward: (...,).
    per_host: ranks that fit on a host; None if all ranks are on one machine.
    """

    sent: Floats
    received: Floats
    skew_s: Floats
    forward: Bools
    per_host: int | None

    @property
    def ranks(self) -> int:
        """The number of ranks W."""
        return self.sent.shape[-1]

    @property
    def wait_s(self) -> Floats:
        """How long each rank waits for the last one to start (..., W)."""
        return self.skew_s.max(axis=-1, keepdims=True) - self.skew_s

    @property
    def across(self) -> float:
        """Share of the bytes sent by a rank that leaves its host."""
        local = self.ranks if self.per_host is None else ranks_per_host(self.ranks, self.per_host)
        return (self.ranks - local) / (self.ranks - 1)

    def check(self) -> None:
        """Raise UsageError for shapes or values that are no exchange."""
        if self.ranks < LEAST_RANKS or not self.sent.shape == self.received.shape == self.skew_s.shape:
            raise UsageError(
                f"bytes of shapes {self.sent.shape} and {self.received.shape} with starts of shape "
                f"{self.skew_s.shape}; give the same number of ranks, at least {LEAST_RANKS}, to all three"
            )
        for name, values in (("sent bytes", self.sent), ("received bytes", self.received)):
            if not np.isfinite(values).all() or (values < 0).any():
                raise UsageError(f"{name} must be finite and 0 or more")
        if not np.isfinite(self.skew_s).all():
            raise UsageError("starts must be finite seconds")

    def inputs(self) -> Floats:
        """The network's inputs for each rank (..., W, x), in the order of INPUTS."""
        wait, late = self.wait_s, self.skew_s - self.skew_s.min(axis=-1, keepdims=True)
        columns = (
            log(self.sent + 1), log(self.received + 1), log(_most(self.sent) + 1),
            log(_most(self.received) + 1), log(_mean(self.sent) + 1), log(wait + SHORTEST_S),
            log(late + SHORTEST_S), log(_most(wait) + SHORTEST_S), log(_mean(wait) + SHORTEST_S),
            log(self.ranks), self.across, self.forward[..., None].astype(np.float64),
        )  # fmt: skip
        return np.stack([np.broadcast_to(each, self.sent.shape) for each in columns], axis=-1)

    def work(self) -> Floats:
        """Figures of work of each rank (..., W, k)."""
        pairs = (self.sent, self.received, _most(self.sent), _most(self.received))
        size = np.stack([np.broadcast_to(each, self.sent.shape) for each in pairs], axis=-1)
        call = np.ones((*self.sent.shape, 1))
        return np.concatenate([call, size * (1 - self.across), size * self.across], axis=-1)


def _most(values: Floats) -> Floats:
    return values.max(axis=-1, keepdims=True)


def _mean(values: Floats) -> Floats:
    return values.mean(axis=-1, keepdims=True)


# --- the network -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommModel:
    """The weights of the model.

    centre, spread (x,): of the inputs.
    ranks: (weight, bias) pairs of the network of a single rank, each followed by ReLU.
    joint: those of the joint network, with ReLU between them.
    base (k,): log of the cost per unit of work.
    alpha: seconds of a call.
    per_host: ranks that fit on a host; None if all were on one machine.
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

        sent, received: bytes to and from other ranks (..., W). skew_s: start time of each rank (..., W); only
            differences matter.

        Raises:
            UsageError: fewer than two ranks, different shapes, or invalid numbers of bytes or seconds.
        """
        sent, received, skew_s = (np.asarray(each, dtype=np.float64) for each in (sent, received, skew_s))
        load = AllToAlls(sent, received, skew_s, np.full(sent.shape[:-1], forward), self.per_host)
        load.check()
        return self.of_load(load)

    def of_load(self, load: AllToAlls) -> Floats:
        """Seconds (..., W) of the ranks of these exchanges."""
        hidden = np.clip((load.inputs() - self.centre) / self.spread, -REACH, REACH)
        for weight, bias in self.ranks:
            hidden = np.maximum(matmul(hidden, weight.T) + bias, 0.0)
        pooled = (hidden.mean(axis=-2, keepdims=True), hidden.max(axis=-2, keepdims=True))
        flow = np.concatenate([hidden, *(np.broadcast_to(each, hidden.shape) for each in pooled)], axis=-1)
        for weight, bias in self.joint[:-1]:
            flow = np.maximum(matmul(flow, weight.T) + bias, 0.0)
        weight, bias = self.joint[-1]
        bent = BEND * tanh((matmul(flow, weight.T) + bias) / BEND)
        return self.alpha + load.wait_s + (exp(self.base + bent) * load.work()).sum(axis=-1)
