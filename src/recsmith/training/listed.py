"""The systems of training, with their folders, commands and keys: the only place outside their folders that names them.

Nothing is imported here, because `recsmith --help` reads the commands.
"""

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass(frozen=True)
class Command:
    """A command of a system: the function `<name>_command` of `command.py` in its folder.

    group: heading in `recsmith --help`, or the command that it is a subcommand of, such as bench. after: the command of
    the group that it is listed after; listed last if that command is missing. about: what it does, in one line.
    """

    name: str
    group: str
    about: str
    after: str = ""


SYSTEMS: dict[str, tuple[Command, ...]] = {  # in the order in which they decide: each builds on the decisions before it
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
    """Give a noun that derives this class its keys: fields for type checkers; at run time, the fields of known systems.

    `keys_of_systems` (seams/keys.py) makes the fields. If a system is missing, its key has its default value, and a
    file that gives the key is refused.
    """
    cls.__annotations__.clear()
    return cls


@keys
class RunKeys:
    """Keys of systems in a run."""

    watch: Any = "none"
    start_from: Any = None
    array: Any = None
    remote: Any = None


@keys
class DataKeys:
    """Keys of systems in a run's data."""

    deduplicate: Any = "off"
    periods: Any = None
    balance: Any = None


@keys
class ModelKeys:
    """Keys of systems in a run's model."""

    compression: Any = ()
    dynamic: Any = ()
    narrow: Any = None


@keys
class CardKeys:
    """Keys of systems in the card of a trained model."""

    columns: Any = None
    refit: Any = None
    sparse: Any = None
