"""Cost model `best`: kernels as they were measured on the cluster's device where that is known, formulas elsewhere.

The learned model that ships for the device prices what lies where it was trained, and cost model `analytic`, times the
factor that brings it to measurements of that device, the rest. Between the two a piece counts with a share, which falls
from 1 to 0 as its table leaves the trained cells (costs/neural/inputs.py): its learned terms times the share, and the
formula's seconds times what is left. So the price is continuous in the sizes of a table, terms add up as those of any
learned model do, and its bounds hold. Without a model of the device, or of the optimizer, it is `analytic`.
"""

import warnings
from functools import cache

from recsmith.costs.analytic import AnalyticCostModel
from recsmith.costs.neural.files import shipped_models
from recsmith.costs.neural.model import PREFIX, SIMULATED, NeuralCostModel
from recsmith.costs.protocol import Evaluator
from recsmith.problems import Problem


class BestCostModel:
    """Learned where the cluster's device was measured with such tables, formulas elsewhere."""

    name = "best"

    def compile(self, problem: Problem) -> Evaluator:
        """The model for a problem: a learned one, mixed with formulas, or formulas alone."""
        learned = learned_for(problem)
        return learned.mixed(problem) if learned else AnalyticCostModel().compile(problem)


def learned_for(problem: Problem) -> NeuralCostModel | None:
    """The learned model that ships for a problem's device and knows its optimizer; None where there is none."""
    device, optimizer = problem.cluster.device, problem.workload.optimizer
    found = (each for each in _measured() if each.is_of(device) and optimizer in each.card.optimizers)
    return next(found, None)


@cache
def _measured() -> tuple[NeuralCostModel, ...]:
    """The models that ship of devices which were measured; those of formulas are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models of formulas
        models = [NeuralCostModel(f"{PREFIX}{name}") for name in shipped_models()]
    return tuple(each for each in models if not each.card.hardware.startswith(SIMULATED))
