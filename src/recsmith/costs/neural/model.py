"""Cost model `neural:<name or file>`: kernels as a network learned them from measurements, after NeuroShard.

A small network turns the work of a piece (ids, bags, different rows, rows, columns, optimizer, data type) into a few
terms; a head turns their sums over a fusion group on a rank into seconds, forward and backward. Pieces of a row-wise
table are kernels with their share of ids and rows. Collectives and the phases of the step are those of `analytic`.

Kernels that no measurement covers keep the seconds of `analytic` times the card's `analytic_factor`: tables in host
memory and their caches, dense data_parallel copies, sequences and weighted features.

Source: Zha et al., Pre-train and Search (MLSys 2023), 3.2: a network of tables, their sum, a network of the sum. Ours
differs in that terms are work times a bounded factor, in the convex head, and in what it is told (docs/learning.md).

Legend: N pieces, M modes, G fusion groups, k = 1 + t + 4 terms: pieces, learned ones, seconds of uncovered kernels
forward and backward, and of collectives forward and backward.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.clusters import Device
from recsmith.costs.analytic.kernels import EmbeddingKernels
from recsmith.costs.analytic.model import BACKWARD_COMM as ANALYTIC_BACKWARD_COMM
from recsmith.costs.analytic.model import FORWARD_COMM as ANALYTIC_FORWARD_COMM
from recsmith.costs.analytic.model import AnalyticCostModel, AnalyticEvaluator
from recsmith.costs.neural.files import Card, Weights, find_model, load_model
from recsmith.costs.neural.heads import ConvexHead
from recsmith.costs.neural.inputs import DATA_TYPES, OPTIMIZERS, PieceWork, inputs_of, work_of
from recsmith.costs.neural.ranges import extrapolations
from recsmith.costs.protocol import Evaluator, Plane
from recsmith.errors import UsageError
from recsmith.problems import Problem
from recsmith.sharding import FUSED

PREFIX = "neural:"
SIMULATED = "simulated:"  # hardware whose samples are a formula's
AROUND = 4  # terms that are not learned, behind those that are
PIECES = 0
OTHER_FORWARD, OTHER_BACKWARD, FORWARD_COMM, BACKWARD_COMM = range(-AROUND, 0)
PIECE_BLOCK = 4096


@dataclass(frozen=True)
class NeuralEvaluator:
    """A learned model for one problem.

    covered (M,): modes whose kernels were measured. extrapolated: inputs beyond the trained range, by what factor.
    lift: seconds added to every group of a rank; 0 but while a bound is sought (see `lifted`).
    """

    problem: Problem
    weights: Weights
    card: Card
    analytic: AnalyticEvaluator
    covered: Bools
    extrapolated: dict[str, float]
    lift: float = 0.0
    additive: bool = False

    @property
    def kernels(self) -> EmbeddingKernels:
        """What pieces ask of a rank."""
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
        """Latencies (G, 4) of collectives."""
        return self.analytic.shared

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Ready, then the forward collectives."""
        return self.analytic.phases

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """A one, the learned terms, and seconds of other kernels and of collectives (N, k)."""
        learned = len(self.weights.base)
        terms = np.zeros((len(modes), 1 + learned + AROUND))
        terms[:, PIECES] = 1.0
        covered = self.covered[modes]
        known = np.flatnonzero(covered)
        for start in range(0, len(known), PIECE_BLOCK):
            some = known[start : start + PIECE_BLOCK]
            piece = self._piece(modes[some], widths[some])
            terms[some, 1 : 1 + learned] = self.weights.terms(work_of(piece), inputs_of(piece))
        analytic = self.analytic.terms(modes, widths)
        other = np.maximum(analytic[:, [1, 3]], analytic[:, [2, 4]]) * self.card.analytic_factor
        terms[:, [OTHER_FORWARD, OTHER_BACKWARD]] = np.where(covered[:, None], 0.0, other)
        terms[:, [FORWARD_COMM, BACKWARD_COMM]] = analytic[:, [ANALYTIC_FORWARD_COMM, ANALYTIC_BACKWARD_COMM]]
        return terms

    def _piece(self, modes: Ints, widths: Ints) -> PieceWork:
        found, table = self.problem.modes, self.problem.modes.table[modes]
        return PieceWork(
            ids=found.ids[modes], bags=found.bags[modes], unique=self.kernels.unique[modes],
            rows=found.head_rows[modes].astype(np.float64), width=widths.astype(np.float64),
            optimizer=np.full(len(modes), OPTIMIZERS.index(self.problem.workload.optimizer)),
            data_type=self._data_type[table],
        )  # fmt: skip

    @cached_property
    def _data_type(self) -> Ints:
        return np.array([DATA_TYPES.index(table.data_type) for table in self.problem.tables], dtype=np.int64)

    # --- the head -----------------------------------------------------------------------------------------------

    def head(self, sums: Floats) -> Floats:
        """Launch and head, forward and backward, and the collectives (..., 4)."""
        flat = self._flat(sums)
        held = flat[PIECES] > 0
        parts = np.empty((4, flat.shape[1]))
        parts[:2] = self.weights.head.seconds(flat[:-AROUND].T)
        for part, launch in enumerate((self.weights.head.launch[0], self.weights.head.launch[1] + self.lift)):
            parts[part] += flat[OTHER_FORWARD + part]
            parts[part] += held * launch
        parts[2], parts[3] = flat[FORWARD_COMM], flat[BACKWARD_COMM]
        return parts.T.reshape(*sums.shape[:-1], 4)

    def loads(self, sums: Floats) -> Floats:
        """Seconds until a rank is ready, and of its forward collectives (2, ...)."""
        loads = np.empty((2, *sums.shape[:-1]))
        np.add(self.compute(sums), sums[..., BACKWARD_COMM], out=loads[0])
        loads[1] = sums[..., FORWARD_COMM]
        return loads

    def compute(self, sums: Floats) -> Floats:
        """Launch and head, forward and backward together (...)."""
        flat = self._flat(sums)
        seconds = self.weights.head.total(flat[:-AROUND].T)
        seconds += flat[OTHER_FORWARD] + flat[OTHER_BACKWARD]
        seconds += (flat[PIECES] > 0) * (float(self.weights.head.launch.sum()) + self.lift)
        return seconds.reshape(sums.shape[:-1])

    @staticmethod
    def _flat(sums: Floats) -> Floats:
        """Term by term (k, N): of what searches keep so already, without a copy."""
        return sums.transpose(-1, *range(sums.ndim - 1)).reshape(sums.shape[-1], -1)

    # --- the bound ----------------------------------------------------------------------------------------------

    @property
    def planes(self) -> tuple[Plane, ...]:
        """Planes of the hinges that the launch, with the lift, pays for; none of a head that is not convex."""
        return self._planes

    @cached_property
    def _planes(self) -> tuple[Plane, ...]:
        head = self.weights.head
        if not isinstance(head, ConvexHead):
            return ()
        return tuple(_plane(slopes, opening + self.lift) for slopes, opening in head.planes()
                     if opening + self.lift >= 0)  # fmt: skip

    @property
    def lifted(self) -> tuple[tuple[float, Evaluator], ...]:
        """The model with lifts that pay for the cheapest third, two thirds, and all of the hinges."""
        head = self.weights.head
        lifts = _lifts(head) if isinstance(head, ConvexHead) else []
        return tuple((lift, replace(self, lift=lift)) for lift in lifts)


def _plane(slopes: Floats, opening: float) -> Plane:
    both = np.concatenate([slopes, [1.0, 1.0, 0.0, 1.0]])
    comm = np.zeros(len(both))
    comm[FORWARD_COMM] = 1.0
    return Plane(np.stack([both, comm]), opening)


def _lifts(head: ConvexHead) -> list[float]:
    """What pays for the cheapest third, two thirds, and all of the hinges."""
    offsets = np.sort(head.offsets.ravel())
    steps = {len(offsets) * part // 3 for part in (1, 2, 3)} - {0}
    lifts = (float(offsets[:step].sum() - head.launch.sum()) for step in sorted(steps))
    return [lift for lift in lifts if lift > 0]


# --- the model --------------------------------------------------------------------------------------------------


class NeuralCostModel:
    """A learned model by name or file (see the module). A warning says so where no device was measured for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.weights, self.card = load_model(find_model(name.removeprefix(PREFIX)))
        if self.card.hardware.startswith(SIMULATED):
            warnings.warn(
                f"cost model {name} was trained on {self.card.hardware}, which is a formula: no device was measured",
                stacklevel=3,
            )

    def compile(self, problem: Problem) -> NeuralEvaluator:
        """The model for a problem; a warning says where it extrapolates.

        Raises:
            UsageError: the model was measured on another device, optimizer or data type.
        """
        self._check(problem)
        covered = _covered(problem)
        beyond = extrapolations(problem, covered, self.card)
        if beyond:
            words = ", ".join(f"{name} {factor:.3g} times" for name, factor in beyond.items())
            warnings.warn(f"cost model {self.name} extrapolates beyond what it was trained on: {words}", stacklevel=2)
        return NeuralEvaluator(problem, self.weights, self.card, AnalyticCostModel().compile(problem), covered, beyond)

    def _check(self, problem: Problem) -> None:
        device, card = problem.cluster.device, self.card
        if not is_device(card.hardware, card.device, device):
            raise UsageError(
                f"cost model {self.name} was measured on {card.hardware} ({card.device}), the cluster's device is "
                f"'{device.name}'; plan for that device, or measure yours and train (docs/learning.md)"
            )
        types = sorted({table.data_type for table in problem.tables} - set(card.data_types))
        wanted = {"optimizer": [problem.workload.optimizer], "data type": types}
        for what, known in (("optimizer", card.optimizers), ("data type", card.data_types)):
            odd = next((word for word in wanted[what] if word not in known), None)
            if odd is not None:
                raise UsageError(
                    f"cost model {self.name} was trained on {what}s {', '.join(known)}, not {odd}; take another cost "
                    "model, such as analytic"
                )


def is_device(hardware: str, measured: str, device: Device) -> bool:
    """Whether a hardware measured as `measured` is a cluster's device: cpu by its kind, GPUs by their names."""
    if hardware == "cpu":
        return device.kind == "cpu"
    if hardware == "cuda":
        return device.is_called(measured.partition(",")[0])  # behind it stand its figures
    return device.name == measured.removesuffix(", simulated")


def _covered(problem: Problem) -> Bools:
    """Modes (M,) of fused kernels on the device, pooled and without weights: what measurements have."""
    table = problem.modes.table
    plain = problem.demand.pooled[table] & ~problem.demand.weighted[table]
    return plain & (problem.modes.kernel == FUSED.number)
