"""Decides which update `update: auto` stands for, by a replay of the stream's first periods before training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith._components import parsed
from recsmith._types import noun
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import UsageError
from recsmith.files import Raw, decode, dump_json, encode, read_json, write_text
from recsmith.training.results.arms import judged
from recsmith.training.run import Run
from recsmith.training.systems.periods.arms import first_judged, replay
from recsmith.training.systems.periods.updates import update_of
from recsmith.training.systems.periods.updates.auto import AutoUpdate

DECISION, REPLAY = "update.json", "replay"


@noun
class Decision:
    """The arm that `auto` chose: its name, the update as a run names it, and why."""

    arm: str
    update: Any
    because: str


def decided_update(run: Run, train: Callable[[Run], Raw], say: Callable[[str], object]) -> Run:
    """The run with an update that pays in place of `auto`, by a replay of its first periods; called on every rank.

    The decision is kept in the run's folder, so a job that continues keeps it.

    Args:
        run: the run, with or without periods.
        train: trains a run, on every rank.
        say: called with the decision and the reason.

    Raises:
        CorruptFile: the file of an earlier decision is damaged.
        UsageError: the earlier decision is none of the arms that `auto` has now.
    """
    periods = run.data.periods
    if periods is None or parsed(periods.update, "data.periods.update")[0] != "auto":
        return run
    file, auto = Path(run.output) / DECISION, update_of(periods.update)
    kept = from_rank_0(lambda: encode(read_decision(file, auto)) if file.exists() else {})
    if not kept:
        first = replace(
            run, data=replace(run.data, periods=replace(periods, most=auto.replayed)), watch="none", watchers=()
        )
        replays = replay(first, auto.arms, (run.seed,), Path(run.output) / REPLAY, train, from_rank_0)
        found = judged(replays, first_judged(auto.arms))
        made = Decision(arm=found.chosen, update=auto.arms[found.chosen], because=found.because)
        kept = from_rank_0(lambda: _written(file, made))
    say(f"data.periods.update: auto takes {kept['arm']}: {kept['because']}")
    return replace(run, data=replace(run.data, periods=replace(periods, update=kept["update"])))


def read_decision(file: Path, auto: AutoUpdate) -> Decision:
    """Read an earlier decision.

    Raises:
        CorruptFile: the file is damaged.
        UsageError: the decision is none of the arms that `auto` has now.
    """
    found = decode(Decision, read_json(str(file)), str(file))
    if auto.arms.get(found.arm) != found.update:
        raise UsageError(
            f"'{file}' says that {found.arm} pays, {found.update}, and data.periods.update: auto has "
            f"{auto.arms.get(found.arm, 'no such arm')}; give its settings as they were, or remove the file to replay "
            "the stream anew"
        )
    return found


def _written(file: Path, decision: Decision) -> Raw:
    write_text(str(file), dump_json(encode(decision)))
    return encode(decision)
