"""Keys that systems add to nouns of the core: to a run, its data and its model, and to a trained model's card."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from recsmith.training.seams.registry import systems

Class = TypeVar("Class")


def keys_of_systems(before: str) -> Callable[[type[Class]], type[Class]]:
    """A decorator that gives a noun of the run the keys of its base (listed.py) whose systems are installed.

    Each system defines the type and meaning of its key. before: prefix of the keys in a run, such as 'model.'.
    """
    return _with_keys({each.key.removeprefix(before): (each.settings, each.about) for each in systems() if each.about})


def cards_of_systems() -> Callable[[type[Class]], type[Class]]:
    """A decorator that gives the card of a model the keys of its base that systems write."""
    nouns = [(name, noun) for each in systems() for name, noun in each.cards.items()]
    return _with_keys({name: (noun, _first_sentence(noun)) for name, noun in nouns})


def _first_sentence(noun: Any) -> str:
    return " ".join(noun.__doc__.split()).partition(". ")[0].rstrip(".")


def _with_keys(said: Mapping[str, tuple[Any, str]]) -> Callable[[type[Class]], type[Class]]:
    def typed(cls: type[Class]) -> type[Class]:
        for name, default in vars(cls.__base__).items():
            if name not in said:
                continue
            settings, about = said[name]
            cls.__annotations__[name] = settings | None if default is None else settings
            setattr(cls, name, default)
            cls.__doc__ = f"{cls.__doc__}\n\n{name}: {about}."
        return cls

    return typed
