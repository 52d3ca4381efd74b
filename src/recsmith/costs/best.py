"""Cost model `best`: measured kernels if the cluster's device and the tables are known, and formulas otherwise.

The learned model shipped for the device prices pieces within its training range, and formulas the rest: on GPUs those
fitted to one GPU (cost model `fitted`), otherwise those of `analytic`, times the factor that matches them to
measurements of the device. In between, a piece has a share that falls from 1 to 0 as its table leaves the trained cells
(costs/neural/inputs.py): its learned terms count with the share, and the formula's seconds with the remainder. So the
price is continuous in the sizes of a table, terms add up as in any learned model, and its bounds hold. Without a model
of the device, or of the optimizer, it is `fitted` on GPUs, and `analytic` otherwise.
"""

from functools import cache

from recsmith.clusters import Device
from recsmith.costs.analytic import AnalyticCostModel
from recsmith.costs.fitted import FittedCostModel
from recsmith.costs.neural.files import shipped_cards
from recsmith.costs.neural.model import SIMULATED, NeuralCostModel, is_device
from recsmith.costs.protocol import Evaluator
from recsmith.costs.weight_files import PREFIX
from recsmith.problems import Problem


class BestCostModel:
    """A learned model if the device was measured with such tables, and formulas otherwise."""

    name = "best"

    def compile(self, problem: Problem) -> Evaluator:
        """The model for a problem: a learned one, mixed with formulas, or formulas alone."""
        learned = learned_for(problem)
        return learned.mixed(problem) if learned else FittedCostModel().compile(problem)


def learned_for(problem: Problem) -> NeuralCostModel | None:
    """The learned model shipped for a problem's device that knows its optimizers; None if there is none."""
    name = kernels_of(problem.cluster.device, *problem.workload.optimizers)
    return _learned(name) if name.startswith(PREFIX) else None


def kernels_of(device: Device, *optimizers: str) -> str:
    """The name of the cost model that prices kernels of a device under these optimizers: a learned one, or formulas.

    Models trained on formulas are left out, because no device was measured for them.
    """
    for name, card in shipped_cards().items():
        measured = not card.hardware.startswith(SIMULATED) and is_device(card.hardware, card.device, device)
        if measured and set(optimizers) <= set(card.optimizers):
            return f"{PREFIX}{name}"
    return FittedCostModel.name if device.kind == "cuda" else AnalyticCostModel.name


@cache
def _learned(name: str) -> NeuralCostModel:
    return NeuralCostModel(name)
