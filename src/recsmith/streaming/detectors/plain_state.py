"""State of detectors as JSON data: the fields that change, by name."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from recsmith._types import Ints
from recsmith.errors import CorruptFile
from recsmith.files import Raw


class PlainState:
    """Keeps and restores the attributes that STATE names; those that have a state of their own with theirs."""

    STATE: ClassVar[tuple[str, ...]] = ()
    ADDED: ClassVar[tuple[str, ...]] = ()  # those of STATE that states of earlier versions lack

    def to_raw(self) -> Raw:
        """The attributes as JSON data."""
        return {name: _raw(getattr(self, name)) for name in self.STATE}

    def from_raw(self, raw: Raw) -> None:
        """Go on from there; CorruptFile where it is the state of something else, or of another version."""
        if not isinstance(raw, Mapping) or not set(self.STATE) - set(self.ADDED) <= set(raw) <= set(self.STATE):  # pyright: ignore[reportUnnecessaryIsInstance]
            found = ", ".join(raw) if isinstance(raw, Mapping) else repr(raw)  # pyright: ignore
            raise CorruptFile(
                f"state of {type(self).__name__} holds {found or 'nothing'} instead of {', '.join(self.STATE)}; it is "
                "of another version: begin anew without it"
            )
        for name, value in raw.items():
            setattr(self, name, _restored(getattr(self, name), value))


class NamedStates(dict[str, Any]):
    """Parts that have a state of their own, by name; parts that are no longer there are left out."""

    def to_raw(self) -> Raw:
        """The state of each."""
        return {name: part.to_raw() for name, part in self.items()}

    def from_raw(self, raw: Raw) -> None:
        """Go on from there."""
        for name, part in self.items():
            if name in raw:
                part.from_raw(raw[name])


def places_of(names: Sequence[str], before: Sequence[str]) -> Ints:
    """Where each name stood before (n,); -1 of new ones."""
    there = {name: place for place, name in enumerate(before)}
    return np.array([there.get(name, -1) for name in names], np.int64)


def by_places(kept: Any, places: Ints, fresh: Any, axis: int = 0) -> Any:
    """An array of what was kept, in the order of `places_of`; new names have theirs of `fresh`, which has one place."""
    new = np.expand_dims(places < 0, [each for each in range(np.ndim(kept)) if each != axis])
    padded = np.concatenate([kept, fresh], axis)
    return np.where(new, fresh, np.take(padded, places, axis))


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "to_raw", None))


def _raw(value: Any) -> Any:
    if _has_state(value):
        return value.to_raw()
    return [_raw(each) for each in value] if isinstance(value, list | tuple) else value


def _restored(here: Any, value: Any) -> Any:
    """The value in place of what is here."""
    if _has_state(here):
        here.from_raw(value)
        return here
    if isinstance(here, list) and here and _has_state(here[0]):
        if not isinstance(value, list) or len(value) != len(here):
            raise CorruptFile(
                f"state of {len(here)} parts is {value!r:.40}; it is of another version: begin anew without it"
            )
        return [_restored(part, each) for part, each in zip(here, value, strict=True)]
    return value
