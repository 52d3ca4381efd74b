"""The systems of training, by their folders, their commands and their keys: the only place outside that names them.

Nothing is imported here, for `recsmith --help` reads the commands.
"""

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass(frozen=True)
class Command:
    """A command of a system: the function `<name>_command` of `command.py` in its folder.

    group: of `recsmith --help`, or the command that it is a part of, such as bench. after: behind which command of the
    group it stands; last, where that is not there. about: what it does, in a line.
    """

    name: str
    group: str
    about: str
    after: str = ""


SYSTEMS: dict[str, tuple[Command, ...]] = {  # in the order in which they decide: each rests on those before
    "warm_start": (),
    "towers": (),
    "dedup": (),
    "balance": (),
    "stored": (Command("compress", "Plan", "Propose how to store tables in less memory, and plan them."),),
    "dynamic": (),
    "thresholds": (),
    "shampoo": (),
    "narrow": (),
    "halves": (),
    "tiers": (),
    "stash": (),
    "second_order": (
        Command("refit", "Train", "Fit the last layers of a trained model to other data, in seconds.", "evaluate"),
    ),
    "search": (
        Command("search", "Train", "Search widths of tables and layers under the price of a cluster.", "refit"),
    ),
    "sparse": (
        Command(
            "sparse", "Train", "Make a sparse copy of a trained model, most of whose dense weights are zero.", "refit"
        ),
    ),
    "periods": (Command("online", "bench", "Replay a stream, and say how it is best learned."),),
    "watch": (Command("watch", "Train", "Show what went wrong in a training job or a series, and when.", "data"),),
    "arrays": (),
    "remote": (),
}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def keys(cls: type[Class]) -> type[Class]:
    """Keys of a noun that derives this class: fields for type checkers, and as it runs those whose system is there.

    `keys_of_systems` (seams/keys.py) makes these. Where a system is not there, its key has its default, and a file
    that names it is refused.
    """
    cls.__annotations__.clear()
    return cls


@keys
class RunKeys:
    """Of a run."""

    watch: Any = "none"
    start_from: Any = None
    array: Any = None
    remote: Any = None


@keys
class DataKeys:
    """Of the data of a run."""

    deduplicate: Any = "off"
    periods: Any = None
    balance: Any = None


@keys
class ModelKeys:
    """Of the model of a run."""

    compression: Any = ()
    dynamic: Any = ()
    narrow: Any = None


@keys
class CardKeys:
    """Of the card of a trained model."""

    columns: Any = None
    refit: Any = None
    sparse: Any = None
