"""The planners and cost models that can be asked for by name: as tables for people, and as plain data."""

import inspect
from collections.abc import Container, Sequence

from rich.console import Group, RenderableType
from rich.table import Table as Grid

from recsmith import _plugins
from recsmith._types import noun
from recsmith.costs import COST_MODELS, DEFAULT_COST_MODEL
from recsmith.costs.neural.files import find_model, load_model, shipped_models
from recsmith.costs.neural.model import PREFIX
from recsmith.files import Raw, encode
from recsmith.planning.registry import PLANNERS
from recsmith.reports.layout import grid, line

REGISTRIES_SCHEMA = "recsmith/planners/1"
NEEDS = {
    "auto": "nothing; searches more with OR-Tools",
    "autoshard": "nothing; at its best on a device with a policy",
    "dreamshard": "nothing; at its best on a device with a policy",
    "surco": "OR-Tools",
    "exact": "OR-Tools, above some ten tables",
}


@noun
class Named:
    """What a name on the command line stands for. about: one line; needs: besides RecSmith itself."""

    name: str
    about: str
    needs: str = "nothing"


def planners() -> tuple[Named, ...]:
    """Every planner, the default one first."""
    own = (Named(name=name, about=_about(each), needs=NEEDS.get(name, "nothing")) for name, each in PLANNERS.items())
    return (*own, *_of_packages(_plugins.PLANNERS, PLANNERS))


def cost_models() -> tuple[Named, ...]:
    """Every cost model: those with formulas, the default one first, and the learned ones that ship."""
    formulas = (Named(name=name, about=_about(model)) for name, model in COST_MODELS.items())
    return (*formulas, *map(_learned, shipped_models()), *_of_packages(_plugins.COST_MODELS, COST_MODELS))


def _of_packages(group: str, own: Container[str]) -> list[Named]:
    """What other installed packages offer; they are not imported before they are asked for."""
    names = (name for name in _plugins.plugin_names(group) if name not in own)
    return [Named(name=name, about="Of another installed package.", needs="that package") for name in names]


def _learned(name: str) -> Named:
    card = load_model(find_model(name))[1]
    return Named(name=PREFIX + name, about=f"Learned from kernels on {card.device}.", needs="a cluster of that device")


def _about(named: object) -> str:
    """The words of the object itself, or the first sentence of its class."""
    words: str = getattr(named, "about", "") or (inspect.getdoc(type(named)) or "").partition("\n")[0]
    return words


def registries_report() -> RenderableType:
    """A table of planners and one of cost models."""
    own = line(
        "own",
        "a learned cost model: recsmith learn cost -o mine.safetensors, then --cost-model neural:mine.safetensors",
    )
    return Group(_grid("planner", planners(), "auto"), _grid("cost model", cost_models(), DEFAULT_COST_MODEL), own)


def _grid(heading: str, rows: Sequence[Named], default: str) -> Grid:
    made = grid(left=(heading, "what it does", "needs"))
    for row in rows:
        made.add_row(f"{row.name} (default)" if row.name == default else row.name, row.about, row.needs)
    return made


def registries_to_raw() -> Raw:
    """Plain data of both lists."""
    return {
        "schema": REGISTRIES_SCHEMA,
        "planners": [encode(each) for each in planners()],
        "cost_models": [encode(each) for each in cost_models()],
    }
