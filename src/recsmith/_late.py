"""Names of a package that are loaded when they are first used (PEP 562).

A package sets `__getattr__ = late_names(__name__, {"recsmith.web.report": ("report",)})`, and imports the same names
under `if TYPE_CHECKING`, so that type checkers see them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def late_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package. homes: the names that are loaded late, by the module that defines them."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        found = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return load
