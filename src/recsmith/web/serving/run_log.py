"""The log of a training run so far; each call reads on from where the last one stopped.

The cost of a call is proportional to the new lines. A job that resumes from a checkpoint drops the lines of lost steps,
and its log is then read anew. A curve keeps a bounded number of points: if there are too many, every second is dropped.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, harmonic_mean
from typing import Any, cast

from recsmith.training.results.watched import RunAlarm
from recsmith.web.serving import answers

BLOCK = 4 * 2**20  # bytes of a log that one call reads; the next call reads the rest
LONGEST = 2**20  # bytes of a line; a longer one counts as damaged
MOST_POINTS = 1_000  # points of a curve
LATEST = 20  # newest lines of training whose mean is the measured step: a window of samples is read within few of them
CURVES = {  # event -> its numbers that are shown as curves
    "train": ("logloss", "ne", "auc", "samples_per_s", "step_s", "data_s", "forward_s", "backward_s"),
    "test": ("logloss", "ne", "auc"),
}
ALARM, DONE = "alarm", "watcher"  # events: what a watcher noticed, and what was done about it


class LogSoFar:
    """Curves, alarms and the newest step of a log, up to where it was read."""

    inode: int
    at: int

    def __init__(self, file: Path) -> None:
        self.file = file
        self._forget()

    def _forget(self) -> None:
        self.inode, self.at, self.written = 0, 0, 0.0
        self.step, self.damaged, self.has_more = 0, 0, False
        self.predicted_s: float | None = None
        self.alarms: list[RunAlarm] = []
        self._curves: dict[str, ThinnedCurve] = {}
        self._latest: list[dict[str, Any]] = []

    def read_on(self) -> None:
        """Read new lines, at most BLOCK bytes; read anew if the file was replaced or is shorter."""
        try:
            with self.file.open("rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self.inode or state.st_size < self.at:
                    self._forget()
                self.inode, self.written = state.st_ino, state.st_mtime
                file.seek(self.at)
                block = file.read(BLOCK)
                self.has_more = self.at + len(block) < state.st_size
        except OSError:
            return
        whole = block.rfind(b"\n") + 1
        if not whole and len(block) > LONGEST:  # a line without an end
            whole, self.damaged = len(block), self.damaged + 1
            block = b""
        self.at += whole
        for line in block[:whole].splitlines():
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        raw = cast(dict[str, Any], found) if isinstance(found, dict) else {}
        event, step = raw.get("event"), raw.get("step", 0)
        if not isinstance(event, str) or isinstance(step, bool) or not isinstance(step, int) or abs(step) >= 2**53:
            self.damaged += 1
            return
        self.step = max(self.step, step)
        if event in CURVES:
            for name in CURVES[event]:
                if (value := number_of(raw, name)) is not None:
                    self._curves.setdefault(f"{event} {name}", ThinnedCurve()).add(step, value)
        if event == "start":
            self.predicted_s = number_of(raw, "predicted_step_s")
        elif event == "train":
            self._latest = [*self._latest[-LATEST + 1 :], raw]
        elif event in (ALARM, DONE):
            self._alarm(raw, event, step)

    def _alarm(self, raw: dict[str, Any], event: str, step: int) -> None:
        """Add an alarm, or add what was done about an alarm to that alarm."""
        because, done = str(raw.get("because", "")), str(raw.get("done", ""))
        if event == DONE:
            for number, each in reversed(list(enumerate(self.alarms))):
                if because.startswith(each.because) and not each.done:
                    words = f"{raw.get('what', '')}: {done}"
                    self.alarms[number] = RunAlarm(
                        step=each.step, since=each.since, kind=each.kind, because=each.because, done=words
                    )
                    return
        since = raw.get("since")
        begun = since if isinstance(since, int) and not isinstance(since, bool) else step
        kind = str(raw.get("kind", raw.get("what", "")))
        self.alarms.append(RunAlarm(step=step, since=begun, kind=kind, because=because, done=done))

    def measured(self) -> answers.MeasuredStep | None:
        """Means over the newest lines of training; None before the first one."""

        def of_lines(name: str, mean: Callable[[Sequence[float]], float] = fmean) -> float | None:
            values = [value for line in self._latest if (value := number_of(line, name)) is not None]
            return mean(values) if values and min(values) >= 0 else None

        step = of_lines("step_s")
        if step is None:
            return None
        return answers.MeasuredStep(
            lines=len(self._latest), step_s=step, samples_per_s=of_lines("samples_per_s", harmonic_mean),
            data_s=of_lines("data_s"), forward_s=of_lines("forward_s"), backward_s=of_lines("backward_s"),
        )  # fmt: skip

    def curves(self) -> Iterator[answers.RunCurve]:
        """Each curve so far."""
        for name, curve in self._curves.items():
            yield answers.RunCurve(name=name, points=tuple(curve.points))


class ThinnedCurve:
    """A bounded number of points: one of every `stride`, and the newest."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, float]] = []
        self.stride, self.heard = 1, 0
        self.newest: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        """Add a point."""
        self.newest = (step, value)
        if self.heard % self.stride == 0:
            self.kept.append((step, value))
        self.heard += 1
        if len(self.kept) > MOST_POINTS:
            self.kept, self.stride = self.kept[::2], 2 * self.stride

    @property
    def points(self) -> list[tuple[int, float]]:
        """The kept points in order, and the newest."""
        last = self.kept[-1:] != [self.newest] and self.newest is not None
        return [*self.kept, *([self.newest] if last and self.newest else [])]


def number_of(line: dict[str, Any], name: str) -> float | None:
    """A finite number in a log line; None if it has none of that name."""
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None
