"""How a job does, as its log says: alarms, what was done about them, and the newest signals."""

from pathlib import Path

from recsmith._types import noun
from recsmith.jobs.log_lines import LOG, ODD, RANKS, lacking, logged
from recsmith.prediction.servers import SlowTrainer, slow_trainer_of


@noun
class RunAlarm:
    """An alarm of a run: the step it was told at, the step since when, its kind, why, and what was done about it."""

    step: int
    since: int
    kind: str
    because: str
    done: str = ""


@noun
class WatchedRun:
    """How a run does. signals: newest values by name. watched: whether it was; else its lines were judged here.

    slow: which trainer the others waited for until the end, and what servers would bring; none: no trainer.
    """

    folder: str
    step: int
    watched: bool
    ended: bool
    signals: dict[str, float]
    alarms: tuple[RunAlarm, ...]
    slow: str | None = None


def slow_trainer_of_run(folder: str, until: int | None = None) -> SlowTrainer | None:
    """The trainer that the others of a former run waited for; None where there was none, or no such run.

    Raises:
        CorruptFile: a line of its log lacks something.
    """
    file = Path(folder) / LOG
    told = [each for each in (logged(file, RANKS, until) if file.exists() else []) if "servers_s" in each]
    try:
        return slow_trainer_of(told[-1]) if told else None
    except ODD as error:
        raise lacking(file, error) from None
