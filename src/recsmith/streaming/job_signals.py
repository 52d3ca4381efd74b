"""Judges the sums of a job's steps: signals by name, alarms of detectors, and faults that counts show with certainty.

A look is an examined step, one in every few. Results are the same on every rank, since the sums are over all ranks.
"""

import math
import statistics
from typing import Any

from recsmith._types import noun
from recsmith.errors import MissingExtra
from recsmith.streaming.causes import Causes
from recsmith.streaming.column_levels import LEVELS, ColumnFault
from recsmith.streaming.detectors.plain_state import NamedStates, PlainState
from recsmith.streaming.hot_sets import HotSet
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.likely_causes import with_cause
from recsmith.streaming.series import AlarmingSeries, is_judged

SIGNALS = ("loss", "ne", "calibration", "gradient_norm", "step_s", "waiting", "imbalance")
CAUSES = ("constant_feature", "empty_feature", "constant_dense", "repeated_samples", "flipped_labels", "learning_rate",
          "slow_rank", "hot_set", *LEVELS, "frequent_id")  # fmt: skip
ROWS = "rows"  # finding that a dynamic table will run out of rows (table_growth.py)
KINDS = (*SIGNALS, *CAUSES, ROWS)
SMOOTHED = 5  # looks over which the median of times is taken, so that one disturbed look is no change
EXPLAINED = 25  # looks after a found cause in which unusual signals count as its consequence and are not reported
SPIKE = {"name": "ewma", "half_life": 60.0, "warm": 25, "threshold": 10.0}
DRIFT = {"name": "adwin", "delta": 2e-4}
DETECTORS: dict[str, dict[str, Any]] = {
    "loss": SPIKE, "ne": SPIKE, "gradient_norm": SPIKE, "step_s": {**SPIKE, "threshold": 12.0},
    "waiting": {**SPIKE, "threshold": 12.0}, "calibration": {**SPIKE}, "imbalance": DRIFT,
}  # fmt: skip
# factor by which a signal must change, in addition to being unusual, to be reported
LEAST = {"step_s": 1.5, "waiting": 1.5, "imbalance": 1.05, "gradient_norm": 1.5, "loss": 1.02, "ne": 1.02,
         "calibration": 1.05}  # fmt: skip
JUDGED_WITH = {"waiting": 0.05}  # added to a share before it is judged, so that changes of tiny shares do not matter
OF_JOB = ("gradient_norm", "step_s", "waiting", "imbalance")  # signals of a job, its plan and machines, not of its data
FOLLOW = ("loss", "ne", "calibration", "gradient_norm", "step_s", "waiting")  # signals that found causes may explain


@noun
class Finding:
    """A problem found in a job: the step since which it exists, its kind, its subject, and an explanation."""

    step: int
    kind: str
    of: str
    because: str


class JobSignals(PlainState):
    """Judges the looks of a job one after the other.

    kinds: kinds of findings to report. watched: features whose hot sets are watched; None: all.
    """

    STATE = ("series", "hot", "causes", "values", "_times", "_usual", "_explained", "_looks", "_step", "_every")

    def __init__(
        self, layout: JobLayout, *, kinds: tuple[str, ...] = KINDS, watched: tuple[str, ...] | None = None
    ) -> None:
        self.layout, self.kinds, self.watched = layout, kinds, watched
        self.missing: str | None = None  # why hot sets and drifts are not watched, if a package is missing
        names = [name for name in SIGNALS if name in kinds]
        self.series = NamedStates({name: made for name in names if (made := self._made(name)) is not None})
        features = layout.features if watched is None else watched
        self.hot = NamedStates(self._hot_sets(features) if "hot_set" in kinds else {})
        self.causes = Causes(layout)
        self.values: dict[str, float] = {}  # values of the newest look, by signal
        self._times: list[list[float]] = []
        self._usual: dict[str, float] = {}
        self._explained, self._looks = -EXPLAINED, 0
        self._step, self._every = 0, 0  # step of the last look, and number of steps between the last two

    def relaid(self, layout: JobLayout) -> None:
        """Continue under another plan or with other columns; baselines of columns that remain are kept."""
        if layout.features != self.layout.features and "hot_set" in self.kinds:
            fresh = self._hot_sets(layout.features if self.watched is None else self.watched)
            self.hot = NamedStates({name: self.hot.get(name, each) for name, each in fresh.items()})
        self.layout = layout
        self.causes.relaid(layout)

    def forget_job(self) -> None:
        """Keep only baselines of data and predictions, for a job that starts where this one ended."""
        for name in set(OF_JOB) & self.series.keys():
            self.series[name] = self._made(name)
            self._usual.pop(name, None)
        self._times, self._explained, self._step = [], -EXPLAINED, 0
        self.causes.forget_job()

    @property
    def looks(self) -> int:
        """Number of looks so far."""
        return self._looks

    def _made(self, name: str) -> AlarmingSeries | None:
        try:
            return AlarmingSeries(DETECTORS[name], episode=EXPLAINED)
        except MissingExtra as error:
            self.missing = str(error)
            return None

    def _hot_sets(self, features: tuple[str, ...]) -> dict[str, HotSet]:
        try:
            return {name: HotSet() for name in features}
        except MissingExtra as error:
            self.missing = str(error)
            return {}

    def look(self, step: int, sums: JobSums) -> list[Finding]:
        """The findings at a step, from the sums of all ranks; each problem is reported once."""
        self._looks += 1
        self._step, self._every = step, step - self._step
        found = [self._found(step, fault) for fault in self.causes.look(sums)]
        for fault in found:
            if fault.kind == "hot_set" and fault.of in self.hot:
                self.hot[fault.of].begin()  # the change is reported, so choose the new hot set
        for name, hot in self.hot.items():
            row = sums.of_feature(self.layout.features.index(name))
            alarm = hot.judge(int(row["hits"]), int(row["ids"]))
            if alarm is not None and not self.causes.broken(name):
                found.append(
                    Finding(
                        step=step, kind="hot_set", of=name, because=with_cause(f"{alarm} (feature '{name}')", "hot_set")
                    )
                )
                self.causes.tell("hot_set", name)
        if found:
            self._explained = self._looks
        self.values = self._signals(sums)
        for name, series in self.series.items():
            if (finding := self._judged(step, name, series)) is not None:
                found.append(finding)
        return [each for each in found if each.kind in self.kinds]

    def _found(self, step: int, fault: ColumnFault) -> Finding:
        """A fault as a finding, with the step since which it exists and one sentence."""
        since = max(step - max(fault.looks - 1, 0) * self._every, 1)
        text = f"{fault.because} since step {since:,}{fault.then}" if fault.looks else fault.because
        return Finding(step=since, kind=fault.kind, of=fault.of, because=text)

    def _judged(self, step: int, name: str, series: AlarmingSeries) -> Finding | None:
        """The finding of a signal's detector, unless a known cause explains it or the change is too small."""
        more = JUDGED_WITH.get(name, 0.0)
        value = self.values.get(name, math.nan) + more
        if not is_judged(value):
            return None
        usual = self._usual.setdefault(name, value)
        alarm = series.add(value)
        self._usual[name] += 0.05 * (value - usual) if series.last <= series.threshold else 0.0
        factor = max(value, 1e-9) / max(usual, 1e-9)
        harmless = max(factor, 1 / factor) < LEAST[name] or (factor < 1 and name != "calibration")
        if alarm is None or harmless or (name in FOLLOW and self._looks - self._explained < EXPLAINED):
            return None
        text = f"{TEXT[name]} is {value - more:.4g}, and was {max(usual - more, 0.0):.4g} before"
        return Finding(step=step, kind=name, of="", because=with_cause(text, name, up=factor > 1))

    def _signals(self, sums: JobSums) -> dict[str, float]:
        samples = max(sums["samples"], 1.0)
        label, predicted = sums["label"] / samples, sums["predicted"] / samples
        own = 0.0 if not 0 < label < 1 else -(label * math.log(label) + (1 - label) * math.log(1 - label))
        steps, waited = sums.ranks[:, 0], sums.ranks[:, 1]
        self._times = [*self._times, [float(steps.max()), float(waited.max())]][-SMOOTHED:]
        step_s = statistics.median(each[0] for each in self._times)
        waited_s = statistics.median(each[1] for each in self._times)
        values = {
            "loss": sums["loss"] / samples, "gradient_norm": sums["gradient"],
            "step_s": step_s, "waiting": waited_s / max(step_s, 1e-9),
        }  # fmt: skip
        if own:
            values |= {"ne": sums["entropy"] / samples / own, "calibration": predicted / label}
        rows = [sum(row[0] * share[rank] for row, share in zip(sums.features.tolist(), self.layout.shares, strict=True))
                for rank in range(self.layout.ranks)]  # fmt: skip
        if sum(rows):
            values["imbalance"] = max(rows) * len(rows) / sum(rows)
        return values


TEXT = {
    "loss": "the loss", "ne": "the normalized entropy", "calibration": "mean prediction over mean label",
    "gradient_norm": "the norm of the dense gradient", "step_s": "the time of a step, in seconds,",
    "waiting": "the share of a step that waits for data", "imbalance": "most rows of a rank over the mean",
}  # fmt: skip
