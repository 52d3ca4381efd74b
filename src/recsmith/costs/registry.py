"""The cost models that can be asked for by name: RecSmith's own, and the entry points of other packages."""

from recsmith import _plugins
from recsmith.costs.analytic import AnalyticCostModel
from recsmith.costs.neural.model import PREFIX, NeuralCostModel
from recsmith.costs.protocol import CostModel
from recsmith.costs.torchrec import TorchRecCostModel

COST_MODELS: dict[str, CostModel] = {model.name: model for model in (AnalyticCostModel(), TorchRecCostModel())}
DEFAULT_COST_MODEL = "analytic"


def cost_model(model: str | CostModel | None = None) -> CostModel:
    """The cost model of a name, or of `neural:<name or file>`; the default one for None; an object of yours as it is.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no cost model.
    """
    if model is None or model == "":
        return COST_MODELS[DEFAULT_COST_MODEL]
    if isinstance(model, str) and model.startswith(PREFIX):
        return NeuralCostModel(model)
    return _plugins.find_named(model, COST_MODELS, _plugins.COST_MODELS, CostModel, "cost model", "compile")
