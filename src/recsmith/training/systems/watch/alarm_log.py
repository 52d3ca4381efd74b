"""Read the log of a run: alarms, actions and signals. Also judges runs that were not watched.

Imports no torch.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from recsmith.errors import RecSmithError, UsageError
from recsmith.files import decode
from recsmith.jobs.log_lines import LOG, ODD, lacking, logged
from recsmith.streaming.likely_causes import with_cause
from recsmith.streaming.series import AlarmingSeries, is_judged
from recsmith.training.results.watched import RunAlarm, WatchedRun, slow_trainer_of_run
from recsmith.training.run import load_run
from recsmith.training.systems.watch.settings import NONE
from recsmith.units import counted

RUN = "run.json"

ALARM, SIGNALS = "alarm", "watch"  # events of a watch in the log
LOGGED = ("logloss", "ne", "calibration", "auc", "samples_per_s")  # of training lines, if a run was not watched
SIGNAL_OF = {"logloss": "loss"}  # names of these values in a watched job
REPLAY = {"name": "ewma", "warm": 10, "half_life": 30.0, "threshold": 8.0}  # a line is the mean of many steps


def read_watched(folder: str, until: int | None = None) -> WatchedRun:
    """Read what the log of a run's folder says, up to a step if one is given.

    Raises:
        UsageError: the folder has no log.
        CorruptFile: a line lacks a value.
    """
    file = Path(folder) / LOG
    if not file.exists():
        raise UsageError(f"'{folder}' has no {LOG}; give the output folder of a run, or a CSV file")
    events = logged(file, until=until)
    looks = [each for each in events if each["event"] == SIGNALS]
    lines = [each for each in events if each["event"] == "train"]
    raised = [each for each in events if each["event"] == ALARM]
    done = [each for each in events if each["event"] == "watcher"]
    watched = bool(looks or raised) or _was_watched(Path(folder))
    newest: dict[str, Any] = looks[-1] if looks else lines[-1] if lines else {}
    try:
        numbers = {
            name: float(value) for name, value in newest.items() if isinstance(value, int | float) and name != "step"
        }
        alarms = _told(raised, done) if watched else (*_judged(lines), *_told([], done))
    except ODD as error:
        raise lacking(file, error) from None
    slow = slow_trainer_of_run(folder, until)
    return WatchedRun(
        folder=folder, step=max((each.get("step", 0) for each in events), default=0), watched=watched,
        ended=(Path(folder) / "model" / "card.json").is_file() and until is None, signals=numbers,
        alarms=tuple(sorted(alarms, key=lambda alarm: alarm.step)), slow=None if slow is None else str(slow),
    )  # fmt: skip


def told_line(folder: Path) -> str:
    """The alarms of a run so far, as a sentence."""
    alarms = logged(folder / LOG, ALARM) if (folder / LOG).exists() else []
    if not alarms:
        return "watch: no alarm"
    kinds = Counter(str(each["kind"]) for each in alarms)
    named = ", ".join(f"{count} of {kind}" for kind, count in kinds.most_common())
    return f"watch: {counted(len(alarms), 'alarm')}: {named}; the last one at step {alarms[-1]['step']:,}"


def _was_watched(folder: Path) -> bool:
    """Whether a run's file asks for a watch, even if there was no look yet."""
    try:
        return load_run(folder / RUN).watch != NONE
    except RecSmithError:
        return False


def _told(alarms: list[dict[str, Any]], done: list[dict[str, Any]]) -> tuple[RunAlarm, ...]:
    """Alarms that the job raised, each with the action that followed; then actions taken for other reasons."""
    left, found = list(done), list[RunAlarm]()
    for each in alarms:
        then = next((event for event in left if _follows(event, each)), None)
        if then is not None:
            left.remove(then)
        text = "" if then is None else f"{then['what']}: {then['done']}"
        found.append(_alarm(each, each["since"], each["kind"], text))
    return (*found, *(
        _alarm(each, each["step"], each["what"], each["done"]) for each in left
    ))  # fmt: skip


def _alarm(line: dict[str, Any], since: Any, kind: Any, done: Any) -> RunAlarm:
    values = {"step": line["step"], "since": since, "kind": kind, "because": line["because"], "done": done}
    return decode(RunAlarm, values, "an alarm")


def _follows(event: dict[str, Any], alarm: dict[str, Any]) -> bool:
    """Whether an action followed from an alarm."""
    return (
        event["what"] == alarm["action"]
        and event["step"] >= alarm["step"]
        and event["because"].startswith(alarm["because"])
    )


def _judged(lines: list[dict[str, Any]]) -> tuple[RunAlarm, ...]:
    """Alarms that detectors raise over the training lines of a run that was not watched."""
    found: list[RunAlarm] = []
    for name in LOGGED:
        series, before = AlarmingSeries(REPLAY), 0
        for each in lines:
            if not is_judged(each.get(name)):  # such as a loss of NaN
                continue
            value, usual = float(each[name]), series.detector.mean
            if series.add(value) is not None:
                text = f"{name} is {value:.4g}, and was {usual:.4g} before ({series.last:.0f} robust deviations)"
                because = with_cause(text, SIGNAL_OF.get(name, name), up=value > usual)
                found.append(RunAlarm(step=each["step"], since=before, kind=name, because=because))
            before = each["step"]
    return tuple(found)
