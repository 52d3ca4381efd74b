"""All systems of this process: ours, those of other packages that runs name, and what the core asks of all of them.

The core knows no system by name. It asks all of them in the order of SYSTEMS (listed.py). Without its folder and its
entry there a system is gone, and the rest is as it was.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from recsmith._components import load
from recsmith._plugins import load_plugin, plugin_names
from recsmith.errors import UsageError, check_rules
from recsmith.files import did_you_mean
from recsmith.plans import Plan
from recsmith.training.listed import SYSTEMS
from recsmith.training.seams.system import System

if TYPE_CHECKING:
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.card import ModelCard
    from recsmith.training.run.run import Run

FOLDER = "recsmith.training.systems"
OTHERS = "recsmith.systems"  # entry points of other packages

Answer = TypeVar("Answer")


def systems() -> tuple[System, ...]:
    """The records of all systems, in the order in which they decide: ours, and then those that runs have named."""
    return (*_ours(), *_others.values())


@cache
def _ours() -> tuple[System, ...]:
    return tuple(import_module(f"{FOLDER}.{name}").SYSTEM for name in SYSTEMS)


_others: dict[str, System] = {}


def use_systems(run: "Run") -> None:
    """Load the systems of other packages that a run names, from now on in this process, and ask what is wrong with it.

    Their names are those of entry points of the group `recsmith.systems`, or 'module:Class'. Whoever starts, tries or
    trains a run calls this; to read a run loads nothing.

    Raises:
        UsageError: no package offers one, or something is wrong with its settings or the run.
    """
    for name in run.systems:
        found = _others.get(name) or _others.setdefault(name, _loaded(name))
        found.settings_in(run)
        check_rules(*found.wrong(run))


def use_systems_of(card: "ModelCard", where: str) -> None:
    """Load the systems that said something in the card of a model, where it stands; UsageError where one is missing."""
    for name in card.systems or {}:
        try:
            if name not in _others:
                _others[name] = _loaded(name)
        except UsageError as error:
            raise UsageError(
                f"{error}; '{where}' says that the model was trained with it: take it out of `systems` there where the "
                "model is to be scored without"
            ) from None


def _loaded(name: str) -> System:
    found: Any = load(name, "System")() if ":" in name else load_plugin(OTHERS, name, "system", "told")
    if found is None:
        raise UsageError(
            f"systems.{name}: no installed package offers a system of this name"
            f"{did_you_mean(name, plugin_names(OTHERS))}; install it, or give module:Class"
        )
    if not isinstance(found, System) or found.settings is None or (found.kept and found.state is None):
        raise UsageError(
            f"systems.{name}: it is no System with `settings`, and a `state` for what it keeps; derive one from "
            "recsmith.training.System"
        )
    others = [each for each in systems() if type(each) is not type(found)]
    twin = next((each.key for each in others if found.kept and each.kept == found.kept), None)
    if twin is not None:
        raise UsageError(
            f"systems.{name} is kept in checkpoints as '{found.kept}', as {twin} is; give it another `kept`"
        )
    found.name, found.key = name, f"systems.{name}"
    return found


# --- what all of them say together ------------------------------------------------------------------------------------


def first_of(asked: Iterable[Answer | None]) -> Answer | None:
    """The first answer that is not None."""
    return next((each for each in asked if each is not None), None)


def trains_layers(run: "Run") -> bool:
    """Whether a run's step trains dense layers itself, so that their optimizer keeps nothing."""
    return any(each.trains_layers(run) for each in systems())


def batches_of_a_step(run: "Run") -> int:
    """Batches that a step of a run takes together, at most."""
    return max(each.batches_of_a_step(run) for each in systems())


def told_step(run: "Run", plan: Plan, ranks: int, step: "JobStep | None") -> "JobStep | None":
    """A predicted step as a dry run tells it. ranks: that train."""
    for each in systems():
        step = step and each.change_told_step(run, plan, ranks, step)
    return step
