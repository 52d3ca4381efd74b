"""The cost models that can be asked for by name: RecSmith's own, and the entry points of other packages."""

from recsmith import _plugins
from recsmith.costs.analytic.model import AnalyticCostModel
from recsmith.costs.neural.model import PREFIX, NeuralCostModel
from recsmith.costs.protocol import CostModel
from recsmith.costs.torchrec import TorchRecCostModel
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

COST_MODELS: dict[str, CostModel] = {model.name: model for model in (AnalyticCostModel(), TorchRecCostModel())}
DEFAULT_COST_MODEL = "analytic"


def cost_model(model: str | CostModel | None = None) -> CostModel:
    """The cost model of a name, or of `neural:<name or file>`; the default one for None; an object of yours as it is.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no cost model.
    """
    if model is None or model == "":
        return COST_MODELS[DEFAULT_COST_MODEL]
    if not isinstance(model, str):
        return _checked(model)
    if model.startswith(PREFIX):
        return NeuralCostModel(model)
    if model in COST_MODELS:
        return COST_MODELS[model]
    found = _plugins.load_plugin(_plugins.COST_MODELS, model, "cost model", "compile")
    if found is None:
        known = list(dict.fromkeys((*COST_MODELS, *_plugins.plugin_names(_plugins.COST_MODELS))))
        raise UsageError(f"no cost model is called '{model}'{did_you_mean(model, known)}")
    return _checked(found)


def _checked(model: object) -> CostModel:
    """The object, if it has what the protocol of cost models asks for (recsmith.costs.CostModel)."""
    name = getattr(model, "name", None)
    if isinstance(model, type) or not isinstance(name, str) or not isinstance(model, CostModel):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise UsageError(f"{what} is no cost model; give a name, or an object with a `name` and a method `compile`")
    if name in COST_MODELS and not isinstance(model, type(COST_MODELS[name])):
        raise UsageError(f"a cost model of your own is called '{name}' as RecSmith's is; give it another name")
    return model
