"""What the log of a run says of its watch: alarms, what was done, signals; also of a run that was not watched."""

import json
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.streaming.series import AlarmingSeries

LOG = "log.jsonl"
LOGGED = ("logloss", "ne", "calibration", "auc", "samples_per_s")  # of lines of training, where nothing was watched
REPLAY = {"name": "ewma", "warm": 10, "half_life": 30.0, "threshold": 8.0}  # a line is the mean of many steps


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
    """How a run does. signals: newest values by name. watched: whether it was; else its lines were judged here."""

    folder: str
    step: int
    watched: bool
    ended: bool
    signals: dict[str, float]
    alarms: tuple[RunAlarm, ...]


def read_watched(folder: str, until: int | None = None) -> WatchedRun:
    """What the log of a run's folder says, up to a step where one is given.

    Raises:
        UsageError: the folder has no log.
    """
    file = Path(folder) / LOG
    if not file.is_file():
        raise UsageError(f"'{folder}' has no {LOG}; give the output folder of a run, or a CSV file")
    events = [event for line in file.read_text(encoding="utf-8").splitlines() if (event := _event(line)) is not None]
    events = [each for each in events if until is None or each.get("step", 0) <= until]
    looks = [each for each in events if each["event"] == "watch"]
    lines = [each for each in events if each["event"] == "train"]
    told = [each for each in events if each["event"] == "alarm"]
    watched = bool(looks or told)
    newest: dict[str, Any] = looks[-1] if looks else lines[-1] if lines else {}
    numbers = {
        name: float(value) for name, value in newest.items() if isinstance(value, int | float) and name != "step"
    }
    return WatchedRun(
        folder=folder, step=max((each.get("step", 0) for each in events), default=0), watched=watched,
        ended=(Path(folder) / "model" / "card.json").is_file() and until is None, signals=numbers,
        alarms=_told(told, events) if watched else _judged(lines),
    )  # fmt: skip


def _event(line: str) -> dict[str, Any] | None:
    """A line of the log; None where it was half written."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _told(told: list[dict[str, Any]], events: list[dict[str, Any]]) -> tuple[RunAlarm, ...]:
    """Alarms that the job told, each with what was done because of it."""
    done = [
        (each["step"], each["because"], f"{each['what']}: {each['done']}")
        for each in events
        if each["event"] == "watcher"
    ]
    found: list[RunAlarm] = []
    for each in told:
        step, why = each["step"], each["because"]
        then = next((what for at, because, what in done if at >= step and because == why), "")
        found.append(RunAlarm(step=step, since=each["since"], kind=each["kind"], because=why, done=then))
    return tuple(found)  # fmt: skip


def _judged(lines: list[dict[str, Any]]) -> tuple[RunAlarm, ...]:
    """Alarms that detectors raise over the lines of a run that was not watched."""
    found: list[RunAlarm] = []
    for name in LOGGED:
        series, before = AlarmingSeries(REPLAY), 0
        for each in lines:
            if name not in each:
                continue
            if series.add(float(each[name])) is not None:
                because = f"{name} is {each[name]:.4g}, {series.last:.0f} robust deviations from its mean"
                found.append(RunAlarm(step=each["step"], since=before, kind=name, because=because))
            before = each["step"]
    return tuple(sorted(found, key=lambda each: each.step))
