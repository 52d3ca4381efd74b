"""Finds and calls the compiled code of searches and bounds, which exists if the package was built with a C compiler."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from recsmith.errors import UsageError


@cache
def compiled(name: str) -> Any:
    """A module of compiled code, such as planners.annealing._kernel; None if it was not built."""
    try:
        return import_module(f"recsmith.{name}")
    except ImportError:
        return None


def call_compiled(function: Callable[..., None], *arguments: object) -> None:
    """Call compiled code, which checks its arrays and raises ValueError for those it does not expect.

    Raises:
        UsageError: the compiled code was built from other sources than the Python code that calls it.
    """
    try:
        function(*arguments)
    except ValueError as error:
        raise UsageError(
            f"the compiled code was built from another version of recsmith ({error}); "
            "build it again: `pip install -e .` in the repository, or reinstall recsmith"
        ) from None
