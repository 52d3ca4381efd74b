"""Heads of learned cost models: seconds of a fusion group, forward and backward, from its summed terms.

`convex`: launch + linear + hinges, all weights 0 or more, so that it is convex and monotone in the sums:

    seconds = launch + a . S + sum over hinges of max(0, h . S - c)

The hinges are what a kernel takes longer for once its tables together outgrow a cache. `linear`: the same without
hinges, so that two groups never cost less than one of both. `corrected`: for pieces that carry the seconds of cost
model `analytic` among their terms:

    seconds = launch + the largest of its peaks, each p . S + sum over gates of share(S) * (e . S)

Peaks are memory and cache, whichever is slower. Each share lies between 0 and 1 and is a small network's of log S: how
much of what could miss a cache does, once all tables of the group share it; memory takes that much longer. That is no
convex function, so planes leave it out; they lie below, as it costs 0 or more. `monotone`: the same with weights of the
shares that are 0 or more. Then no share falls as a group grows, and a group bears at least what its pieces would bear
each alone, which planes count. `free`: launch + a . S times a bounded factor, a small network of log S. It gives no
planes.

Legend: N groups on ranks, k terms, H hinges, p peaks, G gates, m hidden units, J planes, o columns of own extra.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats
from recsmith.costs.group_loads import Maximum, NetworkShares
from recsmith.elementary import distinct, exp, log, matmul, power, sigmoid, tanh

BLOCK = 2048  # groups that are computed at once, so that their sums and hinges fit a second-level cache
REACH = 1.5  # the factor of `free` lies within e ** -REACH and e ** REACH
ROUNDING = 1e-3  # by which single precision may be off in the number whose sigmoid a share is, and much more
STEPS_AT: Floats = power(10.0, np.arange(-180, 1) / 20)  # seconds at which shares are looked at for `share_steps`
LOG_UNIT, LOG_SPAN = 1e6, 8.0  # inputs of `free` are log(1 + microseconds) / 8: 0 to 2 for up to 10 s


Narrow = npt.NDArray[np.float32]


class Head(Protocol):
    """Seconds of groups that hold something; launches apart."""

    @property
    def launch(self) -> Floats:
        """Seconds (2,) of a group that holds at least one piece, forward and backward."""
        ...

    def seconds(self, sums: Floats) -> Floats:
        """Seconds (2, N) of summed terms (N, k) beyond the launch, forward and backward."""
        ...

    def total(self, sums: Floats) -> Floats:
        """Seconds (N,), forward and backward together."""
        ...

    def maxima(self) -> list[Maximum] | None:
        """The maxima that `total` is a sum of; None if it is none."""
        ...


@dataclass(frozen=True)
class ConvexHead:
    """launch (2,), linear (2, k), hinges (2, H, k), offsets (2, H) in seconds; none below 0."""

    launch: Floats
    linear: Floats
    hinges: Floats
    offsets: Floats

    def seconds(self, sums: Floats) -> Floats:
        """Linear + hinges, (2, N)."""
        return np.stack([
            self._sum(sums, np.vstack([self.linear[i], self.hinges[i]]), self.offsets[i]) for i in (0, 1)
        ])  # fmt: skip

    def total(self, sums: Floats) -> Floats:
        """Linear + hinges of both, (N,)."""
        return self._sum(sums, *self._both)

    @cached_property
    def _both(self) -> tuple[Floats, Floats]:
        """Slopes (1 + 2 H, k) of linear and hinges, and offsets (2 H,), of forward and backward together."""
        k = self.linear.shape[1]
        return np.vstack([self.linear.sum(axis=0), self.hinges.reshape(-1, k)]), self.offsets.ravel()

    @staticmethod
    def _sum(sums: Floats, slopes: Floats, offsets: Floats) -> Floats:
        total = np.empty(len(sums))
        for start in range(0, len(sums), BLOCK):
            rising = matmul(slopes, _columns(sums, start))  # (1 + H, n)
            rising[1:] -= offsets[:, None]
            np.maximum(rising, 0.0, out=rising)
            total[start : start + BLOCK] = rising.sum(axis=0)[: len(sums) - start]
        return total

    def maxima(self) -> list[Maximum]:
        """The linear part, and each hinge."""
        slopes, offsets = self._both
        return [Maximum(0, *each) for each in zip(slopes[:, None], np.append(0.0, offsets)[:, None], strict=True)]

    def planes(self) -> list[tuple[Floats, float]]:
        """(slopes (k,), seconds at no work) of every set of hinges, forward and backward together.

        Each lies below launch + total; the seconds are the launch less the offsets of the hinges, and may be below 0.
        """
        k = self.linear.shape[1]
        hinges, offsets = self.hinges.reshape(-1, k), self.offsets.ravel()
        found: list[tuple[Floats, float]] = []
        for size in range(len(offsets) + 1):
            for chosen in map(list, combinations(range(len(offsets)), size)):
                slopes = self.linear.sum(axis=0) + hinges[chosen].sum(axis=0)
                found.append((slopes, float(self.launch.sum() - offsets[chosen].sum())))
        return found


def _columns(sums: Floats, start: int) -> Floats:
    """Summed terms (k, n) of a block of groups (N, k) from `start` on.

    One group stands there twice: `matmul` adds up a single column in another order, and a group must have the same bits
    alone as among others.
    """
    block = sums[start : start + BLOCK]
    return np.ascontiguousarray((block if len(block) > 1 else np.repeat(block, 2, axis=0)).T)


def _of_logarithms(block: Floats, first: Narrow, bias: Narrow, second: Narrow, second_bias: Narrow) -> Narrow:
    """A network with one hidden layer of the logarithms of summed terms (k, n), in single precision."""
    hidden = matmul(first, log(1 + block * LOG_UNIT).astype(np.float32))
    hidden += bias
    np.maximum(hidden, 0, out=hidden)
    found = matmul(second, hidden)
    found += second_bias
    return found


@dataclass(frozen=True)
class CorrectedHead:
    """The largest of peaks, each with shares of its own extra: heads `corrected` and `monotone`.

    launch (2,), peaks (2, p, k), extra (2, p, G, k), none below 0; behind (m, k), behind_bias (m,), gate (G, m),
    gate_bias (G,) of the shares.
    """

    launch: Floats
    peaks: Floats
    extra: Floats
    behind: Floats
    behind_bias: Floats
    gate: Floats
    gate_bias: Floats

    def seconds(self, sums: Floats) -> Floats:
        """The largest peak, with its shares of extra, (2, N)."""
        found = np.empty((2, len(sums)))
        for start in range(0, len(sums), BLOCK):
            found[:, start : start + BLOCK] = self._largest(_columns(sums, start))[:, : len(sums) - start]
        return found

    def total(self, sums: Floats) -> Floats:
        """The sum of both, (N,)."""
        return self.seconds(sums).sum(axis=0)

    def _largest(self, block: Floats) -> Floats:
        """The largest peak (2, n) of summed terms (k, n)."""
        shares = self._shares(block)
        peaks = matmul(self._flat_peaks, block).reshape(*self.peaks.shape[:2], -1)
        rising = matmul(self._flat_extra, block).reshape(*self.extra.shape[:3], -1)
        rising *= shares
        return (peaks + rising.sum(axis=2)).max(axis=1)

    def maxima(self) -> list[Maximum]:
        """The peaks of forward, and those of backward, each with its extra."""
        return [Maximum(0, *each) for each in zip(self.peaks, np.zeros(self.peaks.shape[:2]), self.extra, strict=True)]

    @property
    def shares(self) -> NetworkShares:
        """The network of the shares."""
        return NetworkShares(self.behind / LOG_SPAN, self.behind_bias, self.gate, self.gate_bias)

    def planes(self) -> list[tuple[Floats, float]]:
        """(slopes (k + o,), seconds at no work) of every pair of peaks, forward and backward.

        They are of terms and, behind them, of `own` extra. The rest of it is 0 or more, so each plane lies below.
        """
        launch, peaks = float(self.launch.sum()), self.peaks.shape[1]
        counted = np.eye(peaks, self.owned // 2)
        return [
            (np.concatenate([self.peaks[0, i] + self.peaks[1, j], counted[i], counted[j]]), launch)
            for i, j in product(range(peaks), repeat=2)
        ]

    @cached_property
    def owned(self) -> int:
        """How many columns `own` has: one of each peak where shares never fall as a group grows, else none."""
        rising = (self.behind >= 0).all() and (self.gate >= 0).all()
        return 2 * self.peaks.shape[1] if rising else 0

    def own(self, terms: Floats, sums: Floats | None = None) -> Floats:
        """Extra that pieces with these terms (N, k) bear alone, of peaks forward and then backward (N, o).

        Shares rise with the sums, so a group bears no less than its pieces together. sums (N, k): summed terms of what
        the group of each holds at least, itself included; its own terms by default.
        """
        found = np.empty((len(terms), self.owned))
        for start in range(0, len(terms) if self.owned else 0, BLOCK):
            block = _columns(terms, start)
            extra = matmul(self._flat_extra, block).reshape(self.owned, -1, block.shape[1])
            held = block if sums is None else _columns(sums, start)
            found[start : start + BLOCK] = (extra * self._shares(held, ROUNDING)).sum(axis=1).T[: len(terms) - start]
        return found

    def share_steps(self, steps: tuple[int, ...]) -> list[tuple[int, Floats]]:
        """(term, sums of it (n - 1,) between which shares rise by a part of n), for each number n of `steps`.

        Of the terms on which the most shares rest most, the first first.
        """
        weight = matmul(self.gate, self.behind)
        weight[:, 0] = 0.0  # of the count of pieces, which is 1 at least
        one = np.eye(1, weight.shape[1])
        rests_on = weight.argmax(axis=1)
        terms = sorted(distinct(rests_on).tolist(), key=lambda term: -weight[rests_on == term, term].sum())
        found: list[tuple[int, Floats]] = []
        for term, parts in zip(terms, steps, strict=False):
            sums = np.where(np.arange(one.shape[1]) == term, STEPS_AT[:, None], one)
            risen = self._shares(np.ascontiguousarray(sums.T))[rests_on == term].sum(axis=0)
            if risen[-1] > risen[0]:
                place = (risen - risen[0]) / (risen[-1] - risen[0])
                found.append((term, np.interp(np.arange(1, parts) / parts, place, STEPS_AT)))
        return found

    def _shares(self, block: Floats, less: float = 0.0) -> Floats:
        """Shares (G, n), 0 to 1, of summed terms (k, n). less: taken from the number whose sigmoid they are."""
        return sigmoid(_of_logarithms(block, *self._narrow).astype(np.float64) - less)

    @cached_property
    def _flat_peaks(self) -> Floats:
        """Peaks of forward, then those of backward (2 p, k)."""
        return self.peaks.reshape(-1, self.peaks.shape[-1])

    @cached_property
    def _flat_extra(self) -> Floats:
        """Extra of forward, peak by peak, then that of backward (2 p G, k)."""
        return self.extra.reshape(-1, self.extra.shape[-1])

    @cached_property
    def _narrow(self) -> tuple[Narrow, ...]:
        """The weights of the shares in single precision, with the constants around them."""
        columns = (self.behind / LOG_SPAN, self.behind_bias[:, None], self.gate, self.gate_bias[:, None])
        return tuple(each.astype(np.float32) for each in columns)


@dataclass(frozen=True)
class FreeHead:
    """launch (2,), linear (2, k); hidden (m, k), hidden_bias (m,), out (2, m), out_bias (2,) of the factor."""

    launch: Floats
    linear: Floats
    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats

    def seconds(self, sums: Floats) -> Floats:
        """Linear times the factor, (2, N)."""
        found = np.empty((2, len(sums)))
        for start in range(0, len(sums), BLOCK):
            block = _columns(sums, start)
            seconds = matmul(self.linear, block) * exp(REACH * tanh(_of_logarithms(block, *self._narrow)))
            found[:, start : start + BLOCK] = seconds[:, : len(sums) - start]
        return found

    def total(self, sums: Floats) -> Floats:
        """The sum of both, (N,)."""
        return self.seconds(sums).sum(axis=0)

    def maxima(self) -> None:
        """None: it is a product."""

    @cached_property
    def _narrow(self) -> tuple[Narrow, ...]:
        """The weights of the factor in single precision, with the constants around them."""
        hidden, out = self.hidden / LOG_SPAN, self.out / REACH
        columns = (hidden, self.hidden_bias[:, None], out, self.out_bias[:, None] / REACH)
        return tuple(each.astype(np.float32) for each in columns)
