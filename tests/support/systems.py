"""Systems of training that a test needs: it is skipped in a tree from which one of them was deleted."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from recsmith.training.seams.system import FOLDER, SYSTEMS

EVERY = (
    "arrays", "dedup", "halves", "narrow", "periods", "remote", "search", "second_order", "shampoo", "sparse", "stored",
    "thresholds", "tiers", "towers", "watch",
)  # fmt: skip  # of a tree as it ships


def needs_systems(*names: str) -> pytest.MarkDecorator:
    """A mark of a test that needs systems beside those of its folder."""
    gone = [name for name in names if name not in SYSTEMS]
    return pytest.mark.skipif(bool(gone), reason=f"{', '.join(gone)} of systems/ was deleted")


def needing(name: str, *values: Any) -> Any:
    """A case of a parametrized test that needs a system."""
    return pytest.param(*values, marks=needs_systems(name))


def of_system(name: str, module: str, make: Callable[[Any], Sequence[Any]]) -> tuple[Any, ...]:
    """What is made of a module of a system; nothing where the system was deleted."""
    return tuple(make(import_module(f"{FOLDER}.{name}.{module}"))) if name in SYSTEMS else ()
