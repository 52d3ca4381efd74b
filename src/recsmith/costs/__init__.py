"""Cost models, which predict the seconds of a step, and the pricing of placed pieces by them."""

from recsmith.costs.analytic.model import AnalyticCostModel
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
from recsmith.costs.protocol import CostModel, Evaluator, Plane
from recsmith.costs.step_rules import LARGEST_SUM, READY_THEN_FORWARD, StepRule
from recsmith.costs.torchrec import TorchRecCostModel
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

COST_MODELS: dict[str, CostModel] = {model.name: model for model in (AnalyticCostModel(), TorchRecCostModel())}
DEFAULT_COST_MODEL = "analytic"


def cost_model(name: str | None = None) -> CostModel:
    """The cost model of a name, or of `neural:<name or file>`; the default one for None.

    Raises:
        UsageError: there is no model of that name.
    """
    name = name or DEFAULT_COST_MODEL
    if name.startswith(PREFIX):
        return NeuralCostModel(name)
    if name not in COST_MODELS:
        raise UsageError(f"no cost model is called '{name}'{did_you_mean(name, list(COST_MODELS))}")
    return COST_MODELS[name]


__all__ = [
    "COST_MODELS",
    "DEFAULT_COST_MODEL",
    "LARGEST_SUM",
    "READY_THEN_FORWARD",
    "CostModel",
    "Evaluator",
    "Plane",
    "StepRule",
    "cost_model",
    "device_parts",
    "device_sums",
    "phase_seconds",
    "piece_seconds",
    "price",
    "step_of",
    "step_seconds",
]
