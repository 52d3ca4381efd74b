"""Systems of training that a test needs: it is skipped in a tree from which one of them was deleted."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from recsmith.training.seams.system import FOLDER, SYSTEMS


def needs_systems(*names: str) -> pytest.MarkDecorator:
    """A mark of a test that needs systems beside those of its folder."""
    gone = [name for name in names if name not in SYSTEMS]
    return pytest.mark.skipif(bool(gone), reason=f"{', '.join(gone)} of systems/ was deleted")


def of_system(name: str, module: str, make: Callable[[Any], Sequence[Any]]) -> tuple[Any, ...]:
    """What is made of a module of a system; nothing where the system was deleted."""
    return tuple(make(import_module(f"{FOLDER}.{name}.{module}"))) if name in SYSTEMS else ()
