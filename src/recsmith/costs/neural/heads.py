"""Heads of learned cost models: seconds of a fusion group, forward and backward, from its summed terms.

`convex`: launch + linear + hinges, all weights 0 or more, so that it is convex and monotone in the sums:

    seconds = launch + a . S + sum over hinges of max(0, h . S - c)

The hinges are the extra time of a kernel once its tables together outgrow a cache. `linear`: the same without hinges,
so that two groups never cost less than one group of both. `corrected`: for pieces whose terms include the seconds of
cost model `analytic`:

    seconds = launch + the largest of its peaks, each p . S + sum over gates of share(S) * (e . S)

Peaks are memory and cache, whichever is slower. Each share is between 0 and 1 and is the output of a small network of
log S: the part of the reads that could miss a cache and does, once all tables of the group share it; memory takes that
much longer. This is not a convex function, so planes leave it out; they are lower bounds, because it is 0 or more.
`monotone`: the same with weights of the shares that are 0 or more. Then no share falls as a group grows, and a group
bears at least what its pieces would bear each alone, which planes include. `free`: launch + a . S times a bounded
factor, a small network of log S. It gives no planes.

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

BLOCK = 2048  # groups computed at once, so that their sums and hinges fit a second-level cache
REACH = 1.5  # the factor of `free` is between e ** -REACH and e ** REACH
ROUNDING = 1e-3  # safely above the error of single precision in the argument of a share's sigmoid
STEPS_AT: Floats = power(10.0, np.arange(-180, 1) / 20)  # seconds at which shares are evaluated for `share_steps`
LOG_UNIT, LOG_SPAN = 1e6, 8.0  # inputs of `free` are log(1 + microseconds) / 8: 0 to 2 for up to 10 s


Narrow = npt.NDArray[np.float32]


class Head(Protocol):
    """Seconds of groups that hold at least one piece, apart from launches."""

    @property
    def launch(self) -> Floats:
        """Launch seconds (2,) of a group that holds at least one piece, forward and backward."""
        ...

    def seconds(self, sums: Floats) -> Floats:
        """Seconds (2, N) of summed terms (N, k) beyond the launch, forward and backward."""
        ...

    def total(self, sums: Floats) -> Floats:
        """Seconds (N,) beyond the launch, forward and backward together."""
        ...

    def maxima(self) -> list[Maximum] | None:
        """The maxima whose sum is `total`; None if it is no such sum."""
        ...


@dataclass(frozen=True)
class ConvexHead:
    """Heads `convex` and `linear`, all 0 or more: launch (2,), linear (2, k), hinges (2, H, k), offsets (2, H) in s."""

    launch: Floats
    linear: Floats
    hinges: Floats
    offsets: Floats

    def seconds(self, sums: Floats) -> Floats:
        """Linear + hinges (2, N), forward and backward."""
        return np.stack([
            self._sum(sums, np.vstack([self.linear[i], self.hinges[i]]), self.offsets[i]) for i in (0, 1)
        ])  # fmt: skip

    def total(self, sums: Floats) -> Floats:
        """Linear + hinges (N,), forward and backward together."""
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
        """The maxima of the linear part, and of each hinge."""
        slopes, offsets = self._both
        return [Maximum(0, *each) for each in zip(slopes[:, None], np.append(0.0, offsets)[:, None], strict=True)]

    def planes(self) -> list[tuple[Floats, float]]:
        """(slopes (k,), seconds at no work) of every set of hinges, forward and backward together.

        Each is below launch + total. The seconds are the launch less the offsets of the hinges, and may be below 0.
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
    """Summed terms (k, n) of a block of groups (N, k), starting at `start`.

    A single group is repeated: `matmul` sums a single column in another order, and a group must have the same bits
    alone as among others.
    """
    block = sums[start : start + BLOCK]
    return np.ascontiguousarray((block if len(block) > 1 else np.repeat(block, 2, axis=0)).T)


def _of_logarithms(block: Floats, first: Narrow, bias: Narrow, second: Narrow, second_bias: Narrow) -> Narrow:
    """A network with one hidden layer on the logarithms of summed terms (k, n), in single precision."""
    hidden = matmul(first, log(1 + block * LOG_UNIT).astype(np.float32))
    hidden += bias
    np.maximum(hidden, 0, out=hidden)
    found = matmul(second, hidden)
    found += second_bias
    return found


@dataclass(frozen=True)
class CorrectedHead:
    """Heads `corrected` and `monotone`: the largest of peaks, each with shares of its own extra.

    launch (2,), peaks (2, p, k), extra (2, p, G, k), none below 0; behind (m, k), behind_bias (m,), gate (G, m),
    gate_bias (G,): the network of the shares.
    """

    launch: Floats
    peaks: Floats
    extra: Floats
    behind: Floats
    behind_bias: Floats
    gate: Floats
    gate_bias: Floats

    def seconds(self, sums: Floats) -> Floats:
        """The largest peak, including its shares of extra (2, N)."""
        found = np.empty((2, len(sums)))
        for start in range(0, len(sums), BLOCK):
            found[:, start : start + BLOCK] = self._largest(_columns(sums, start))[:, : len(sums) - start]
        return found

    def total(self, sums: Floats) -> Floats:
        """The sum of the forward and the backward seconds (N,)."""
        return self.seconds(sums).sum(axis=0)

    def _largest(self, block: Floats) -> Floats:
        """The largest peak (2, n) of summed terms (k, n)."""
        shares = self._shares(block)
        peaks = matmul(self._flat_peaks, block).reshape(*self.peaks.shape[:2], -1)
        rising = matmul(self._flat_extra, block).reshape(*self.extra.shape[:3], -1)
        rising *= shares
        return (peaks + rising.sum(axis=2)).max(axis=1)

    def maxima(self) -> list[Maximum]:
        """The maxima over the peaks of forward, and over those of backward, each with its extra."""
        return [Maximum(0, *each) for each in zip(self.peaks, np.zeros(self.peaks.shape[:2]), self.extra, strict=True)]

    @property
    def shares(self) -> NetworkShares:
        """The network of the shares."""
        return NetworkShares(self.behind / LOG_SPAN, self.behind_bias, self.gate, self.gate_bias)

    def planes(self) -> list[tuple[Floats, float]]:
        """(slopes (k + o,), seconds at no work) of every pair of peaks, forward and backward.

        The slopes are for terms and, after them, for `own` extra. The rest of the extra is 0 or more, so each plane is
        a lower bound.
        """
        launch, peaks = float(self.launch.sum()), self.peaks.shape[1]
        counted = np.eye(peaks, self.owned // 2)
        return [
            (np.concatenate([self.peaks[0, i] + self.peaks[1, j], counted[i], counted[j]]), launch)
            for i, j in product(range(peaks), repeat=2)
        ]

    @cached_property
    def owned(self) -> int:
        """The number of columns of `own`: one per peak if shares never fall as a group grows, else 0."""
        rising = (self.behind >= 0).all() and (self.gate >= 0).all()
        return 2 * self.peaks.shape[1] if rising else 0

    def own(self, terms: Floats, sums: Floats | None = None) -> Floats:
        """Extra that pieces with these terms (N, k) bear alone, for the peaks of forward and then backward (N, o).

        Shares rise with the sums, so a group bears no less than its pieces together. sums (N, k): summed terms that the
        group of each piece holds at least, including the piece; by default its own terms.
        """
        found = np.empty((len(terms), self.owned))
        for start in range(0, len(terms) if self.owned else 0, BLOCK):
            block = _columns(terms, start)
            extra = matmul(self._flat_extra, block).reshape(self.owned, -1, block.shape[1])
            held = block if sums is None else _columns(sums, start)
            found[start : start + BLOCK] = (extra * self._shares(held, ROUNDING)).sum(axis=1).T[: len(terms) - start]
        return found

    def share_steps(self, steps: tuple[int, ...]) -> list[tuple[int, Floats]]:
        """(term, sums of it (n - 1,) between which shares rise by 1 / n each), for each number n in `steps`.

        The terms are those on which shares depend most, the most influential first.
        """
        weight = matmul(self.gate, self.behind)
        weight[:, 0] = 0.0  # number of pieces, which is at least 1
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
        """Shares (G, n), 0 to 1, of summed terms (k, n). less: subtracted from the argument of their sigmoid."""
        return sigmoid(_of_logarithms(block, *self._narrow).astype(np.float64) - less)

    @cached_property
    def _flat_peaks(self) -> Floats:
        """Peaks of forward, then those of backward (2 p, k)."""
        return self.peaks.reshape(-1, self.peaks.shape[-1])

    @cached_property
    def _flat_extra(self) -> Floats:
        """Extra of forward, by peak, then that of backward (2 p G, k)."""
        return self.extra.reshape(-1, self.extra.shape[-1])

    @cached_property
    def _narrow(self) -> tuple[Narrow, ...]:
        """The weights of the shares in single precision, including constant factors."""
        columns = (self.behind / LOG_SPAN, self.behind_bias[:, None], self.gate, self.gate_bias[:, None])
        return tuple(each.astype(np.float32) for each in columns)


@dataclass(frozen=True)
class FreeHead:
    """Head `free`: a linear part times a bounded factor.

    launch (2,), linear (2, k); of the factor: hidden (m, k), hidden_bias (m,), out (2, m), out_bias (2,).
    """

    launch: Floats
    linear: Floats
    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats

    def seconds(self, sums: Floats) -> Floats:
        """Linear times the factor (2, N)."""
        found = np.empty((2, len(sums)))
        for start in range(0, len(sums), BLOCK):
            block = _columns(sums, start)
            seconds = matmul(self.linear, block) * exp(REACH * tanh(_of_logarithms(block, *self._narrow)))
            found[:, start : start + BLOCK] = seconds[:, : len(sums) - start]
        return found

    def total(self, sums: Floats) -> Floats:
        """The sum of the forward and the backward seconds (N,)."""
        return self.seconds(sums).sum(axis=0)

    def maxima(self) -> None:
        """None, because the head is a product."""

    @cached_property
    def _narrow(self) -> tuple[Narrow, ...]:
        """The weights of the factor in single precision, including constant factors."""
        hidden, out = self.hidden / LOG_SPAN, self.out / REACH
        columns = (hidden, self.hidden_bias[:, None], out, self.out_bias[:, None] / REACH)
        return tuple(each.astype(np.float32) for each in columns)
