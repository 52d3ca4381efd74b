"""The evaluator of learned cost models: a network for terms, a head for their sums, and collectives as in `analytic`.

Legend: N pieces, M modes, G fusion groups, k = 1 + t + 4 terms: number of pieces, learned terms, seconds of uncovered
kernels forward and backward, and of collectives forward and backward.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.analytic import BACKWARD_COMM as ANALYTIC_BACKWARD_COMM
from recsmith.costs.analytic import FORWARD_COMM as ANALYTIC_FORWARD_COMM
from recsmith.costs.analytic import AnalyticEvaluator
from recsmith.costs.embedding_kernels import EmbeddingKernels
from recsmith.costs.group_loads import GroupLoads, Maximum
from recsmith.costs.neural.files import Card, Weights
from recsmith.costs.neural.heads import ConvexHead, CorrectedHead
from recsmith.costs.neural.inputs import (
    DATA_TYPES,
    OPTIMIZERS,
    PieceWork,
    corrected_work_of,
    inputs_of,
    missing_shares,
    work_of,
)
from recsmith.costs.neural.sequences import IN_ORDER_S, SequenceSeconds, sequence_figures, sequences_of
from recsmith.costs.protocol import Evaluator, Plane, StepRule, ready_and_forward
from recsmith.elementary import matmul
from recsmith.problems import Problem
from recsmith.sharding import FUSED, SPLIT_ROWS

AROUND = 4  # terms after the learned ones, which are not learned
PIECES = 0  # column of the number of pieces
OTHER_FORWARD, OTHER_BACKWARD, FORWARD_COMM, BACKWARD_COMM = range(-AROUND, 0)  # columns
PIECE_BLOCK = 4096  # pieces whose work is computed at once; bounds the memory for this


@dataclass(frozen=True)
class NeuralEvaluator:
    """A learned model compiled for one problem.

    covered (M,): modes whose kernels were measured.
    extrapolated: inputs beyond the trained range, and by what factor.
    share (M,): weight of the learned price of a mode; formulas have the remaining weight (costs/best.py). Their part is
        at least the model's price of the piece alone, so that no table is cheaper for being outside the range. None
        means 1 for all covered modes.
    factors (M, 2): factors on the seconds of formulas, forward and backward; None for the card's factor for all.
    formulas: the model that prices what is not learned; None for `analytic`, from whose seconds learned terms are
        computed in any case.
    lift: seconds that every group on a rank costs more than the model predicts; 0 except in the models of `lifted`.
    """

    problem: Problem
    weights: Weights
    card: Card
    analytic: AnalyticEvaluator
    covered: Bools
    extrapolated: dict[str, float]
    lift: float = 0.0
    additive: bool = False
    share: Floats | None = None
    factors: Floats | None = None
    formulas: AnalyticEvaluator | None = None

    @property
    def kernels(self) -> EmbeddingKernels:
        """The kernels of cost model `analytic`, which count the different rows that a piece reads."""
        return self.analytic.kernels

    @property
    def group(self) -> Ints:
        """Fusion group of each mode (M,)."""
        return self.analytic.group

    @property
    def groups(self) -> int:
        """Number of fusion groups."""
        return self.analytic.groups

    @property
    def shared(self) -> Floats:
        """Latencies (G, 4) of collectives, as in cost model `analytic`."""
        return self.analytic.shared

    @property
    def step_rule(self) -> StepRule:
        """The step rule of cost model `analytic`."""
        return self.analytic.step_rule

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Terms (N, k): 1, the learned terms with their own extra, and seconds of other kernels and of collectives."""
        learned = len(self.weights.base)
        terms = np.zeros((len(modes), 1 + learned + self._owned + AROUND))
        terms[:, PIECES] = 1.0
        covered, analytic = self.covered[modes], self.analytic.terms(modes, widths)
        formula, rest = self._formula(modes, widths, analytic), self._rest(modes)
        known = np.flatnonzero(covered)
        if len(known):
            terms[known, 1:-AROUND] = self._alike_pieces(modes[known], widths[known], analytic[known, 1:5])
            partly = known[rest[known] > 0]
            alone = self.weights.head.seconds(terms[partly, : 1 + learned]).T
            formula[partly] = np.maximum(formula[partly], alone)
            if self.share is not None:
                terms[known, 1 : 1 + learned] *= self.share[modes[known], None]
        terms[:, [OTHER_FORWARD, OTHER_BACKWARD]] = formula * rest[:, None]
        terms[:, [FORWARD_COMM, BACKWARD_COMM]] = analytic[:, [ANALYTIC_FORWARD_COMM, ANALYTIC_BACKWARD_COMM]]
        if self.card.sequences:
            terms[:, [FORWARD_COMM, BACKWARD_COMM]] += self._put_in_order(modes, widths)
        return terms

    def _alike_pieces(self, modes: Ints, widths: Ints, analytic: Floats) -> Floats:
        """The result of _learned for covered pieces (N,), computed once for equal pieces of this and all earlier calls.

        Sharding types differ only in what they send, and bounds and searches ask for the same pieces repeatedly.
        """
        keys = self._alike[modes] * (1 + int(self.problem.demand.dim.max())) + widths
        known, found = self._remembered[0]
        new, first = np.unique(keys, return_index=True)
        first = first[~np.isin(new, known, assume_unique=True)]
        if len(first):
            more = [
                self._learned(modes[some], widths[some], analytic[some])
                for some in np.split(first, range(PIECE_BLOCK, len(first), PIECE_BLOCK))
            ]
            both = np.concatenate([known, keys[first]])
            order = np.argsort(both)
            known, found = both[order], np.concatenate([found, *more])[order]
            self._remembered[0] = known, found  # both at once, because bounds run in a separate thread
        return found[np.searchsorted(known, keys)]

    def _learned(self, modes: Ints, widths: Ints, analytic: Floats) -> Floats:
        """Learned terms of pieces, and the extra that they bear alone at the weight of their share (N, t + o)."""
        piece, head = self._piece(modes, widths), self.weights.head
        found = self.weights.terms(self._work(piece, modes, widths, analytic), inputs_of(piece))
        if not isinstance(head, CorrectedHead):
            return found
        share = np.ones(len(modes)) if self.share is None else self.share[modes]
        counted = np.column_stack([np.ones(len(modes)), found * share[:, None]])
        return np.hstack([found, head.own(counted)])

    @cached_property
    def _alike(self) -> Ints:
        """A number for each mode (M,), equal for modes that a model of kernels cannot distinguish."""
        modes = self.problem.modes
        share = np.ones(len(modes.table)) if self.share is None else self.share
        facts = (self._kind[modes.table], modes.kernel, modes.load_factor, modes.ids, modes.bags, modes.head_rows,
                 modes.repeats, modes.spread, modes.row_spread, modes.lookups, self.kernels.unique, self.covered,
                 share)  # fmt: skip
        return np.unique(np.column_stack(facts), axis=0, return_inverse=True)[1].ravel()

    @cached_property
    def _kind(self) -> Ints:
        """A number for each table (T,), equal for tables with the same rows, access, data type and optimizer."""
        of, numbers = self.problem.workload.optimizer_of, dict[tuple[object, ...], int]()
        kinds = ((each.num_embeddings, each.access, each.data_type, of(each)) for each in self.problem.tables)
        return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.int64)

    @cached_property
    def _remembered(self) -> list[tuple[Ints, Floats]]:
        """Sorted keys of the pieces computed so far, and their results."""
        columns = len(self.weights.base) + self._owned
        return [(np.zeros(0, dtype=np.int64), np.zeros((0, columns)))]

    def formula_seconds(self, modes: Ints, widths: Ints) -> Floats:
        """Seconds (N,) of pieces that are left to formulas."""
        return self.terms(modes, widths)[:, [OTHER_FORWARD, OTHER_BACKWARD]].sum(axis=1)

    def _formula(self, modes: Ints, widths: Ints, analytic: Floats) -> Floats:
        """Seconds of formulas (N, 2) for pieces, forward and backward. analytic: its terms."""
        other = np.maximum(analytic[:, [1, 3]], analytic[:, [2, 4]])
        if self.formulas is not None:
            left = np.flatnonzero(self._rest(modes) > 0)
            terms = self.formulas.terms(modes[left], widths[left])
            other[left] = np.maximum(terms[:, [1, 3]], terms[:, [2, 4]])
        other *= self.card.analytic_factor if self.factors is None else self.factors[modes]
        for kind in set(self._sequences.tolist()):
            fitted = self.card.sequences.get(kind)
            if fitted:
                some = np.flatnonzero((self._sequences == kind)[modes])
                other[some] = self._sequence_seconds(modes[some], widths[some], fitted)
        return other

    @cached_property
    def _sequences(self) -> Any:
        """Optimizer and data type of each mode (M,) that is a fused sequence kernel on the device; '' for others."""
        of = self.problem.workload.optimizer_of
        types = np.array(
            ["" if table.pooled else sequences_of(of(table), table.data_type) for table in self.problem.tables]
        )
        return np.where(self.problem.modes.kernel == FUSED.number, types[self.problem.modes.table], "")

    def _put_in_order(self, modes: Ints, widths: Ints) -> Floats:
        """Seconds (N, 2) in which a rank restores the order of its ids in sequence rows that arrive by row blocks.

        Deduplicated ids are in the order of rows already.
        """
        found, table = self.problem.modes, self.problem.modes.table[modes]
        split = np.isin(found.type[modes], SPLIT_ROWS) & ~self.problem.demand.pooled[table]
        numbers = found.ids[modes] * found.spread[modes] / found.coverage[modes] * widths
        return np.where(split & (found.repeats[modes] == 1), numbers, 0.0)[:, None] * IN_ORDER_S

    def _sequence_seconds(self, modes: Ints, widths: Ints, fitted: SequenceSeconds) -> Floats:
        """Seconds (N, 2) of pieces of sequence tables, by the card's fit to measurements."""
        found, demand = self.problem.modes, self.problem.demand
        unique = self.kernels.unique[modes]
        figures = sequence_figures(
            found.ids[modes], unique, widths.astype(np.float64),
            demand.element_bytes[found.table[modes]].astype(np.float64),
            np.where(found.repeats[modes] > 1, unique / found.head_rows[modes], 0.0),
        )  # fmt: skip
        ways = zip(figures, (fitted.forward, fitted.backward), strict=True)
        return np.stack([matmul(each, np.array(units)) for each, units in ways], axis=1)

    def _rest(self, modes: Ints) -> Floats:
        """The weight of formulas in the price of pieces (N,), from 0 to 1."""
        return (~self.covered[modes]).astype(np.float64) if self.share is None else 1 - self.share[modes]

    def _work(self, piece: PieceWork, modes: Ints, widths: Ints, analytic: Floats) -> Floats:
        """The figures of pieces (N, b or c) that the model uses. analytic: seconds of that cost model (N, 4)."""
        if not isinstance(self.weights.head, CorrectedHead):
            return work_of(piece)
        return corrected_work_of(piece, self.kernels, modes, widths, analytic, self._missing[modes])

    @cached_property
    def _missing(self) -> Floats:
        """The shares of each mode's repeated reads that caches of several sizes miss (M, h)."""
        kernels, table = self.kernels, self.problem.modes.table
        return missing_shares(lambda rows: kernels.hot_share(table, rows), kernels.unique)

    def _piece(self, modes: Ints, widths: Ints) -> PieceWork:
        found, table = self.problem.modes, self.problem.modes.table[modes]
        return PieceWork(
            ids=found.ids[modes], bags=found.bags[modes], unique=self.kernels.unique[modes],
            rows=found.head_rows[modes].astype(np.float64), width=widths.astype(np.float64),
            optimizer=self._optimizer[table], data_type=self._data_type[table],
        )  # fmt: skip

    @cached_property
    def _optimizer(self) -> Ints:
        workload = self.problem.workload
        return np.array([OPTIMIZERS.index(workload.optimizer_of(table)) for table in self.problem.tables])

    @cached_property
    def _data_type(self) -> Ints:
        number = {name: place for place, name in enumerate(DATA_TYPES)}  # other data types are not covered
        return np.array([number.get(table.data_type, 0) for table in self.problem.tables], dtype=np.int64)

    # --- the head -----------------------------------------------------------------------------------------------

    def head(self, sums: Floats) -> Floats:
        """Seconds of launch and head, forward and backward, and of collectives (..., 4)."""
        flat = self._flat(sums)
        held = flat[PIECES] > 0
        parts = np.empty((4, flat.shape[1]))
        parts[:2] = self.weights.head.seconds(flat[: self._seen].T)
        for part, launch in enumerate((self.weights.head.launch[0], self.weights.head.launch[1] + self.lift)):
            parts[part] += flat[OTHER_FORWARD + part]
            parts[part] += held * launch
        parts[2], parts[3] = flat[FORWARD_COMM], flat[BACKWARD_COMM]
        return parts.T.reshape(*sums.shape[:-1], 4)

    def loads(self, sums: Floats) -> Floats:
        """Seconds until a rank is ready, and of its forward collectives (2, ...)."""
        return ready_and_forward(self.compute(sums), sums[..., BACKWARD_COMM], sums[..., FORWARD_COMM])

    def compute(self, sums: Floats) -> Floats:
        """Seconds of launch and head, forward and backward together (...)."""
        flat = self._flat(sums)
        seconds = self.weights.head.total(flat[: self._seen].T)
        seconds += flat[OTHER_FORWARD] + flat[OTHER_BACKWARD]
        seconds += (flat[PIECES] > 0) * (float(self.weights.head.launch.sum()) + self.lift)
        return seconds.reshape(sums.shape[:-1])

    @staticmethod
    def _flat(sums: Floats) -> Floats:
        """Summed terms (..., k) with the term axis first (k, N): a view if searches store them so, else a copy."""
        return sums.transpose(-1, *range(sums.ndim - 1)).reshape(sums.shape[-1], -1)

    @property
    def group_loads(self) -> GroupLoads | None:
        """The head and the other terms in the form of compiled searches; None if the head is a product."""
        maxima, head = self.weights.head.maxima(), self.weights.head
        if maxima is None:
            return None
        first = [
            replace(
                each,
                slopes=self._beside(each.slopes),
                extra=None if each.extra is None else self._beside(each.extra),
            )
            for each in maxima
        ]
        around = _plane(np.zeros(self._seen + self._owned), 0.0).slopes
        last = [Maximum(phase, slopes[None], np.zeros(1)) for phase, slopes in enumerate(around)]
        shares = head.shares if isinstance(head, CorrectedHead) else None
        return GroupLoads(np.array([float(head.launch.sum()) + self.lift, 0.0]), (*first, *last), shares)

    def _beside(self, slopes: Floats) -> Floats:
        """Slopes (..., k) of learned terms, extended by zeros for all other terms."""
        return np.pad(slopes, (*[(0, 0)] * (slopes.ndim - 1), (0, self._owned + AROUND)))

    @property
    def _seen(self) -> int:
        """The number of terms that the head uses: the 1, and the learned terms."""
        return 1 + len(self.weights.base)

    # --- the bound ----------------------------------------------------------------------------------------------

    @property
    def _owned(self) -> int:
        """The number of columns for the extra that a piece bears alone, which only bounds use."""
        return self.weights.head.owned if isinstance(self.weights.head, CorrectedHead) else 0

    def beside(self, terms: Floats, held: Floats) -> Floats:
        """Terms (N, k) of pieces whose group also holds others with summed terms (k,): their own extra rises."""
        return self._raised(terms, terms + held)

    def at_least(self, terms: Floats, least: Floats) -> Floats:
        """Terms (N, k) of pieces whose group has at least these summed terms (k,): their own extra rises."""
        return self._raised(terms, np.maximum(terms, least))

    def _raised(self, terms: Floats, sums: Floats) -> Floats:
        """Terms (N, k) of pieces in groups with at least these summed terms (N, k)."""
        found, head = terms.copy(), self.weights.head
        if isinstance(head, CorrectedHead) and self._owned:
            learned = np.flatnonzero(terms[:, 1 : self._seen].any(axis=1))
            own = head.own(terms[learned, : self._seen], sums[learned, : self._seen])
            found[learned, self._seen : self._seen + self._owned] = own
        return found

    def share_steps(self, steps: tuple[int, ...]) -> list[tuple[int, Floats]]:
        """(term, its sums between which shares rise by equal parts) of the head; empty if shares may fall."""
        head = self.weights.head
        return head.share_steps(steps) if isinstance(head, CorrectedHead) and self._owned else []

    @property
    def planes(self) -> tuple[Plane, ...]:
        """Planes of the sets of hinges whose offsets do not exceed launch and lift; empty if the head is not convex."""
        return tuple(plane for plane in self._planes if plane.opening >= 0)

    @property
    def bends(self) -> tuple[Plane, ...]:
        """Planes of all other sets of hinges; a lifted model has none."""
        return () if self.lift else tuple(plane for plane in self._planes if plane.opening < 0)

    @cached_property
    def _planes(self) -> tuple[Plane, ...]:
        head = self.weights.head
        if not isinstance(head, ConvexHead | CorrectedHead):
            return ()
        return tuple(_plane(slopes, opening + self.lift) for slopes, opening in head.planes())

    @property
    def lifted(self) -> tuple[tuple[float, Evaluator], ...]:
        """The model with three lifts, which turn the cheapest third, two thirds, and all of the hinges into planes."""
        head = self.weights.head
        lifts = _lifts(head) if isinstance(head, ConvexHead) else []
        return tuple((lift, replace(self, lift=lift)) for lift in lifts)


def _plane(slopes: Floats, opening: float) -> Plane:
    """A plane of the head plus the terms that are not learned, which count in full."""
    both = np.concatenate([slopes, [1.0, 1.0, 0.0, 1.0]])
    comm = np.zeros(len(both))
    comm[FORWARD_COMM] = 1.0
    return Plane(np.stack([both, comm]), opening)


def _lifts(head: ConvexHead) -> list[float]:
    """Seconds by which the offsets of the cheapest third, two thirds, and all of the hinges exceed the launch."""
    offsets = np.sort(head.offsets.ravel())
    steps = {len(offsets) * part // 3 for part in (1, 2, 3)} - {0}
    lifts = (float(offsets[:step].sum() - head.launch.sum()) for step in sorted(steps))
    return [lift for lift in lifts if lift > 0]
