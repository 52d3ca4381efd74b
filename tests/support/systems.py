"""Systems of training that a test needs: it is skipped in a tree from which one of them was deleted."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from recsmith.training.listed import SYSTEMS
from recsmith.training.seams.registry import FOLDER

EVERY = (
    "arrays", "balance", "dedup", "dynamic", "halves", "narrow", "periods", "remote", "search", "second_order",
    "shampoo", "sparse", "stash", "stored", "thresholds", "tiers", "towers", "warm_start", "watch",
)  # fmt: skip  # of a tree as it ships

USES = {"search": ("stored",), "sparse": ("second_order", "periods")}  # systems that go with others

COMMANDS_OF = {
    "compress": "stored", "online": "periods", "refit": "second_order", "search": "search", "sparse": "sparse",
    "watch": "watch",
}  # fmt: skip  # of the command line, and the system whose they are


def has_command(name: str) -> bool:
    """Whether the command line of this tree has a command: of no system, or of one that is there."""
    return name not in COMMANDS_OF or COMMANDS_OF[name] in SYSTEMS


def is_here(name: str) -> bool:
    """Whether a system works in this tree: it is there, and so is what it uses."""
    return all(each in SYSTEMS for each in (name, *USES.get(name, ())))


def needs_systems(*names: str) -> pytest.MarkDecorator:
    """A mark of a test that needs systems beside those of its folder."""
    gone = [name for name in names if not is_here(name)]
    return pytest.mark.skipif(bool(gone), reason=f"{', '.join(gone)} of systems/ was deleted, or what it uses")


def needing(name: str, *values: Any) -> Any:
    """A case of a parametrized test that needs a system."""
    return pytest.param(*values, marks=needs_systems(name))


def of_system(name: str, module: str, make: Callable[[Any], Sequence[Any]]) -> tuple[Any, ...]:
    """What is made of a module of a system ('': its folder); nothing where the system was deleted."""
    return tuple(make(import_module(f"{FOLDER}.{name}.{module}".rstrip(".")))) if is_here(name) else ()
