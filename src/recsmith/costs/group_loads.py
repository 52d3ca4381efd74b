"""Seconds of a group on a rank in a form that compiled searches work out: sums of maxima, and shares of a network.

A model that is the largest of linear pieces is one maximum a phase; a learned model is a sum of several, and may bear
shares (costs/neural/heads.py). `loads` says in NumPy what the compiled code does, so that it can be compared.

Legend: F phases, N sums, k work terms, J linear functions of a maximum, E shares; n inputs, m hidden units.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.elementary import log1p, matmul, sigmoid

LOG_UNIT = 1e6  # of the inputs of networks: microseconds


@dataclass(frozen=True)
class Maximum:
    """The largest of linear functions slopes @ S - offset, but 0 at least, in a phase: slopes (J, k), offset (J,).

    extra (J, E, k): seconds of which each of them bears shares; None for none.
    """

    phase: int
    slopes: Floats
    offset: Floats
    extra: Floats | None = None


@dataclass(frozen=True)
class NetworkShares:
    """Shares, 0 to 1: a sigmoid of a network with one hidden layer.

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
    """opening (F,): seconds of a group in use; shares: of what maxima have in extra."""

    opening: Floats
    maxima: tuple[Maximum, ...]
    shares: NetworkShares | None = None

    @property
    def arrays(self) -> tuple[Ints | Floats, ...]:
        """As compiled code reads them: the maxima, their offsets, opening, and the network.

        Of each maximum its phase, how many linear functions, and whether with extra; first weights are input by input.
        """
        sizes = [(each.phase, len(each.offset), each.extra is not None) for each in self.maxima]
        net = self.shares
        network = 4 * [np.zeros(0)] if net is None else [net.behind.T, net.behind_bias, net.gate, net.gate_bias]
        numbers = (np.concatenate([each.offset for each in self.maxima]), self.opening, *network)
        kept = (np.ascontiguousarray(each, dtype=np.float64) for each in numbers)
        return np.array(sizes, dtype=np.int64), *kept

    def columns(self, terms: Floats) -> Floats:
        """What pieces with terms (N, k) add to a group (N, J): to all linear functions, what shares read, and extra."""
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
    """An evaluator that is no largest of linear pieces, but whose loads have a form that compiled searches know."""

    @property
    def group_loads(self) -> GroupLoads | None:
        """That form; None where it has none."""
        ...
