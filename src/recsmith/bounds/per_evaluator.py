"""Values that are worked out once for an evaluator and kept for as long as it lives."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from recsmith.costs.protocol import Evaluator

Value = TypeVar("Value")
ENTRY = "_kept_by_bounds"  # of the evaluator's own dictionary, where functools.cached_property keeps values too


def kept_for(evaluator: Evaluator, key: Hashable, make: Callable[[], Value]) -> Value:
    """The value of a key for an evaluator, made at the first call. An evaluator with slots alone keeps nothing."""
    values: dict[Hashable, Any] = getattr(evaluator, "__dict__", {}).setdefault(ENTRY, {})
    if key not in values:
        values[key] = make()
    return values[key]
