"""Checks fields of nouns that are built in Python, by the rules by which files are read.

A check takes a value and returns it in the form that the noun stores: NumPy numbers become Python numbers, lists become
tuples, whole floats such as 1e6 become integers, and functions and classes become 'module:name'. A value that a file
could not hold is refused.
"""

import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import numpy as np

EXACT = 2**53  # below this, every whole number is exact as a floating-point number
LARGEST_INTEGER = 2**63  # first whole number beyond NumPy's int64

Check = Callable[[Any], Any]
_NUMBERS = (int, float, np.integer, np.floating)


class WrongError(Exception):
    """A value that a field cannot hold: the value, its place inside the field, and what is expected there."""

    def __init__(self, value: object, wanted: str, place: str = "") -> None:
        self.value, self.wanted, self.place = value, wanted, place


def check_of(hint: Any) -> Check | None:
    """The check for a type annotation; None if values of this type are not checked."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _one_of(parts)
    if origin in (Union, UnionType):
        return _any_of([check_of(part) for part in parts])
    if origin is tuple:
        return _every(parts[0]) if parts[-1] is ... else _each([check_of(part) for part in parts])
    if origin is dict and parts[0] is str:
        return _by_name(check_of(parts[1]))
    return _instance(hint) if is_dataclass(hint) else None


def _whole(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            raise WrongError(value, "a whole number")
        if isinstance(value, float | np.floating) and not (float(value).is_integer() and abs(value) < EXACT):
            raise WrongError(value, "a whole number")
        value = int(value)
    if not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        raise WrongError(value, "a whole number below 2^63")
    return value


def _number(value: Any) -> float:
    if type(value) is float:
        return value  # infinities and NaN are refused by the nouns, which know the valid range
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise WrongError(value, "a number")
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        raise WrongError(value, "a number below 2^63")
    return float(value)


def _text(value: Any) -> str:
    if callable(value):
        return _module_and_name(value)
    if not isinstance(value, str):
        raise WrongError(value, "text")
    return value if type(value) is str else str(value)


def _module_and_name(value: Any) -> str:
    """'module:name' of a function or class, by which a file stores it and other processes of a job find it."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not module or not name.isidentifier():  # a lambda, or a function or class nested in another one
        raise WrongError(value, "a function or class that has a name in a module, or that as text, 'module:name'")
    if module == "__main__":
        file = getattr(sys.modules[module], "__file__", None)
        if file is None:
            raise WrongError(value, "a function or class in a file, since other processes have to find it")
        module = Path(file).stem
    return f"{module}:{name}"


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise WrongError(value, "True or False")
    return bool(value)


def _nothing(value: Any) -> None:
    if value is not None:
        raise WrongError(value, "None")


_PLAIN: dict[Any, Check] = {int: _whole, float: _number, str: _text, bool: _truth, NoneType: _nothing}


def _one_of(values: tuple[Any, ...]) -> Check:
    wanted = " or ".join(filter(None, (", ".join(map(repr, values[:-1])), repr(values[-1]))))

    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise WrongError(value, wanted)
        return value if type(value) is str else str(value)

    return check


def _any_of(checks: list[Check | None]) -> Check | None:
    """A check that tries several checks in turn; None if one part of the union is not checked."""
    if None in checks:
        return None
    known = sorted((check for check in checks if check), key=lambda check: check is not _nothing)

    def check(value: Any) -> Any:
        wanted: list[str] = []
        for one in known:
            try:
                return one(value)
            except WrongError as wrong:
                if wrong.place:
                    raise
                wanted.append(wrong.wanted)
        raise WrongError(value, " or ".join((*wanted[1:], wanted[0])))

    def check_or_none(value: Any) -> Any:
        return None if value is None else check(value)

    return check_or_none if known[0] is _nothing else check


def _items(value: Any) -> tuple[Any, ...]:
    """The items of a tuple, list or array of one dimension."""
    if isinstance(value, np.ndarray) and cast(Any, value).ndim == 1:
        value = cast(Any, value).tolist()
    if not isinstance(value, tuple | list):
        raise WrongError(value, "a tuple or list")
    return tuple(cast(tuple[Any, ...], value))


def _every(hint: Any) -> Check:
    check = check_of(hint)
    plain = {hint} if hint in (int, str) or is_dataclass(hint) else None  # items of this type need no conversion

    def check_items(value: Any) -> tuple[Any, ...]:
        items = value if type(value) is tuple else _items(value)
        if check is None or (plain and set(map(type, items)) <= plain):
            return items
        return tuple([_inside(check, item, i) for i, item in enumerate(items)])

    return check_items


def _each(checks: list[Check | None]) -> Check:
    def check_items(value: Any) -> tuple[Any, ...]:
        items = _items(value)
        if len(items) != len(checks):
            raise WrongError(value, f"a tuple of {len(checks)}")
        pairs = enumerate(zip(checks, items, strict=True))
        return tuple(_inside(check, item, i) if check else item for i, (check, item) in pairs)

    return check_items


def _by_name(check: Check | None) -> Check:
    def check_values(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in cast(dict[Any, Any], value)):
            raise WrongError(value, "a dict with text as keys")
        named = cast(dict[str, Any], value)
        if check is None:  # any values, such as the settings next to the name of a component
            return {key: _text(item) if key == "name" and callable(item) else item for key, item in named.items()}
        return {key: _inside(check, item, key) for key, item in named.items()}

    return check_values


def _instance(noun: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, noun):
            raise WrongError(value, f"{'an' if noun.__name__[0] in 'AEIOU' else 'a'} {noun.__name__}")
        return value

    return check


def _inside(check: Check, item: Any, key: int | str) -> Any:
    """The checked form of an item; the error for an invalid item says where in the field it is."""
    try:
        return check(item)
    except WrongError as wrong:
        raise WrongError(wrong.value, wrong.wanted, f"[{key!r}]{wrong.place}") from None
