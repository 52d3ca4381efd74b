"""Shared by all rooms: the noun decorator, and type names for arrays and paths."""

import os
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform, get_type_hints

import numpy as np
import numpy.typing as npt

from recsmith._fields import Check, WrongError, check_of
from recsmith.errors import UsageError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Source = str | os.PathLike[str]  # a name, or the path of a file; '-' is standard input
LARGEST = 1e18  # numbers up to this size, whole or not, need no further check
SHOWN_ITEMS = 4  # items of a tuple or dict that a repr shows

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def noun(cls: type[Class]) -> type[Class]:
    """A frozen, keyword-only dataclass whose fields are checked by the same rules in Python and in files.

    Built in Python, it raises UsageError for a value that a file could not hold. Read from a file, it refuses unknown
    fields. Its repr leaves out fields with their default value, and shortens long tuples.
    """
    made: Any = record(cls)
    plain_init: Callable[..., None] = made.__init__
    checks: FieldChecks | None = None

    @wraps(plain_init)
    def __init__(self: Any, /, **values: Any) -> None:  # noqa: N807
        nonlocal checks
        if checks is None:  # only now are all types in its annotations defined
            checks = FieldChecks(made)
        checks.keep(values)
        plain_init(self, **values)

    made.__init__ = __init__
    return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[Class]) -> type[Class]:
    """A noun that only RecSmith builds, often or with values that no file holds: values from Python are unchecked."""
    made = cast(Any, dataclass(frozen=True, slots=True, kw_only=True, repr=False)(cls))
    made.__pydantic_config__ = {"extra": "forbid"}
    if "__repr__" not in cls.__dict__:
        made.__repr__ = short_repr
    return made


def unchecked(cls: type[Class], **values: object) -> Class:
    """Build a noun without checks, from values that RecSmith computed itself; for nouns built in large numbers."""
    made = object.__new__(cls)
    cast(Any, cls.__init__).__wrapped__(made, **values)
    return made


class FieldChecks:
    """The checks of all fields of a noun; a field whose type cannot be stored in a file has no check."""

    def __init__(self, noun: type) -> None:
        hints = get_type_hints(noun)
        self.noun = noun
        self.checks = {name: check for name, hint in hints.items() if (check := check_of(hint))}
        self.exact = {name: hint for name, hint in hints.items() if hint in (int, float, str)}

    def keep(self, values: dict[str, Any]) -> None:
        """Replace each value by the form in which the noun stores it; UsageError for the first invalid value."""
        for name, value in values.items():
            kind: object = type(cast(object, value))
            if kind is self.exact.get(name) and (kind is str or -LARGEST <= value <= LARGEST):
                continue  # nearly always taken: workloads of many thousand tables are built fast
            check = self.checks.get(name)
            if check:
                values[name] = self._kept(check, values, name)

    def _kept(self, check: Check, values: dict[str, Any], name: str) -> Any:
        try:
            return check(values[name])
        except WrongError as wrong:
            _refuse(self.noun, values, name, wrong)


def _refuse(noun: type, values: dict[str, Any], field: str, wrong: WrongError) -> NoReturn:
    names = (values.get(key) for key in ("name", "table", "tables") if key != field)
    called = next((f" {name!r}" for name in names if isinstance(name, str)), "")
    raise UsageError(
        f"{field}{wrong.place} of {noun.__name__}{called} is {_value_words(wrong.value)}; it must be {wrong.wanted}"
    )


def _value_words(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python does not print integers of many thousand digits
        return f"a number of {cast(int, value).bit_length()} bits"


def short_repr(value: Any) -> str:
    """A noun as Python would write it, without default values, and with only the first items of long tuples."""
    stated = [each for each in fields(value) if not _is_default(value, each)]
    shown = [f"{each.name}={_shown(getattr(value, each.name))}" for each in stated]
    return f"{type(value).__name__}({', '.join(shown)})"


def _is_default(value: Any, field: Any) -> bool:
    factory = field.default_factory
    default = field.default if factory is MISSING else factory()
    found = getattr(value, field.name)
    return found is default or (type(found) is type(default) and bool(found == default))


def _shown(value: Any) -> str:
    if type(value) not in (tuple, dict) or len(value) <= SHOWN_ITEMS:
        return repr(value)
    first = ", ".join(map(repr, list(value)[:SHOWN_ITEMS]))  # of a dict, the first keys
    return f"<{first}, ... {len(value):,} in all>"
