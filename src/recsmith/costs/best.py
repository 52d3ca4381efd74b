"""Cost model `best`: kernels as they were measured on the cluster's device where that is known, formulas elsewhere.

The learned model that ships for the device prices what lies where it was trained, and formulas the rest: on GPUs those
that were fitted to one (cost model `fitted`), else those of `analytic`, times the factor that brings them to
measurements of that device. Between the two a piece counts with a share, which falls from 1 to 0 as its table leaves
the trained cells (costs/neural/inputs.py): its learned terms times the share, and the formula's seconds times what is
left. So the price is continuous in the sizes of a table, terms add up as those of any learned model do, and its bounds
hold. Without a model of the device, or of the optimizer, it is `fitted` on GPUs, and `analytic` elsewhere.
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
    """Learned where the cluster's device was measured with such tables, formulas elsewhere."""

    name = "best"

    def compile(self, problem: Problem) -> Evaluator:
        """The model for a problem: a learned one, mixed with formulas, or formulas alone."""
        learned = learned_for(problem)
        return learned.mixed(problem) if learned else FittedCostModel().compile(problem)


def learned_for(problem: Problem) -> NeuralCostModel | None:
    """The learned model that ships for a problem's device and knows its optimizer; None where there is none."""
    name = kernels_of(problem.cluster.device, *problem.workload.optimizers)
    return _learned(name) if name.startswith(PREFIX) else None


def kernels_of(device: Device, *optimizers: str) -> str:
    """The cost model that prices kernels of a device under some optimizers: the learned one of it, or formulas.

    Models of formulas, which stand for no device that was measured, are left out.
    """
    for name, card in shipped_cards().items():
        measured = not card.hardware.startswith(SIMULATED) and is_device(card.hardware, card.device, device)
        if measured and set(optimizers) <= set(card.optimizers):
            return f"{PREFIX}{name}"
    return FittedCostModel.name if device.kind == "cuda" else AnalyticCostModel.name


@cache
def _learned(name: str) -> NeuralCostModel:
    return NeuralCostModel(name)
