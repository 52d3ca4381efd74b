"""Cost model `neural:<name or file>`: kernel times that a network learned from measurements, after NeuroShard.

A small network turns the work of a piece (ids, bags, different rows, rows, columns, optimizer, data type) into a few
terms; a head turns their sums over a fusion group on a rank into seconds, forward and backward. Pieces of a row-wise
table are kernels with their share of ids and rows. Collectives and the phases of the step are those of `analytic`.

Kernels without measurements have the seconds of `analytic` times the card's `analytic_factor`: tables in host memory
and their caches, dense data_parallel copies, sequences and weighted features. For data_parallel copies and sequences, a
card may have seconds fitted to separate measurements.

Source: Zha et al., Pre-train and Search (MLSys 2023), 3.2: a network of tables, their sum, a network of the sum. Ours
differs in that terms are work times a bounded factor, in the convex head, and in its inputs (docs/learning.md).

Legend: M modes, T tables, C cells.
"""

import warnings

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.clusters import Device
from recsmith.costs.analytic import AnalyticCostModel, AnalyticEvaluator
from recsmith.costs.embedding_kernels import plain_modes
from recsmith.costs.fitted import FittedCostModel
from recsmith.costs.fitted_kernels import FittedKernels
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.files import Card, find_model, load_model
from recsmith.costs.neural.inputs import distances, figures_of
from recsmith.costs.weight_files import PREFIX
from recsmith.elementary import log2
from recsmith.errors import UsageError
from recsmith.problems import Problem
from recsmith.sharding import CACHED, DATA_PARALLEL, UVM
from recsmith.workloads import Workload
from recsmith.workloads.optimizers import OPTIMIZER_NAMES

SIMULATED = "simulated:"  # the prefix of hardware whose samples come from a formula
CLOSE = 1.0 + 1e-9  # largest factor with which an input counts as within the range
FAR = 16.0  # factor from the edge of a trained cell at which shares reach 0: two cells. Trade-off; not tuned further
LEAST_S = 1e-15  # replaces smaller seconds of a formula as a divisor
LEAST = 1e-9  # replaces a maximum of 0 as a divisor


class NeuralCostModel:
    """A learned model, by the name or the file of its weights; warns if no device was measured for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.weights, self.card = load_model(find_model(name.removeprefix(PREFIX)))
        if self.card.hardware.startswith(SIMULATED):
            warnings.warn(
                f"cost model {name} was trained on {self.card.hardware}, which is a formula: no device was measured",
                stacklevel=3,
            )

    def knows(self, workload: Workload) -> bool:
        """Whether kernels with the optimizers and data types of a workload were measured for this model."""
        return self._unknown(workload) is None

    def compile(self, problem: Problem) -> NeuralEvaluator:
        """The model for a problem; warns if it extrapolates.

        Raises:
            UsageError: the model was measured on another device, optimizer or data type.
        """
        self._check(problem)
        covered = plain_modes(problem)
        analytic = AnalyticCostModel().compile(problem)
        beyond = extrapolations(problem, covered, self.card, analytic.kernels.unique, self.weights.cells)
        if beyond:
            inputs = ", ".join(f"{name} {factor:.3g} times" for name, factor in beyond.items())
            warnings.warn(f"cost model {self.name} extrapolates beyond what it was trained on: {inputs}", stacklevel=2)
        return NeuralEvaluator(problem, self.weights, self.card, analytic, covered, beyond)

    def mixed(self, problem: Problem) -> NeuralEvaluator:
        """The learned model within its training range, and cost model `fitted` outside it (costs/best.py).

        The model's device and optimizers must be those of the problem.
        """
        names = [table.data_type for table in problem.tables]
        known = np.array([name in self.card.data_types for name in names], dtype=bool)
        covered = plain_modes(problem) & known[problem.modes.table]
        analytic = AnalyticCostModel().compile(problem)
        share, unique = np.zeros(len(covered)), analytic.kernels.unique
        if covered.any():
            share[covered] = _shares(_distances(problem, covered, unique, self.weights.cells))
        formulas = FittedCostModel.fitted(analytic)
        factors = _factors(problem, self.card, formulas)
        return NeuralEvaluator(
            problem, self.weights, self.card, analytic, covered, {}, share=share, factors=factors, formulas=formulas
        )

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
        """The property of a workload that was not measured: 'optimizers sgd, adagrad, not adam'; None if all were."""
        card, types = self.card, sorted({table.data_type for table in workload.tables})
        for what, names, known in (
            ("optimizer", list(workload.optimizers), card.optimizers),
            ("data type", types, card.data_types),
        ):
            odd = next((name for name in names if name not in known), None)
            if odd is not None:
                return f"{what}s {', '.join(known)}, not {odd}"
        return None


def _hardware_of(card: Card, device: Device) -> str:
    """The `--hardware` to measure for a device, of the same kind as a card's, with a budget; formulas need none."""
    if device.kind == "cpu":
        return "cpu --budget 3m"
    return f"simulated:{device.name} --samples 1000" if card.hardware.startswith(SIMULATED) else (
        f"cuda:{device.name} --budget 3m"
    )  # fmt: skip


def is_device(hardware: str, measured: str, device: Device) -> bool:
    """Whether hardware measured as `measured` is a cluster's device: cpu by its kind, GPUs by their names."""
    if hardware == "cpu":
        return device.kind == "cpu"
    if hardware == "cuda":
        return device.is_called(measured.partition(",")[0])  # the device's figures follow its name
    return device.name == measured.removesuffix(", simulated")


def extrapolations(
    problem: Problem, covered: Bools, card: Card, unique: Floats, cells: Floats | None
) -> dict[str, float]:
    """Factors by which inputs exceed the largest values in training, largest first; inputs in range are left out.

    Inputs of tables are those of the largest piece that any covered mode may put on a rank; inputs of devices are the
    mean of ranks, as if all of it were one fusion group. unique: different rows of each mode (M,). cells (C, 4): cells
    of trained tables; the table that is farthest from them is listed by name.
    """
    modes, world = problem.modes, problem.cluster.world_size
    inputs = {
        "device ids": float(problem.demand.ids.sum()),
        "device outputs": float((problem.demand.bags * problem.demand.dim).sum()),
        "device tables": len(problem.tables) / world,
    }
    if covered.any():
        table = modes.table[covered]
        inputs |= {
            "ids": float(modes.ids[covered].max()),
            "bags": float(modes.bags[covered].max()),
            "rows": float(modes.head_rows[covered].max()),
            "columns": float(problem.demand.dim[table].max()),
        }
    known = {name: value for name, value in inputs.items() if name in card.ranges}
    factors = {name: value / max(card.ranges[name].most, LEAST) for name, value in known.items()}
    if cells is not None and len(cells) and covered.any():
        factors |= _farthest(problem, covered, unique, cells)
    beyond = [(name, factor) for name, factor in factors.items() if factor > CLOSE]
    return dict(sorted(beyond, key=lambda pair: -pair[1]))


def _farthest(problem: Problem, covered: Bools, unique: Floats, cells: Floats) -> dict[str, float]:
    """The table farthest from all cells if all its columns are on one rank, and its distance."""
    far = _distances(problem, covered, unique, cells)
    worst = int(far.argmax())
    table = int(problem.modes.table[covered][worst])
    return {f"table '{problem.tables[table].name}'": float(far[worst])}


def _distances(problem: Problem, covered: Bools, unique: Floats, cells: Floats | None) -> Floats:
    """Distances of tables of covered modes from all cells, with all columns on one rank; 1 inside, or without cells."""
    modes, which = problem.modes, np.flatnonzero(covered)
    if cells is None or not len(cells):
        return np.ones(len(which))
    return distances(
        figures_of(
            modes.head_rows[which].astype(np.float64), modes.ids[which], modes.bags[which],
            problem.demand.dim[modes.table[which]].astype(np.float64), unique[which],
        ),
        cells,
    )  # fmt: skip


def _factors(problem: Problem, card: Card, formulas: AnalyticEvaluator) -> Floats:
    """Factors on the seconds of formulas (M, 2), forward and backward.

    Fitted formulas already match measurements. The card's factor is for other kernels on device memory: links and disks
    are not slower by it. Kernels of data_parallel tables have the seconds that were measured with the optimizer, if
    there are any.
    """
    modes, demand = problem.modes, problem.demand
    factors = np.full((len(modes.table), 2), card.analytic_factor)
    factors[np.isin(modes.kernel, (UVM.number, *CACHED))] = 1.0
    if isinstance(formulas.kernels, FittedKernels):
        factors[formulas.kernels.plain] = 1.0
    copied, optimizers = modes.type == DATA_PARALLEL, demand.optimizer[modes.table]
    for name in problem.workload.optimizers:
        copies, fitted = np.flatnonzero(copied & (optimizers == OPTIMIZER_NAMES.index(name))), card.copies.get(name)
        if not fitted or not len(copies):
            continue
        table = modes.table[copies]
        terms = formulas.terms(copies, demand.dim[table])
        seconds = fitted.table_s + fitted.byte_s * demand.rows[table] * demand.dim[table] * demand.element_bytes[table]
        factors[copies, 0] = 1.0
        factors[copies, 1] = seconds / np.maximum(np.maximum(terms[:, 3], terms[:, 4]), LEAST_S)
    return factors


def _shares(far: Floats) -> Floats:
    """Weights of learned prices: 1 in a trained cell and 0 at FAR times its figures or more, linear in logarithms."""
    return np.clip(1 - log2(far) / np.log2(FAR), 0.0, 1.0)
