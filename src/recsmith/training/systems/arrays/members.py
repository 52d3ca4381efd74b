"""The runs of an array's members, the settings in which they may differ, and which have ended; without torch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from recsmith._types import noun
from recsmith.errors import CorruptFile, RecSmithError, UsageError, check_rules, too_small
from recsmith.files import Raw, decode, dump_json, encode, read_raw, write_text
from recsmith.training.run import Run, load_run, run_to_raw

MAY_DIFFER = (
    "seed", "model.bottom", "model.top", "model.hidden", "model.factors", "model.cross_layers", "model.cross_rank",
    "model.arguments", "optimizers.sparse.learning_rate", "optimizers.sparse.eps", "optimizers.dense",
)  # fmt: skip


def members_of(run: Run) -> dict[str, Run]:
    """The run of each member of an array, by name, as it would be trained alone, in the array's order of samples.

    Raises:
        UsageError: a member sets what may not differ, two members are equal, or a setting is wrong.
    """
    assert run.array is not None
    alone = replace(run, array=None, data=replace(run.data, seed=run.order_seed))
    found: dict[str, Run] = {}
    for name, settings in run.array.members.items():
        try:
            made = load_run(replace(alone, output=f"{run.output}/{name}"), _written(name, settings))
        except (UsageError, CorruptFile) as error:
            said = str(error).replace("'the run'", f"array.members: '{name}'")
            raise UsageError(said if f"'{name}'" in said else f"array.members: '{name}': {said}") from None
        _check_differs(name, alone, made)
        twin = next((other for other, each in found.items() if replace(each, output=made.output) == made), None)
        if twin is not None:
            raise UsageError(
                f"array.members: '{twin}' and '{name}' have the same settings, and would train the same model; leave "
                "one of them out, or give it another seed"
            )
        found[name] = made
    return found


def trained_runs(run: Run) -> list[Run]:
    """The runs that are trained for a run: itself, or the members of its array."""
    return [run] if run.array is None else list(members_of(run).values())


def _written(name: str, settings: tuple[str, ...]) -> tuple[str, ...]:
    """The settings of a member; UsageError if one of them is its output."""
    if any(setting.partition("=")[0].strip() == "output" for setting in settings):
        raise UsageError(
            f"array.members: '{name}' sets output, and a member's output is the folder of its name in that of the "
            "run; leave it out"
        )
    return settings


def _check_differs(name: str, run: Run, member: Run) -> None:
    """Raise UsageError if a member differs from its run in a setting that must be the same."""
    mine, theirs = dict(_flat(run_to_raw(run))), dict(_flat(run_to_raw(member)))
    for key in sorted(mine.keys() | theirs.keys()):
        may = key == "output" or any(key == each or key.startswith(f"{each}.") for each in MAY_DIFFER)
        if not may and mine.get(key) != theirs.get(key):
            raise UsageError(
                f"array.members: '{name}' sets {key}, and members share their data, batches and tables; they may "
                f"differ in {', '.join(MAY_DIFFER)}: train it as a run of its own"
            )


def _flat(raw: Raw, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a run with its dotted key."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _flat(cast(Raw, value), f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def check_array(run: Run) -> None:
    """Raise UsageError if a run asks to watch or capture its steps, which is possible for one model only."""
    looking = {"watchers": bool(run.watchers), "watch": run.watch != "none", "capture": run.capture is not None}
    for key, given in looking.items():
        if given:
            raise UsageError(
                f"{key} looks at the steps of one model, and array trains several; leave it out, or write "
                "array.together: never"
            )


SCHEMA, FILE = "recsmith/array/1", "array.json"


@noun
class EndedMember:
    """A member that has ended. step: number of steps that it trained. because: the reason."""

    step: int
    because: str

    def __post_init__(self) -> None:
        check_rules(too_small("step", self.step))


@noun
class EndedMembers:
    """The content of array.json: the members that have ended, by name."""

    ended: dict[str, EndedMember]


def read_ended(output: Path, run: Run) -> EndedMembers:
    """The members of a run's array that have ended, as array.json in its output says.

    Raises:
        CorruptFile: the file is damaged, or names members that the array does not have.
        RecSmithError: all members have ended.
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
    if run.array is not None and not run.array.members.keys() - found.ended.keys():
        raise RecSmithError(f"all members of the array in '{output}' have diverged; give them other rates and output")
    return found


def write_ended(output: Path, ended: Mapping[str, EndedMember]) -> None:
    """Write to array.json which members have ended."""
    write_text(str(output / FILE), dump_json({"schema": SCHEMA, **encode(EndedMembers(ended=dict(ended)))}))
