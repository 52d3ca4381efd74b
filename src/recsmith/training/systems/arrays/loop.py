"""An array on one rank: the usual training loop trains its members together, each with its own folder and log.

A member is a TrainingJob like any other, and its folder is the same as if it had been trained alone. Work between the
steps is done for each member by job/job.py.
"""

import copy
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import RecSmithError
from recsmith.files import Raw, decode, encode
from recsmith.jobs.log_lines import BROUGHT
from recsmith.plans import Plan, save_plan
from recsmith.scoring.predictions import Window
from recsmith.scoring.scores import Scores
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.agreement import Agreement, Diverged, Ending, Wish
from recsmith.training.job.checkpoints import Checkpoints
from recsmith.training.job.evaluating import score_each, scored_labels
from recsmith.training.job.finishing import finish
from recsmith.training.job.job import Progress, TrainingJob, evaluate_now, log_progress, save, write_once
from recsmith.training.job.log import RunLog, StepTimes, tell_note
from recsmith.training.job.plan import agreed_plan
from recsmith.training.job.sharded import ShardedJob, rank_device
from recsmith.training.job.starting import (
    batches_from,
    owning,
    plan_anew,
    progress_of,
    ranks_per_host,
    set_state,
    settled,
)
from recsmith.training.loop import TrainedModels
from recsmith.training.run import Run, run_to_raw, save_run
from recsmith.training.sources import open_data, open_source
from recsmith.training.sources.protocol import BatchSource
from recsmith.training.steps.protocol import StepOutcome
from recsmith.training.systems.arrays.gains import ArrayGain
from recsmith.training.systems.arrays.going_on import checkpoints_of, newest_of_all, prepared_array
from recsmith.training.systems.arrays.members import (
    FILE,
    EndedMember,
    EndedMembers,
    members_of,
    read_ended,
    write_ended,
)
from recsmith.training.systems.arrays.model import Member, UnshardedArray, unsharded_array
from recsmith.training.systems.arrays.sharding import member_plan, shard_array
from recsmith.training.systems.arrays.weighing import step_by_rank_0, weighed
from recsmith.training.watchers import Watchers
from recsmith.units import counted, format_time

DIVERGED = (
    "its loss is not finite after step {step:,}, so it ends here, and its checkpoints are from before it; the other "
    "members train on: give it a lower optimizers.dense.learning_rate or optimizers.sparse.learning_rate, or "
    "optimizers.dense.clip_norm"
)


class ArrayModels(TrainedModels):
    """The members of an array on this rank, which the steps of one job train together.

    job: of the array. members: each as a job of its own, by name. ended: why members that diverged have ended.
    predicted: the predicted gain of training them together.
    """

    def __init__(
        self, job: TrainingJob, members: Mapping[str, TrainingJob], ended: dict[str, EndedMember], predicted: ArrayGain
    ) -> None:
        self.job, self.members, self.ended, self.predicted = job, members, ended, predicted
        device = job.sharded.device
        self._windows = {
            name: Window(device, scored_labels(each.run, each.source.schema)) for name, each in members.items()
        }
        self._broken = torch.zeros(len(members), dtype=torch.bool, device=device)

    @property
    def alive(self) -> dict[str, TrainingJob]:
        """The members that have not ended, by name."""
        return {name: each for name, each in self.members.items() if name not in self.ended}

    def took(self, outcome: StepOutcome) -> None:
        """Keep the predictions of each member, and note whether its loss was finite."""
        alive, there = self.alive, self.job.progress
        for number, (name, member) in enumerate(self.members.items()):
            if name in alive:
                progress = member.progress
                progress.step, progress.position, progress.corrupt = there.step, there.position, there.corrupt
                self._windows[name].add(outcome.logits[number], outcome.labels, outcome.samples)
        self._broken |= ~outcome.loss.isfinite()

    def agree(self) -> None:
        """End members whose loss was not finite on at least one rank.

        Raises:
            RecSmithError: no member is left.
        """
        flags = self._broken.cpu().float()
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.job.agreement.group)
        for number, (name, member) in enumerate(self.members.items()):
            if flags[number] and name not in self.ended:
                self._end(number, name, member)
        if not self.alive:
            raise RecSmithError(f"all members of the array have diverged: {'; '.join(self.members)}; lower their rates")

    def _end(self, number: int, name: str, member: TrainingJob) -> None:
        because = DIVERGED.format(step=member.progress.step)
        self.ended[name] = EndedMember(step=member.progress.step, because=because)
        self.job.sharded.model.module.layers.alive[number] = False  # type: ignore[union-attr]
        member.log.write("ended", {"step": member.progress.step, "because": because})
        member.log.say({"note": because})
        if dist.get_rank() == 0:
            write_ended(self.job.output, self.ended)

    def tell(self, times: StepTimes, total: int | None) -> None:
        """Log the scores of each member, and the times of the steps."""
        for name, member in self.alive.items():
            member.progress.scores = self._windows[name].scores()
            log_progress(member, copy.copy(times), total)
        times.take()

    def evaluate(self) -> None:
        """Log the scores of each member on data.test; watchers do not see them."""
        for name, scores in self._scores().items():
            evaluate_now(self.members[name], scores)

    def _scores(self) -> dict[str, Scores]:
        """Scores on data.test of each member that has not ended; all members predict at once."""
        first = next(iter(self.members.values()))
        dataset = open_data(self.job.run.data.test, "data.test")
        found = score_each(self.job.sharded, dataset, first.features, first.batch_size, first.run, len(self.members))
        return {name: each for name, each in zip(self.members, found, strict=True) if name not in self.ended}

    def save(self) -> None:
        """Save each member; if the disk refuses one, remove all checkpoints of this step."""
        members, step = list(self.alive.values()), self.job.progress.step
        before = {member.run.output: member.progress.saved for member in members}
        for member in members:
            save(member)
            if member.progress.saved != member.progress.step:
                break
        whole = all(member.progress.saved == step for member in members)
        for member in members:
            if not whole:
                member.progress.saved = before[member.run.output]
            if dist.get_rank() == 0:
                member.checkpoints.prune() if whole else member.checkpoints.drop(member.progress.saved)
        self.job.progress.saved = members[0].progress.saved
        dist.barrier()

    def plan_anew(self, wish: Wish) -> tuple[Plan | None, str]:
        """(a better plan to continue with, or None; the reason)."""
        if self.job.run.checkpoint is not None and self.job.progress.saved != self.job.progress.step:
            self.save()
        return plan_anew(self.job, wish)

    def refreshed(self) -> None:
        """Mark the members' scores on data.test as outdated."""
        for member in self.members.values():
            member.progress.tested = None

    def poll(self) -> None:
        """Do nothing: no checkpoint of an array is written in the background."""

    def finish(self, *, ended: bool) -> Raw:
        """Write last checkpoints, scores and exported models of all members that have not ended; returns the result."""
        run, progress = self.job.run, self.job.progress
        asked = run.data.test is not None and any(each.progress.test_now is None for each in self.alive.values())
        test = self._scores() if asked and not ended else {}
        results: dict[str, Raw] = {
            name: {"step": each.step, "complete": False, "ended": each.because} for name, each in self.ended.items()
        }
        if run.checkpoint is not None and not ended and progress.saved < progress.step:
            self.save()
        for name, member in self.alive.items():
            member.progress.sent_bytes = progress.sent_bytes
            results[name] = finish(member, ended=ended, test=test.get(name))
        brought = self._brought()
        write_once(self.job, BROUGHT, {"step": progress.step, "said": brought})
        return {**_of_all({name: results[name] for name in members_of(run)}, complete=True), "brought": brought}

    def _brought(self) -> dict[str, str]:
        """A line on the seconds of a step of all members, measured and predicted, and on members that ended early."""
        seconds, predicted = self.job.progress.step_s, self.predicted
        ended = [name for name in self.members if name in self.ended]
        early = f", of which {', '.join(ended)} ended before the others" if ended else ""
        found = "" if seconds is None else f"; the usual step of all took {format_time(seconds)}"
        gain = "; no step was predicted" if predicted.step is None else (
            f"; {format_time(predicted.step.step_s)} were predicted, {predicted.value:.2f} times the models a second "
            "of one after the other")  # fmt: skip
        return {"array": f"array: {counted(len(self.members), 'member')} trained together{early}{found}{gain}"}


def train_array(
    run: Run, agreement: Agreement, ending: Ending, train_one: Callable[[Raw], Raw], train: Callable[..., Any]
) -> Raw:
    """Train the members of an array on this rank, together or in turn; returns their results (JSON data).

    train_one: trains one run. train: trains the models of a prepared job (`train_prepared` of training/loop.py).
    """
    source = open_source(run)
    gain, lines = weighed(run, source, dist.get_world_size(), rank_device(), step_by_rank_0)
    for line in lines:
        tell_note(line)
    if not gain.together:
        return _in_turn(run, train_one)
    with owning(Path(run.output)), ExitStack() as closed:
        models, batches = _prepared(run, source, agreement, gain)
        for member in models.members.values():
            closed.enter_context(closing(member.log))
        return train(models, batches, Watchers(()), ending)


def _in_turn(run: Run, train_one: Callable[[Raw], Raw]) -> Raw:
    """Train one member after the other; a member that diverges does not end the others."""
    results: dict[str, Raw] = {}
    for name, each in members_of(run).items():
        tell_note(f"{name}:")
        try:
            results[name] = train_one(run_to_raw(each))
        except Diverged as error:
            tell_note(f"{name}: {error}")
            results[name] = {"complete": False, "ended": str(error)}
        if not results[name]["complete"] and "ended" not in results[name]:
            break  # a signal ended it
    return _of_all(results, len(results) == len(members_of(run)))


def _of_all(results: dict[str, Raw], complete: bool) -> Raw:
    steps = [each["step"] for each in results.values() if "step" in each]
    complete = complete and all(each["complete"] or "ended" in each for each in results.values())
    return {"step": max(steps, default=0), "complete": complete, "members": results}


def _prepared(
    run: Run, source: BatchSource, agreement: Agreement, predicted: ArrayGain
) -> tuple[ArrayModels, Generator[TrainingBatch]]:
    """The array's members, new or from the newest step that all saved, and their batches. predicted: their gain."""
    output = Path(run.output)
    ended = decode(EndedMembers, from_rank_0(lambda: encode(read_ended(output, run))), FILE).ended
    array = unsharded_array(run, source, without=list(ended))
    checkpoints = [checkpoints_of(member, agreement) for member in array.members]
    named = dict(zip([member.name for member in array.members], checkpoints, strict=True))
    saved, removed = newest_of_all(named) if run.checkpoint else ([], [])
    made = prepared_array(
        array, saved, dist.get_world_size(), together=True,
        plan_by=lambda parts, before, _: agreed_plan(parts, before, ranks_per_host()),
    )  # fmt: skip
    plan = made.plan
    sharded, jobs = shard_array(array, plan, rank_device())
    progress = [progress_of(each) for each in saved or [None] * len(jobs)]
    batches = settled(sharded, batches_from(array.parts, progress[0]))
    logs = [RunLog(Path(member.run.output), dist.get_rank(), tensorboard=run.metrics.tensorboard, step=each.step,
                   member=member.name) for member, each in zip(array.members, progress, strict=True)]  # fmt: skip
    log = RunLog(output, dist.get_rank(), tensorboard=False, step=progress[0].step)
    members = [
        _member_job(array, member, plan, *each)
        for member, each in zip(array.members, zip(jobs, checkpoints, logs, progress, strict=True), strict=True)
    ]
    for number, job in enumerate(members):
        set_state(job.sharded, job.run, saved[number] if saved else None, job.progress)
    if dist.get_rank() == 0:
        save_run(run, output / "run.json")
        save_plan(plan, output / "plan.json")
    for line in [
        *made.about,
        *made.notes(progress[0].position),
        *removed,
        *([f"going on after step {progress[0].step:,}"] if saved else []),
    ]:
        log.say({"note": line})
    log.write(
        "start", {"step": progress[0].step, "plan": plan.digest, "members": [each.name for each in array.members]}
    )
    first = members[0]
    whole = replace(first, run=run, plan=plan, sharded=sharded, log=log, progress=replace(first.progress, scores=None))
    named = {member.name: job for member, job in zip(array.members, members, strict=True)}
    return ArrayModels(whole, named, ended, predicted), batches


def _member_job(
    array: UnshardedArray, member: Member, plan: Plan, sharded: ShardedJob, checkpoints: Checkpoints, log: RunLog,
    progress: Progress,
) -> TrainingJob:  # fmt: skip
    """A member as a job of its own, after writing its run and plan to its folder."""
    own, output = member_plan(plan, member), Path(member.run.output)
    if dist.get_rank() == 0:
        save_run(member.run, output / "run.json")
        save_plan(own, output / "plan.json")
    log.write("start", {"step": progress.step, "plan": own.digest})
    parts = array.parts
    return TrainingJob(
        member.run, own, parts.source, parts.features, sharded, checkpoints.agreement, checkpoints, log, progress
    )
