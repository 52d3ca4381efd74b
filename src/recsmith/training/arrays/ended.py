"""Which members of an array have ended before the others, as a file in its output; without torch."""

from collections.abc import Mapping
from pathlib import Path

from recsmith._types import noun
from recsmith.errors import CorruptFile, check_rules, too_small
from recsmith.files import decode, dump_json, encode, read_raw, write_text
from recsmith.training.run import Run

SCHEMA, FILE = "recsmith/array/1", "array.json"


@noun
class EndedMember:
    """A member that has ended. step: after which. because: why."""

    step: int
    because: str

    def __post_init__(self) -> None:
        """Check the step."""
        check_rules(too_small("step", self.step))


@noun
class EndedMembers:
    """What array.json holds: the members that have ended, by name."""

    ended: dict[str, EndedMember]


def read_ended(output: Path, run: Run) -> EndedMembers:
    """The members of a run's array that have ended in its output.

    Raises:
        CorruptFile: the file is damaged, or names others.
    """
    file = output / FILE
    if not file.exists():
        return EndedMembers(ended={})
    found = decode(EndedMembers, read_raw(str(file), SCHEMA), str(file))
    odd = next((name for name in found.ended if run.array is None or name not in run.array.members), None)
    if odd is not None:
        raise CorruptFile(
            f"'{file}' says that member '{odd}' has ended, and array.members has no '{odd}'; name the members as they "
            "were, or give another output"
        )
    return found


def write_ended(output: Path, ended: Mapping[str, EndedMember]) -> None:
    """Say which members have ended."""
    write_text(str(output / FILE), dump_json({"schema": SCHEMA, **encode(EndedMembers(ended=dict(ended)))}))
