"""What plans cost: cost models, bounds, and pricing of plans."""

from recsmith.costs._base import (
    CostModel,
    Evaluator,
    Outlook,
    Plane,
    Terms,
    device_sums,
    phase_seconds,
    piece_seconds,
    price,
    step_seconds,
)
from recsmith.costs.analytic import AnalyticCostModel
from recsmith.costs.neural import PREFIX, NeuralCostModel
from recsmith.costs.torchrec import TorchRecCostModel
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

COST_MODELS: dict[str, CostModel] = {model.name: model for model in (AnalyticCostModel(), TorchRecCostModel())}
DEFAULT_COST_MODEL = "analytic"


def cost_model(name: str | None = None) -> CostModel:
    """The cost model of a name, or of `neural:<name or file>`; the default one for None."""
    name = name or DEFAULT_COST_MODEL
    if name.startswith(PREFIX):
        return NeuralCostModel(name)
    if name not in COST_MODELS:
        raise UsageError(f"no cost model is called '{name}'{did_you_mean(name, list(COST_MODELS))}")
    return COST_MODELS[name]


__all__ = [
    "COST_MODELS",
    "DEFAULT_COST_MODEL",
    "CostModel",
    "Evaluator",
    "Outlook",
    "Plane",
    "Terms",
    "cost_model",
    "device_sums",
    "phase_seconds",
    "piece_seconds",
    "price",
    "step_seconds",
]
