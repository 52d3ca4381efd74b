"""The seconds of a group on a rank as sums of maxima and network shares, the form that compiled searches evaluate.

A model that is the largest of linear pieces is one maximum per phase; a learned model is a sum of several, and may have
shares (costs/neural/heads.py). `loads` computes in NumPy what the compiled code does, for comparison.

Legend: F phases, N sums, k work terms, J linear functions of a maximum, E shares; n inputs, m hidden units.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.elementary import log1p, matmul, sigmoid

LOG_UNIT = 1e6  # scales the inputs of networks to microseconds


@dataclass(frozen=True)
class Maximum:
    """The largest of linear functions slopes @ S - offset, or 0, in a phase: slopes (J, k), offset (J,).

    extra (J, E, k): seconds of which each function adds its shares; None without shares.
    """

    phase: int
    slopes: Floats
    offset: Floats
    extra: Floats | None = None


@dataclass(frozen=True)
class NetworkShares:
    """Shares from 0 to 1: the sigmoid of a network with one hidden layer.

    behind (m, n), behind_bias (m,), gate (E, m), gate_bias (E,): the network, whose inputs are log(1 + LOG_UNIT * S).
    """

    behind: Floats
    behind_bias: Floats
    gate: Floats
    gate_bias: Floats

    def of(self, sums: Floats) -> Floats:
        """The shares (N, E) of sums (N, k)."""
        logs = log1p(sums[:, : self.behind.shape[1]] * LOG_UNIT)
        hidden = np.maximum(matmul(logs, self.behind.T) + self.behind_bias, 0.0)
        return sigmoid(matmul(hidden, self.gate.T) + self.gate_bias)


@dataclass(frozen=True)
class GroupLoads:
    """The loads of a group. opening (F,): seconds of a group in use; shares: of the maxima's `extra`."""

    opening: Floats
    maxima: tuple[Maximum, ...]
    shares: NetworkShares | None = None

    @property
    def arrays(self) -> tuple[Ints | Floats, ...]:
        """The arrays that compiled code reads: the maxima, their offsets, opening, and the network.

        For each maximum: its phase, its number of linear functions, and whether it has extra. The first layer's weights
        are ordered by input.
        """
        sizes = [(each.phase, len(each.offset), each.extra is not None) for each in self.maxima]
        net = self.shares
        network = 4 * [np.zeros(0)] if net is None else [net.behind.T, net.behind_bias, net.gate, net.gate_bias]
        numbers = (np.concatenate([each.offset for each in self.maxima]), self.opening, *network)
        kept = (np.ascontiguousarray(each, dtype=np.float64) for each in numbers)
        return np.array(sizes, dtype=np.int64), *kept

    def columns(self, terms: Floats) -> Floats:
        """Columns (N, J) that pieces of terms (N, k) add to a group: linear functions, share inputs, and extra."""
        inputs = terms[:, : self.shares.behind.shape[1]] * LOG_UNIT if self.shares else terms[:, :0]
        slopes = [each.slopes for each in self.maxima]
        extra = [each.extra.reshape(-1, terms.shape[1]) for each in self.maxima if each.extra is not None]
        more = matmul(terms, np.concatenate(extra).T) if extra else terms[:, :0]
        return np.hstack([matmul(terms, np.concatenate(slopes).T), inputs, more])

    def loads(self, sums: Floats) -> Floats:
        """Seconds (F, N) of groups that hold at least one piece, with summed terms (N, k)."""
        found = np.repeat(self.opening[:, None], len(sums), axis=1)
        for each in self.maxima:
            linear = matmul(sums, each.slopes.T) - each.offset
            if self.shares and each.extra is not None:
                linear += np.einsum("ne,nk,jek->nj", self.shares.of(sums), sums, each.extra)
            found[each.phase] += np.maximum(linear.max(axis=1), 0.0)
        return found


@runtime_checkable
class HasGroupLoads(Protocol):
    """An evaluator that is not the largest of linear pieces, but has loads in a form that compiled searches support."""

    @property
    def group_loads(self) -> GroupLoads | None:
        """The loads in this form; None if the model has no such form."""
        ...
