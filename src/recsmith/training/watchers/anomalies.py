"""Tells what goes wrong in a job, and acts where asked: `watch: auto` of a run.

Every so many steps each rank adds up what it sees. The sums cross ranks while training goes on, and are judged at the
next look, by every rank alike: so all alarm at the same step, and wish the same.
"""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from recsmith.data.deduplication import expanded
from recsmith.errors import CorruptFile, MissingExtra, UsageError
from recsmith.files import Raw, did_you_mean
from recsmith.streaming.hot_sets import added_up, packed, unpacked
from recsmith.streaming.job_signals import KINDS, Finding, JobSignals
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.repeats import MOST, SeenSamples
from recsmith.training.job import TrainingJob
from recsmith.training.watchers.anomaly_settings import Action, WatchSettings
from recsmith.training.watchers.looking import RankView, layout_of
from recsmith.training.watchers.plan_watch import WatchedPlan
from recsmith.training.watchers.protocol import Seen, Watcher, Wish
from recsmith.training.watchers.sketch_files import SketchFiles

VERSION = 1  # of the state that checkpoints keep
PLAN_STEPS, PLAN_SKIP, PLAN_SEARCH_S = 20, 2, 20.0  # of the watch that a replan begins with; seconds a limit


class AnomalyWatcher(Watcher):
    """Looks at a job every so many steps; settings are those of WatchSettings."""

    every = 1

    def __init__(
        self, *, every: int = 8, ids: int = 256, kinds: tuple[str, ...] = (), features: tuple[str, ...] = (),
        actions: dict[str, Action] | None = None, cooldown: int = 1000, sketch_every: int = 1000,
    ) -> None:  # fmt: skip
        self.settings = WatchSettings(
            every=every, ids=ids, kinds=kinds, features=features, actions=actions or {}, cooldown=cooldown,
            sketch_every=sketch_every,
        )  # fmt: skip
        self.signals: JobSignals | None = None
        self._job: TrainingJob | None = None
        self._raw: Raw | None = None  # state to go on from
        self._notes: list[str] = []
        self._replanning: WatchedPlan | None = None
        self._acted: int | None = None  # step of the last action
        self._work: Any = None
        self._sent: torch.Tensor | None = None
        self._sent_at = 0
        self._checked, self._repeated, self._written = 0, 0, 0

    def look(self, seen: Seen) -> Wish | None:
        """Take the times of a step; at a look, judge the sums of the one before and send those of this one."""
        if seen.job is not self._job:
            self._prepare(seen.job)
        batches = [expanded(place.samples) for place in seen.outcome.places]
        self.view.step(seen)
        for batch in batches:
            checked, repeated = self.samples.add(batch.sample_ids, len(batch) * self.view.layout.ranks)
            self._checked, self._repeated = self._checked + checked, self._repeated + repeated
        wish = self._replanned(seen)
        if seen.step % self.settings.every == 0:
            findings = self._judged()
            self._send(seen, batches[-1])
            for finding in findings:
                wish = self._tell(seen, finding) or wish
            self._write(seen)
        return wish

    # --- looks ---------------------------------------------------------------------------------------------------

    def _prepare(self, job: TrainingJob) -> None:
        """Begin, or go on with a job that was prepared anew."""
        layout = layout_of(job)
        self._job, self.view = job, RankView(job, layout, self.settings.ids)
        if self.signals is None:
            self._begin(job, layout)
        elif (layout.features, layout.dense) == (self.signals.layout.features, self.signals.layout.dense):
            self.signals.relaid(layout)
        for note in self._notes:
            job.log.say({"note": f"watch: {note}"})
        self._notes = []

    def _begin(self, job: TrainingJob, layout: JobLayout) -> None:
        wanted = self.settings
        strange = next((each for each in wanted.features if each not in layout.features), None)
        if strange is not None:
            hint = did_you_mean(strange, list(layout.features))
            raise UsageError(f"watch.features names '{strange}', which the data does not have{hint}")
        self.signals = JobSignals(layout, kinds=wanted.kinds or KINDS, watched=wanted.features or None)
        if self.signals.missing:
            self._notes.append(f"hot sets and drifts are left out: {self.signals.missing}")
        length = job.source.length
        self.samples = SeenSamples(most=max(64, MOST // layout.ranks), far=None if length is None else length // 2)
        self.sketches: SketchFiles | None = None
        if wanted.sketch_every:
            try:
                self.sketches = SketchFiles(job.output, dist.get_rank(), layout.features, wanted.sketch_every)
            except MissingExtra as error:
                self._notes.append(f"no sketches are written: {error}")
        if self._raw is not None:
            self._go_on(self._raw)
            self._raw = None

    def _send(self, seen: Seen, samples: Any) -> None:
        """Add up this rank's step, and begin to add up all ranks'."""
        assert self.signals is not None
        sums = self.view.sums(seen, samples, self.signals.hot, self.sketches)
        sums["checked"], sums["repeated"] = self._checked, self._repeated
        self._checked = self._repeated = 0
        self._choose(seen.job)
        self._sent, self._sent_at = torch.from_numpy(sums.vector), seen.step
        self._work = dist.all_reduce(self._sent, group=seen.job.agreement.group, async_op=True)

    def _choose(self, job: TrainingJob) -> None:
        """Choose the hot sets that enough was collected for, of all ranks' ids. Ranks wait for each other here."""
        assert self.signals is not None
        full = {name: hot for name, hot in self.signals.hot.items() if hot.full}
        if not full:
            return
        mine = {name: [packed(part) for part in hot.collected()] for name, hot in full.items()}
        for name, parts in self._gathered(job, mine).items():
            full[name].choose(*added_up(parts))

    def _gathered(self, job: TrainingJob, mine: dict[str, list[str]]) -> dict[str, list[Any]]:
        """Ids and counts of every rank, by feature."""
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine, group=job.agreement.group)
        return {name: [tuple(unpacked(text) for text in each[name]) for each in found] for name in mine}

    def _merged(self) -> JobSums | None:
        """The sums of the look before, of all ranks."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        return None if self._sent is None else JobSums(self.view.layout, self._sent.numpy())

    def _judged(self) -> list[Finding]:
        sums = self._merged()
        self._sent = None
        if sums is None or self.signals is None:
            return []
        return self.signals.look(self._sent_at, sums)

    # --- what is told and done -----------------------------------------------------------------------------------

    def _tell(self, seen: Seen, finding: Finding) -> Wish | None:
        """Log an alarm; the wish that is asked for about it."""
        job, action = seen.job, self.settings.actions.get(finding.kind)
        job.log.write("alarm", {"step": seen.step, "since": finding.step, "kind": finding.kind, "of": finding.of,
                                "because": finding.because, "action": action})  # fmt: skip
        job.log.show(seen.step, f"alarm/{finding.kind}", finding.because)
        job.log.say({"note": f"step {seen.step:,}: ALARM {finding.kind}: {finding.because}"})
        rested = self._acted is None or not 0 <= seen.step - self._acted < self.settings.cooldown
        if action is None or not rested:
            return None
        self._acted = seen.step
        if action != "replan":
            return Wish(action, finding.because)
        if job.total_steps is None:
            job.log.say({"note": "watch: no plan is made anew, for how many steps are left is unknown; give `steps`"})
        else:
            self._replanning = WatchedPlan(steps=PLAN_STEPS, skip=PLAN_SKIP, search_s=PLAN_SEARCH_S)
        return None

    def _replanned(self, seen: Seen) -> Wish | None:
        """The plan that pays, once enough steps were counted since the alarm."""
        if self._replanning is None:
            return None
        wish = self._replanning.look(seen)
        if self._replanning.done:
            self._replanning = None
            if wish is None:
                seen.job.log.say({"note": "watch: no other plan pays for the steps that are left"})
        return wish

    def _write(self, seen: Seen) -> None:
        """Signals for the log, as often as its other lines; sketches at the end of their period."""
        assert self.signals is not None
        every = seen.job.run.metrics.every
        if seen.step // every > self._written // every and self.signals.values:
            values = {name: value for name, value in self.signals.values.items() if np.isfinite(value)}
            hot = {f"hot_set/{name}": each.share for name, each in self.signals.hot.items() if each.chosen}
            seen.job.log.write("watch", {"step": seen.step, **values, **hot})
            self._written = seen.step
        if self.sketches is not None and seen.step % _rounded(self.settings.sketch_every, self.settings.every) == 0:
            self.sketches.write(seen.step)

    # --- state ---------------------------------------------------------------------------------------------------

    def to_raw(self) -> Raw | None:
        """What all ranks know; called on every rank at the same step, for what single ranks keep is gathered."""
        if self.signals is None or self._job is None:
            return None
        self._merged()
        raw, job = self.signals.to_raw(), self._job
        collected = {name: [packed(part) for part in hot.collected()]
                     for name, hot in self.signals.hot.items() if not hot.chosen}  # fmt: skip
        gathered = self._gathered(job, collected)
        for name in collected:
            raw["hot"][name]["_counts"] = [packed(part) for part in added_up(gathered[name])]
        seen: list[Any] = [None] * dist.get_world_size()
        counts = [self._checked, self._repeated]
        dist.all_gather_object(seen, [self.samples.to_raw(), counts], group=job.agreement.group)
        whole = SeenSamples(most=self.samples.most, far=self.samples.far)
        whole.from_raw(seen[0][0])
        others = [SeenSamples() for _ in seen[1:]]
        for other, (part, _) in zip(others, seen[1:], strict=True):
            other.from_raw(part)
        whole.take_in(others)
        layout = self.signals.layout
        return {
            "version": VERSION, "features": list(layout.features), "dense": list(layout.dense), "signals": raw,
            "samples": whole.to_raw(), "counts": [sum(part) for part in zip(*(each[1] for each in seen), strict=True)],
            "sent": None if self._sent is None else [self._sent_at, *self._sent.tolist()],
            "acted": self._acted, "ranks": layout.ranks,
        }  # fmt: skip

    def from_raw(self, raw: Raw) -> None:
        """Go on from there at the first look; state of another version is left out, and that is said."""
        self._raw = raw

    def _go_on(self, raw: Raw) -> None:
        assert self.signals is not None
        layout, first = self.signals.layout, dist.get_rank() == 0
        known = raw.get("version") == VERSION
        if not known or (raw["features"], raw["dense"]) != (list(layout.features), list(layout.dense)):
            self._notes.append(f"begins anew: its state is of {'other features' if known else 'another version'}")
            return
        try:
            self.signals.from_raw(raw["signals"])
            self.samples.from_raw(raw["samples"])
        except (CorruptFile, LookupError, TypeError, ValueError) as error:
            self._notes.append(f"begins anew: {error}")
            self.signals = JobSignals(layout, kinds=self.signals.kinds)
            return
        self._acted = raw["acted"]
        if first:
            self._checked, self._repeated = raw["counts"]
        else:
            for hot in self.signals.hot.values():
                hot.forget_counts()
        if raw["sent"] is not None and raw["ranks"] == layout.ranks:
            self._sent_at, *vector = raw["sent"]
            self._sent = torch.tensor(vector, dtype=torch.float64)

    def close(self, error: BaseException | None) -> None:
        """Nothing is left to do."""


def _rounded(steps: int, every: int) -> int:
    """The smallest multiple of `every` that is not less."""
    return -(-steps // every) * every
