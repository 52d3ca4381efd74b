"""Cost models, which predict the seconds of a step, and the pricing of placed pieces by them.

A cost model of your own fulfils `CostModel` and gives an `Evaluator`; `AdditiveEvaluator` is the simplest one
(docs/extending.md).
"""

from recsmith.costs.pricing import (
    device_parts,
    device_sums,
    phase_seconds,
    piece_seconds,
    price,
    step_of,
    step_seconds,
)
from recsmith.costs.protocol import LARGEST_SUM, READY_THEN_FORWARD, CostModel, Evaluator, HasStandIn, Plane, StepRule
from recsmith.costs.registry import COST_MODELS, DEFAULT_COST_MODEL, cost_model
from recsmith.costs.torchrec import AdditiveEvaluator

__all__ = [
    "COST_MODELS",
    "DEFAULT_COST_MODEL",
    "LARGEST_SUM",
    "READY_THEN_FORWARD",
    "AdditiveEvaluator",
    "CostModel",
    "Evaluator",
    "HasStandIn",
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
