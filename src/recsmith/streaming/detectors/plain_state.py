"""Saves and restores the state of detectors as JSON data: the attributes that change, by name."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from recsmith._types import Ints
from recsmith.errors import CorruptFile
from recsmith.files import Raw


class PlainState:
    """Saves and restores the attributes that STATE names; attributes with `to_raw` save their own state."""

    STATE: ClassVar[tuple[str, ...]] = ()
    ADDED: ClassVar[tuple[str, ...]] = ()  # names in STATE that states of earlier versions lack

    def to_raw(self) -> Raw:
        """The attributes as JSON data."""
        return {name: _raw(getattr(self, name)) for name in self.STATE}

    def from_raw(self, raw: Raw) -> None:
        """Restore the attributes; CorruptFile if the state is of something else or of another version."""
        if not isinstance(raw, Mapping) or not set(self.STATE) - set(self.ADDED) <= set(raw) <= set(self.STATE):  # pyright: ignore[reportUnnecessaryIsInstance]
            found = ", ".join(raw) if isinstance(raw, Mapping) else repr(raw)  # pyright: ignore
            raise CorruptFile(
                f"state of {type(self).__name__} holds {found or 'nothing'} instead of {', '.join(self.STATE)}; it is "
                "of another version: begin anew without it"
            )
        for name, value in raw.items():
            setattr(self, name, _restored(getattr(self, name), value))


class NamedStates(dict[str, Any]):
    """A dict of parts that have a state each; saved states of parts that no longer exist are ignored."""

    def to_raw(self) -> Raw:
        """The state of each part, by name."""
        return {name: part.to_raw() for name, part in self.items()}

    def from_raw(self, raw: Raw) -> None:
        """Restore the state of each part that has a saved one."""
        for name, part in self.items():
            if name in raw:
                part.from_raw(raw[name])


def places_of(names: Sequence[str], before: Sequence[str]) -> Ints:
    """The index that each name had in `before` (n,); -1 for new names."""
    there = {name: place for place, name in enumerate(before)}
    return np.array([there.get(name, -1) for name in names], np.int64)


def by_places(kept: Any, places: Ints, fresh: Any, axis: int = 0) -> Any:
    """The array `kept` reordered by the result of `places_of`; new names get the single entry of `fresh`."""
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
    """The saved value, or the current part after restoring its state from it."""
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
