"""The state of a job according to its log: alarms, the actions taken, and the newest signals."""

from pathlib import Path

from recsmith._types import noun
from recsmith.jobs.log_lines import LOG, ODD, RANKS, lacking, logged
from recsmith.prediction.servers import SlowTrainer, slow_trainer_of


@noun
class RunAlarm:
    """An alarm of a run: the steps at which it was reported and began, its kind, its reason, and the action taken."""

    step: int
    since: int
    kind: str
    because: str
    done: str = ""


@noun
class WatchedRun:
    """The state of a run. signals: newest values by name. watched: whether it was; else its lines were judged here.

    slow: which trainer the others waited for until the end, and what servers would gain; none: no such trainer.
    """

    folder: str
    step: int
    watched: bool
    ended: bool
    signals: dict[str, float]
    alarms: tuple[RunAlarm, ...]
    slow: str | None = None


def slow_trainer_of_run(folder: str, until: int | None = None) -> SlowTrainer | None:
    """The trainer that the others of an earlier run waited for; None if there was none, or no such run.

    Raises:
        CorruptFile: a line of its log lacks a value.
    """
    file = Path(folder) / LOG
    rows = [each for each in (logged(file, RANKS, until) if file.exists() else []) if "servers_s" in each]
    try:
        return slow_trainer_of(rows[-1]) if rows else None
    except ODD as error:
        raise lacking(file, error) from None
