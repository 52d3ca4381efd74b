"""How a job does, as its log says: alarms, what was done about them, and the newest signals."""

from recsmith._types import noun


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
