"""Cost model `neural:<name or file>`: kernels as a network learned them from measurements, after NeuroShard.

A small network turns the work of a piece (ids, bags, different rows, rows, columns, optimizer, data type) into a few
terms; a head turns their sums over a fusion group on a rank into seconds, forward and backward. Pieces of a row-wise
table are kernels with their share of ids and rows. Collectives and the phases of the step are those of `analytic`.

Kernels that no measurement covers keep the seconds of `analytic` times the card's `analytic_factor`: tables in host
memory and their caches, dense data_parallel copies, sequences and weighted features.

Source: Zha et al., Pre-train and Search (MLSys 2023), 3.2: a network of tables, their sum, a network of the sum. Ours
differs in that terms are work times a bounded factor, in the convex head, and in what it is told (docs/learning.md).

Legend: M modes.
"""

import warnings

from recsmith._types import Bools
from recsmith.clusters import Device
from recsmith.costs.analytic.model import AnalyticCostModel
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.files import Card, find_model, load_model
from recsmith.costs.neural.ranges import extrapolations
from recsmith.errors import UsageError
from recsmith.problems import Problem
from recsmith.sharding import FUSED
from recsmith.workloads import Workload

PREFIX = "neural:"
SIMULATED = "simulated:"  # the prefix of hardware whose samples come from a formula


# --- the model --------------------------------------------------------------------------------------------------


class NeuralCostModel:
    """A learned model by the name or the file of its weights. A warning says so where no device was measured for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.weights, self.card = load_model(find_model(name.removeprefix(PREFIX)))
        if self.card.hardware.startswith(SIMULATED):
            warnings.warn(
                f"cost model {name} was trained on {self.card.hardware}, which is a formula: no device was measured",
                stacklevel=3,
            )

    def knows(self, workload: Workload) -> bool:
        """Whether kernels with the optimizer and the data types of a workload were measured for this model."""
        return self._unknown(workload) is None

    def compile(self, problem: Problem) -> NeuralEvaluator:
        """The model for a problem; a warning says where it extrapolates.

        Raises:
            UsageError: the model was measured on another device, optimizer or data type.
        """
        self._check(problem)
        covered = _covered(problem)
        analytic = AnalyticCostModel().compile(problem)
        beyond = extrapolations(problem, covered, self.card, analytic.kernels.unique, self.weights.cells)
        if beyond:
            words = ", ".join(f"{name} {factor:.3g} times" for name, factor in beyond.items())
            warnings.warn(f"cost model {self.name} extrapolates beyond what it was trained on: {words}", stacklevel=2)
        return NeuralEvaluator(problem, self.weights, self.card, analytic, covered, beyond)

    def _check(self, problem: Problem) -> None:
        device, card = problem.cluster.device, self.card
        if not is_device(card.hardware, card.device, device):
            start = self.name.removeprefix(PREFIX)
            raise UsageError(
                f"cost model {self.name} was measured on {card.hardware} ({card.device}), the cluster's device is "
                f"'{device.name}'; plan by analytic, or adapt the model in five minutes: recsmith measure compute "
                f"--hardware {_hardware_of(card, device)} -o here && recsmith learn cost --data here "
                f"-o here.safetensors --start {start} (docs/learning.md)"
            )
        unknown = self._unknown(problem.workload)
        if unknown:
            raise UsageError(
                f"cost model {self.name} was trained on {unknown}; take another cost model, such as analytic"
            )

    def _unknown(self, workload: Workload) -> str | None:
        """What of a workload no kernel was measured with: 'optimizers sgd, adagrad, not adam'."""
        card, types = self.card, sorted({table.data_type for table in workload.tables})
        for what, words, known in (
            ("optimizer", [workload.optimizer], card.optimizers),
            ("data type", types, card.data_types),
        ):
            odd = next((word for word in words if word not in known), None)
            if odd is not None:
                return f"{what}s {', '.join(known)}, not {odd}"
        return None


def _hardware_of(card: Card, device: Device) -> str:
    """What a model of a device is measured on, of the kind of a card's, and for how long: formulas answer at once."""
    if device.kind == "cpu":
        return "cpu --budget 3m"
    return f"simulated:{device.name} --samples 1000" if card.hardware.startswith(SIMULATED) else (
        f"cuda:{device.name} --budget 3m"
    )  # fmt: skip


def is_device(hardware: str, measured: str, device: Device) -> bool:
    """Whether a hardware measured as `measured` is a cluster's device: cpu by its kind, GPUs by their names."""
    if hardware == "cpu":
        return device.kind == "cpu"
    if hardware == "cuda":
        return device.is_called(measured.partition(",")[0])  # its figures follow
    return device.name == measured.removesuffix(", simulated")


def _covered(problem: Problem) -> Bools:
    """Modes (M,) of fused kernels on the device, pooled and without weights: what measurements have."""
    table = problem.modes.table
    plain = problem.demand.pooled[table] & ~problem.demand.weighted[table]
    return plain & (problem.modes.kernel == FUSED.number)
