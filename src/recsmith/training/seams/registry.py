"""All systems of this process: RecSmith's own, and those of other packages that runs name.

The core knows no system by name. It asks all of them in the order of SYSTEMS (listed.py). If a system's folder and its
entry there are deleted, the system is gone, and everything else works as before.
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
OTHERS = "recsmith.systems"  # entry point group of other packages

Answer = TypeVar("Answer")


def systems() -> tuple[System, ...]:
    """The records of all systems, in the order in which they decide: RecSmith's own, then those that runs named."""
    return (*_ours(), *_others.values())


@cache
def _ours() -> tuple[System, ...]:
    return tuple(import_module(f"{FOLDER}.{name}").SYSTEM for name in SYSTEMS)


_others: dict[str, System] = {}


def use_systems(run: "Run") -> None:
    """Load the systems of other packages that a run names, for the rest of this process, and check the run with them.

    Their names are entry points of the group `recsmith.systems`, or 'module:Class'. Whatever starts, tries or trains a
    run calls this; reading a run loads nothing.

    Raises:
        UsageError: no installed package offers a system, or something is wrong with its settings or the run.
    """
    for name in run.systems:
        found = _others.get(name) or _others.setdefault(name, _loaded(name))
        found.settings_in(run)
        check_rules(*found.wrong(run))


def use_systems_of(card: "ModelCard", where: str) -> None:
    """Load the systems that wrote into a model's card; UsageError if one is missing. where: path of the card."""
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
    """The first answer that is not None; None if there is none."""
    return next((each for each in asked if each is not None), None)


def trains_layers(run: "Run") -> bool:
    """Whether a run's step trains dense layers itself, so that their optimizer keeps no state."""
    return any(each.trains_layers(run) for each in systems())


def batches_of_a_step(run: "Run") -> int:
    """The largest number of batches that a step of a run processes together."""
    return max(each.batches_of_a_step(run) for each in systems())


def told_step(run: "Run", plan: Plan, ranks: int, step: "JobStep | None") -> "JobStep | None":
    """A predicted step as a dry run reports it. ranks: number of training ranks."""
    for each in systems():
        step = step and each.change_told_step(run, plan, ranks, step)
    return step
