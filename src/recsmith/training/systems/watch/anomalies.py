"""The watcher that reports anomalies in a job, and acts on them if asked: `watch: auto` of a run.

Every few steps, at a look, each rank adds up what it sees. The sums are reduced over ranks while training continues. At
the next look every rank judges them in the same way, so all ranks raise an alarm at the same step, with the same wish.
"""

from dataclasses import replace

import numpy as np
import torch.distributed as dist

from recsmith.data import Batch
from recsmith.data.deduplication import expanded
from recsmith.errors import CorruptFile, MissingExtra
from recsmith.files import Raw
from recsmith.streaming.detectors.plain_state import places_of
from recsmith.streaming.job_signals import KINDS, ROWS, Finding, JobSignals
from recsmith.streaming.job_sums import JobLayout
from recsmith.streaming.known_ids import KnownIds
from recsmith.streaming.repeats import MOST, SeenSamples
from recsmith.streaming.sketch_files import SketchFiles
from recsmith.training.job.job import TrainingJob, log_wish
from recsmith.training.systems.watch.alarm_log import ALARM, SIGNALS
from recsmith.training.systems.watch.looking import (
    RankView,
    SumsOnTheirWay,
    choose_full,
    columns_of,
    counts_of_all,
    gathered,
    layout_of,
    merged_bits,
    samples_of,
)
from recsmith.training.systems.watch.plan_watch import WatchedPlan
from recsmith.training.systems.watch.rows_in_time import growth_of, too_few_rows
from recsmith.training.systems.watch.settings import VERSION, Action, WatchSettings
from recsmith.training.watchers.protocol import Seen, Watcher, Wish

SKETCH_EVERY = 1000  # steps between checks of table rows, if no sketches are written
PLAN_STEPS, PLAN_SKIP, PLAN_SEARCH_S = 20, 2, 20.0  # steps, skipped steps and seconds of search, for an action replan


class AnomalyWatcher(Watcher):
    """Watches a job, with a look every few steps. Settings are those of WatchSettings."""

    described_by = (WatchSettings,)
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
        self.sums = SumsOnTheirWay()
        self._job: TrainingJob | None = None
        self._raw: Raw | None = None  # state of a checkpoint to continue from
        self._before: tuple[Raw, str] | None = None  # final state and path of the training that the run starts from
        self._replanning: tuple[Finding, WatchedPlan] | None = None
        self._acted: int | None = None  # step of the last action
        self._step, self._written = 0, 0  # step of the last look, and of the last logged signals

    def look(self, seen: Seen) -> Wish | None:
        """Record a step. At a look, judge the sums of the look before, and send those of this one."""
        if seen.job is not self._job:
            self._prepare(seen.job, seen.step)
        self._step = seen.step
        self.view.step(seen)
        for place in seen.outcome.places:
            samples = expanded(place.samples)
            self.samples.add(samples.sample_ids, (place.state or {}).get("epoch", 0))
            if self.columns.counts(seen.step):
                self.columns.add(samples)
        wish = self._replanned(seen)
        return wish if seen.step % self.settings.every else self._look(seen) or wish

    def look_at_end(self, seen: Seen) -> Wish | None:
        """Judge the sums sent at the last look, and the steps since, which are fewer than those of a look."""
        wish = None
        if seen.step % self.settings.every:
            if not self.columns.counts(seen.step):
                self.columns.add(expanded(seen.outcome.places[-1].samples))
            wish = self._look(seen)
        return self._told(seen, self._judged()) or wish

    def leave(self) -> None:
        """Forget the job's model; steps that were counted for a new plan were those of that model."""
        if self._job is not None:
            self._job = None
            del self.view
        if self._replanning is not None:
            self._replanning = self._replanning[0], _plan_watch()

    # --- looks ---------------------------------------------------------------------------------------------------

    def _look(self, seen: Seen) -> Wish | None:
        """Judge the sums of the look before, and send those of this one."""
        findings, samples = self._judged(), expanded(seen.outcome.places[-1].samples)
        self._send(seen, samples)
        if self.growth is not None:
            findings += too_few_rows(seen, samples, self.growth, self._period(SKETCH_EVERY))
        wish = self._told(seen, findings)
        self._write(seen)
        return wish

    def _period(self, steps: int = 0) -> int:
        """Steps in one file of sketches, rounded up to whole looks. steps: used if no sketches are written."""
        return -(-(self.settings.sketch_every or steps) // self.settings.every) * self.settings.every

    def _prepare(self, job: TrainingJob, step: int) -> None:
        """Prepare for a job that begins, or was prepared again: under another plan, or from a checkpoint."""
        layout = layout_of(job)
        self._job, self.view = job, RankView(job, layout, self.settings.ids)
        if self.signals is None:
            self._begin(job, layout)
            return
        self.signals.relaid(layout)
        if step <= self._step:  # steps are repeated, which is no fault; sums of the discarded steps are dropped
            self.sums.take()
            self.columns.take()
            self.growth = growth_of(job, self.settings.every) if self.growth is not None else None
            self.samples, self._written = SeenSamples(most=self.samples.most), min(self._written, step)
            self._acted = None if self._acted is None else min(self._acted, step)

    def _begin(self, job: TrainingJob, layout: JobLayout) -> None:
        wanted, notes = self.settings, list[str]()
        wanted.check_features(layout.features)
        self.signals = self._new_signals(layout)
        if self.signals.missing:
            notes.append(f"hot sets and drifts are left out: {self.signals.missing}")
        self.samples = SeenSamples(most=max(64, MOST // layout.ranks))
        self.columns = columns_of(job, layout, wanted.every)
        self.growth = growth_of(job, wanted.every) if ROWS in (wanted.kinds or KINDS) else None
        self.sketches: SketchFiles | None = None
        if wanted.sketch_every:
            try:
                rows = {
                    each.name: table.num_embeddings for table in job.plan.workload.tables for each in table.features
                }
                self.sketches = SketchFiles(
                    job.output, dist.get_rank(), layout.features, wanted.sketch_every, rows, wanted.every
                )  # fmt: skip
            except MissingExtra as error:
                notes.append(f"no sketches are written: {error}")
        raw, path = (self._raw, "") if self._raw is not None or self._before is None else self._before
        if raw is not None and (problem := self._go_on(raw, layout, path)):
            notes.append(f"begins anew: {problem}")
        elif raw is not None and (columns_note := wanted.told_columns(raw, layout.features, layout.dense)):
            notes.append(columns_note)
        self._raw = self._before = None
        for note in (wanted.told_from(job.total_steps, self.signals.looks, path or str(job.output)), *notes):
            job.log.say({"note": f"watch: {note}"})

    def _new_signals(self, layout: JobLayout) -> JobSignals:
        return JobSignals(layout, kinds=self.settings.kinds or KINDS, watched=self.settings.features or None)

    def _send(self, seen: Seen, samples: Batch) -> None:
        """Add up this rank's step, and start the reduction over ranks."""
        assert self.signals is not None
        group = seen.job.agreement.group
        sums = self.columns.take()
        self.view.add(seen, samples, sums, self.signals.hot, self.sketches)
        self.columns.known.look(lambda bits: merged_bits(bits, group))
        sums["checked"], sums["repeated"] = self.samples.take()
        choose_full(self.signals.hot, group)
        self.sums.send(seen.step, sums, group)

    def _judged(self) -> list[Finding]:
        """Judge the sums of the look before."""
        assert self.signals is not None
        sent = self.sums.take()
        return [] if sent is None else self.signals.look(*sent)

    # --- alarms and actions --------------------------------------------------------------------------------------

    def _told(self, seen: Seen, findings: list[Finding]) -> Wish | None:
        """Log alarms. Returns the wish for the newest alarm that asks for an action, or None."""
        return next(filter(None, [self._tell(seen, each) for each in findings][::-1]), None)

    def _tell(self, seen: Seen, finding: Finding) -> Wish | None:
        job, action = seen.job, self.settings.actions.get(finding.kind)
        if self._acted is not None and seen.step - self._acted < self.settings.cooldown:
            action = None
        job.log.write(ALARM, {"step": seen.step, "since": finding.step, "kind": finding.kind, "of": finding.of,
                              "because": finding.because, "action": action})  # fmt: skip
        job.log.show(seen.step, f"alarm/{finding.kind}", finding.because)
        job.log.say({"note": f"step {seen.step:,}: ALARM {finding.kind}: {finding.because}"})
        if action is None:
            return None
        self._acted = seen.step
        if action != "replan":
            return Wish(action, finding.because)
        if job.total_steps is None:
            log_wish(job, Wish(action, finding.because), "not planned: give `steps`, for what pays depends on them")
        else:
            self._replanning = finding, _plan_watch()
        return None

    def _replanned(self, seen: Seen) -> Wish | None:
        """The wish for a plan that pays, once enough steps were counted since the alarm; else None."""
        if self._replanning is None:
            return None
        finding, watch = self._replanning
        wish = watch.look(seen)
        if watch.done:
            self._replanning = None
            if wish is None:
                log_wish(seen.job, Wish("replan", finding.because), "no other plan pays for the steps that are left")
        return None if wish is None else replace(wish, because=f"{finding.because}; {wish.because}")

    def _write(self, seen: Seen) -> None:
        """Log signals, as often as training lines, and write sketches at the end of their period."""
        assert self.signals is not None
        every = seen.job.run.metrics.every
        if seen.step // every > self._written // every and self.signals.values:
            values = {name: value for name, value in self.signals.values.items() if np.isfinite(value)}
            hot = {f"hot_set/{name}": each.share for name, each in self.signals.hot.items() if each.chosen}
            seen.job.log.write(SIGNALS, {"step": seen.step, **values, **hot})
            self._written = seen.step
        if self.sketches is not None and seen.step % self._period() == 0:
            self._warn(self.sketches.write(seen.step))

    def close(self, error: BaseException | None) -> None:
        """Write the remaining sketches of a job, for a last period that is shorter."""
        if error is None and self.signals is not None and self.sketches is not None:
            self._warn(self.sketches.finish(self._step))

    def _warn(self, problem: str | None) -> None:
        if problem is not None and self._job is not None:
            self._job.log.warn(problem)

    # --- state ---------------------------------------------------------------------------------------------------

    def to_raw(self) -> Raw | None:
        """The state of all ranks, for a checkpoint. Every rank must call this at the same step."""
        if self.signals is None or self._job is None:
            return self._raw  # no step was trained since
        group, layout = self._job.agreement.group, self.signals.layout
        sums, signals = self.sums.to_raw(), self.signals.to_raw()
        for name, counts in counts_of_all(self.signals.hot, group).items():
            signals["hot"][name]["_counts"] = counts
        return {
            "version": VERSION, "every": self.settings.every, "features": list(layout.features),
            "dense": list(layout.dense), "labels": list(layout.labels),
            "sums": sums, "signals": signals, "acted": self._acted,
            "samples": gathered(self.samples.to_raw(), group), "columns": gathered(self.columns.mine(), group),
            "known": self.columns.known.merged(lambda bits: merged_bits(bits, group)).to_raw(),
        }  # fmt: skip

    def from_raw(self, raw: Raw) -> None:
        """Set the state to continue from at the first look. A state of another version is ignored, with a note."""
        self._raw = raw

    def begin_after(self, raw: Raw, path: str) -> None:
        """Set the state of the training at `path`, which defines what is usual."""
        self._before = raw, path

    def _go_on(self, raw: Raw, layout: JobLayout, path: str) -> str | None:
        """Continue from a state. Returns why it cannot be used, in which case the watch starts anew; else None.

        path: of the training that the run starts from, whose state it is; empty if it is the job's own.
        """
        assert self.signals is not None
        assert self._job is not None
        if (problem := self.settings.why_anew(raw, layout.labels)) is not None:
            return problem
        if not path and self.settings.told_columns(raw, layout.features, layout.dense):
            return "its state is of other features"
        rank = dist.get_rank()
        try:
            before = replace(layout, features=tuple(raw["features"]), dense=tuple(raw["dense"]))
            self.signals, known = self._new_signals(before), KnownIds(len(before.features))
            self.signals.from_raw(raw["signals"])
            self.signals.relaid(layout)
            known.from_raw(raw["known"])
            self.columns.known = known.with_features(places_of(layout.features, before.features))
            if path:
                self.signals.forget_job()
            else:
                self.samples = samples_of(raw["samples"], rank, layout.ranks, self.samples.most)
                self.sums.from_raw(raw["sums"], layout)
                self.columns.go_on(raw["columns"], rank, layout.ranks)
                self._acted = raw["acted"]
        except (CorruptFile, LookupError, TypeError, ValueError) as error:
            self.signals, self.sums = self._new_signals(layout), SumsOnTheirWay()
            self.columns = columns_of(self._job, layout, self.settings.every)
            return str(error)
        for hot in self.signals.hot.values() if rank else ():
            hot.forget_counts()  # rank 0 has them
        return None


def _plan_watch() -> WatchedPlan:
    return WatchedPlan(steps=PLAN_STEPS, skip=PLAN_SKIP, search_s=PLAN_SEARCH_S)
