"""Cost models, which predict the seconds of a step, and the pricing of placed pieces by them.

A cost model of your own fulfils `CostModel` and gives an `Evaluator`; `AdditiveEvaluator` is the simplest one
(docs/extending.md).
"""

from recsmith import _plugins
from recsmith.costs.analytic import AnalyticCostModel
from recsmith.costs.best import BestCostModel, kernels_of
from recsmith.costs.fitted import FittedCostModel
from recsmith.costs.neural.files import shipped_models
from recsmith.costs.neural.model import PREFIX, NeuralCostModel
from recsmith.costs.pricing import (
    device_parts,
    device_sums,
    phase_seconds,
    piece_seconds,
    price,
    step_of,
    step_seconds,
)
from recsmith.costs.protocol import LARGEST_SUM, READY_THEN_FORWARD, CostModel, Evaluator, Plane, StepRule
from recsmith.costs.torchrec import AdditiveEvaluator, TorchRecCostModel

__all__ = [
    "BEST", "COST_MODELS", "DEFAULT_COST_MODEL", "LARGEST_SUM", "READY_THEN_FORWARD", "AdditiveEvaluator", "CostModel",
    "Evaluator", "Plane", "StepRule", "cost_model", "device_parts", "device_sums", "kernels_of", "phase_seconds",
    "piece_seconds", "price", "step_of", "step_seconds",
]  # fmt: skip

COST_MODELS: dict[str, CostModel] = {
    model.name: model for model in (AnalyticCostModel(), TorchRecCostModel(), FittedCostModel())
}
BEST = BestCostModel()
DEFAULT_COST_MODEL = BEST.name


def cost_model(model: str | CostModel | None = None) -> CostModel:
    """The cost model of a name, or of `neural:<name or file>`; the default one for None; an object of yours as it is.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no cost model.
    """
    if model is None or model == "" or model == BEST.name:
        return BEST
    if isinstance(model, str) and model.startswith(PREFIX):
        return NeuralCostModel(model)
    learned = [BEST.name, *(f"{PREFIX}{name}" for name in shipped_models())]
    return _plugins.find_named(model, COST_MODELS, _plugins.COST_MODELS, CostModel, "cost model", "compile", learned)
