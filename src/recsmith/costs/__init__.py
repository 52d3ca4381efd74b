"""Cost models, which predict the seconds of a step, and the pricing of placed pieces with them.

A cost model of your own implements `CostModel` and returns an `Evaluator`; `AdditiveEvaluator` is the simplest one
(docs/extending.md).
"""

from recsmith import _plugins
from recsmith._components import load
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
from recsmith.costs.torchrec import AdditiveEvaluator
from recsmith.costs.weight_files import PREFIX, shipped_models

__all__ = [
    "COST_MODELS", "DEFAULT_COST_MODEL", "LARGEST_SUM", "READY_THEN_FORWARD", "AdditiveEvaluator", "CostModel",
    "Evaluator", "Plane", "StepRule", "cost_model", "device_parts", "device_sums", "phase_seconds", "piece_seconds",
    "price", "step_of", "step_seconds",
]  # fmt: skip

COST_MODELS = _plugins.OwnNames[CostModel](
    "compile",
    {
        "best": "recsmith.costs.best:BestCostModel",
        "analytic": "recsmith.costs.analytic:AnalyticCostModel",
        "torchrec": "recsmith.costs.torchrec:TorchRecCostModel",
        "fitted": "recsmith.costs.fitted:FittedCostModel",
    },
)
LEARNED = "recsmith.costs.neural.model:NeuralCostModel"  # for every name that begins with PREFIX
DEFAULT_COST_MODEL = "best"


def cost_model(model: str | CostModel | None = None) -> CostModel:
    """The cost model of a name or of `neural:<name or file>`, the default model for None, or the given object itself.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no cost model.
    """
    if isinstance(model, str) and model.startswith(PREFIX):
        return load(LEARNED)(model)
    learned = [f"{PREFIX}{name}" for name in shipped_models()]
    wanted = DEFAULT_COST_MODEL if model is None or model == "" else model
    return _plugins.find_named(wanted, COST_MODELS, _plugins.COST_MODELS, CostModel, "cost model", "compile", learned)
