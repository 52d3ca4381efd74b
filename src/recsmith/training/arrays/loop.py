"""Training of an array on one rank, from top to bottom: one batch -> one step of all members -> each one's own log.

A member is a TrainingJob like any other, whose folder is what it would be had it been trained alone. What is done
beside the steps is done for each by job.py.
"""

import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import RecSmithError
from recsmith.files import Raw, decode, encode
from recsmith.plans import Plan, save_plan
from recsmith.training.agreement import Agreement, Diverged, Ending
from recsmith.training.arrays.members import (
    FILE,
    EndedMember,
    EndedMembers,
    members_of,
    newest_in_common,
    read_ended,
    write_ended,
)
from recsmith.training.arrays.model import Member, UnshardedArray, unsharded_array, weighed
from recsmith.training.arrays.sharding import member_plan, shard_array, wide_tables, with_members
from recsmith.training.batches import TrainingBatch, pinned
from recsmith.training.bytes_sent import BytesSent
from recsmith.training.checkpoints import Checkpoints, step_name
from recsmith.training.job import (
    Progress,
    TrainingJob,
    batches_from,
    evaluate_now,
    finish,
    log_progress,
    over_ranks,
    owning,
    progress_of,
    ranks_per_host,
    save,
    set_state,
    settled,
)
from recsmith.training.log import RunLog, StepTimes, starting_lines, tell_note, time_forward, timed
from recsmith.training.metrics import Window, score_each
from recsmith.training.plan import agreed_plan
from recsmith.training.resuming import CHECKPOINTS, Saved
from recsmith.training.run import Checkpointing, Run, run_to_raw, save_run
from recsmith.training.scores import Scores
from recsmith.training.sharded import ShardedJob, rank_device
from recsmith.training.sources import open_data, open_source
from recsmith.training.sources.protocol import BatchSource
from recsmith.training.steps import step_of
from recsmith.training.steps.protocol import TrainingStep

AGREED_EVERY = 8  # steps between two looks of all ranks at losses and signals
DIVERGED = (
    "its loss is not finite after step {step:,}, so it ends here, and its checkpoints are from before it; the other "
    "members train on: give it a lower optimizers.dense.learning_rate or optimizers.sparse.learning_rate, or "
    "optimizers.dense.clip_norm"
)


@dataclass
class ArrayJob:
    """All that a rank's training of an array consists of. ended: why members that diverged have ended, by name."""

    run: Run
    sharded: ShardedJob
    members: Sequence[TrainingJob]
    names: Sequence[str]
    agreement: Agreement
    log: RunLog
    ended: dict[str, EndedMember]

    @property
    def alive(self) -> list[int]:
        """Numbers of members that have not ended."""
        return [number for number, name in enumerate(self.names) if name not in self.ended]

    @property
    def step(self) -> int:
        """Steps that were trained: of any member that trains on."""
        return max(member.progress.step for member in self.members)


def train_array(run: Run, agreement: Agreement, ending: Ending, train_one: Callable[[Raw], Raw]) -> Raw:
    """Train the members of an array on this rank, together or in turn; what came of them (JSON data).

    train_one: trains one run.
    """
    source = open_source(run)
    gain, lines = weighed(run, source, dist.get_world_size(), rank_device())
    for line in lines:
        tell_note(line)
    if not gain.together:
        return _in_turn(run, train_one)
    with owning(Path(run.output)):
        job, batches = _prepared(run, source, agreement)
        with ExitStack() as closed:
            for each in (batches, job.log, *(member.log for member in job.members)):
                closed.enter_context(closing(each))
            by_signal = _train(job, batches, ending)
            return _finished(job, by_signal=by_signal)


def _in_turn(run: Run, train_one: Callable[[Raw], Raw]) -> Raw:
    """Train one member after the other; one that diverges ends alone."""
    results: dict[str, Raw] = {}
    for name, each in members_of(run).items():
        tell_note(f"{name}:")
        try:
            results[name] = train_one(run_to_raw(each))
        except Diverged as error:
            tell_note(f"{name}: {error}")
            results[name] = {"complete": False, "ended": str(error)}
        if not results[name]["complete"] and "ended" not in results[name]:
            break  # by a signal
    return _of_all(results, len(results) == len(members_of(run)))


def _of_all(results: dict[str, Raw], complete: bool) -> Raw:
    steps = [each["step"] for each in results.values() if "step" in each]
    complete = complete and all(each["complete"] or "ended" in each for each in results.values())
    return {"step": max(steps, default=0), "complete": complete, "members": results}


def _prepared(run: Run, source: BatchSource, agreement: Agreement) -> tuple[ArrayJob, Generator[TrainingBatch]]:
    """The array's job, fresh or from the newest step that every member has a checkpoint of."""
    output = Path(run.output)
    ended = decode(EndedMembers, from_rank_0(lambda: encode(read_ended(output, run))), FILE).ended
    array = unsharded_array(run, source, without=list(ended))
    checkpoints = [_checkpoints(member, agreement) for member in array.members]
    named = dict(zip([member.name for member in array.members], checkpoints, strict=True))
    saved, removed = _newest(named) if run.checkpoint else (None, [])
    before = None if saved is None else saved[0].plan  # all members lie alike
    plan = with_members(agreed_plan(wide_tables(array), before, ranks_per_host()), array.members)
    parameters = array.parts.parameters
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
    ranks = dist.get_world_size()
    if dist.get_rank() == 0:
        save_run(run, output / "run.json")
        save_plan(plan, output / "plan.json")
    for line in [
        *starting_lines(run, plan, parameters=parameters, samples=array.parts.source.length),
        *array.parts.source.notes(run.data.batch_sizes(ranks), ranks, progress[0].position),
        *removed,
        *([f"going on after step {progress[0].step:,}"] if saved else []),
    ]:
        log.say({"note": line})
    log.write(
        "start", {"step": progress[0].step, "plan": plan.digest, "members": [each.name for each in array.members]}
    )
    names = [member.name for member in array.members]
    return ArrayJob(run, sharded, members, names, agreement, log, ended), batches


def _member_job(
    array: UnshardedArray, member: Member, plan: Plan, sharded: ShardedJob, checkpoints: Checkpoints, log: RunLog,
    progress: Progress,
) -> TrainingJob:  # fmt: skip
    """A member as a job of its own, whose folder says what it is."""
    own, output = member_plan(plan, member), Path(member.run.output)
    if dist.get_rank() == 0:
        save_run(member.run, output / "run.json")
        save_plan(own, output / "plan.json")
    log.write("start", {"step": progress.step, "plan": own.digest})
    parts = array.parts
    return TrainingJob(
        member.run, own, parts.source, parts.features, sharded, checkpoints.agreement, checkpoints, log, progress
    )


def _checkpoints(member: Member, agreement: Agreement) -> Checkpoints:
    """The checkpoints of a member, of which none goes before every member has a newer one."""
    folder = Path(member.run.output) / CHECKPOINTS
    return Checkpoints(folder, member.run.checkpoint or Checkpointing(), agreement, alone=False)


def _newest(checkpoints: Mapping[str, Checkpoints]) -> tuple[list[Saved] | None, list[str]]:
    """The checkpoints of all members of the newest step that each of them has, and lines on what was removed.

    Those of later steps are of a job that was ended between two members' checkpoints; they are removed, since the array
    trains these steps again.

    Raises:
        UsageError: members were trained apart, and have no step in common.
    """
    newest = newest_in_common({name: {path.name for path in each.all()} for name, each in checkpoints.items()})
    step = int((newest or step_name(0)).removeprefix("step-"))
    dist.barrier()  # all ranks have seen what is there
    gone = [name for name, each in checkpoints.items() if dist.get_rank() == 0 and each.drop(step)]
    dist.barrier()
    told = f"{', '.join(gone)}: checkpoints after step {step:,} were removed, which not all members have"
    lines = [told] if gone else []
    return [Saved(each.folder / newest) for each in checkpoints.values()] if newest else None, lines


def _steps_left(job: ArrayJob) -> bool:
    return job.run.steps is None or job.step < job.run.steps


def _train(job: ArrayJob, batches: Iterator[TrainingBatch], ending: Ending) -> bool:
    """Train until steps or batches are used up; whether a signal ended it."""
    run, device, times, by_signal = job.run, job.sharded.device, StepTimes(), False
    time_forward(job.sharded.model, times)
    step: TrainingStep = step_of(job.sharded, run.pipeline, lambda text: job.log.say({"note": text}))
    source = timed(pinned(batches, device), times)
    windows = [Window(device, each.source.schema.labels) for each in job.members]
    broken = torch.zeros(len(job.members), dtype=torch.bool, device=device)
    first, total = job.step + 1 + step.batches_ahead, job.members[0].total_steps
    while not by_signal and _steps_left(job):
        try:
            sent, counting = BytesSent(), job.step + 1 == first
            with sent if counting else nullcontext():
                outcome = step(source)
        except StopIteration:
            break
        for number in job.alive:
            progress = job.members[number].progress
            progress.step, progress.position = progress.step + 1, outcome.places[-1].state
            progress.corrupt += outcome.corrupt
            windows[number].add(outcome.logits[number], outcome.labels)
        if counting:
            most = over_ranks(sum(sent.bytes.values()), dist.ReduceOp.MAX)
            for member in job.members:
                member.progress.sent_bytes = most
        times.steps, times.samples = times.steps + 1, times.samples + outcome.asked
        broken |= ~outcome.loss.isfinite()

        now = job.step
        due = run.checkpoint is not None and now % run.checkpoint.every == 0
        if due or now % AGREED_EVERY == 0 or now % run.metrics.every == 0:
            by_signal = _looked_at(job, broken, ending)
        if now % run.metrics.every == 0:
            for number in job.alive:
                job.members[number].progress.scores = windows[number].scores()
                log_progress(job.members[number], copy.copy(times), total)
            times.take()
        if run.metrics.evaluate_every and now % run.metrics.evaluate_every == 0:
            step.pause()
            for number, scores in _scores(job).items():
                evaluate_now(job.members[number], scores)
            step.resume()
        if due or (by_signal and run.checkpoint is not None):
            _save(job)
    step.pause()
    _looked_at(job, broken, ending)
    return by_signal


def _save(job: ArrayJob) -> None:
    """A checkpoint of the array, which is one of each member; where the disk refuses one, none of this step stays."""
    members = [job.members[number] for number in job.alive]
    before = {member.run.output: member.progress.saved for member in members}
    for member in members:
        save(member)
        if member.progress.saved != member.progress.step:
            break
    whole = all(member.progress.saved == job.step for member in members)
    for member in members:
        if not whole:
            member.progress.saved = before[member.run.output]
        if dist.get_rank() == 0:
            member.checkpoints.prune() if whole else member.checkpoints.drop(member.progress.saved)
    dist.barrier()


def _looked_at(job: ArrayJob, broken: torch.Tensor, ending: Ending) -> bool:
    """End members whose loss was not finite on some rank; whether a signal asked some rank to end.

    Raises:
        RecSmithError: no member is left.
    """
    flags = torch.cat([broken.cpu().float(), torch.tensor([float(ending.asked)])])
    dist.all_reduce(flags, dist.ReduceOp.MAX, group=job.agreement.group)
    for number in [each for each in job.alive if flags[each]]:
        member, name = job.members[number], job.names[number]
        because = DIVERGED.format(step=member.progress.step)
        job.ended[name] = EndedMember(step=member.progress.step, because=because)
        job.sharded.model.module.layers.alive[number] = False  # type: ignore[union-attr]
        member.log.write("ended", {"step": member.progress.step, "because": because})
        member.log.say({"note": because})
        if dist.get_rank() == 0:
            write_ended(Path(job.run.output), job.ended)
    if not job.alive:
        raise RecSmithError(f"all members of the array have diverged: {'; '.join(job.names)}; lower their rates")
    return bool(flags[-1])


def _scores(job: ArrayJob) -> dict[int, Scores]:
    """Scores on data.test of each member that trains on, of which all are asked at once."""
    first = job.members[0]
    dataset = open_data(job.run.data.test, "data.test")
    found = score_each(job.sharded, dataset, first.features, first.batch_size, models=len(job.members))
    return {number: found[number] for number in job.alive}


def _finished(job: ArrayJob, *, by_signal: bool) -> Raw:
    """Last checkpoints, scores and exported models of all members that have not ended."""
    test = _scores(job) if job.run.data.test is not None and not by_signal else {}
    results: dict[str, Raw] = {
        name: {"step": each.step, "complete": False, "ended": each.because} for name, each in job.ended.items()
    }
    if job.run.checkpoint is not None and not by_signal and any(
        job.members[number].progress.saved < job.step for number in job.alive
    ):  # fmt: skip
        _save(job)
    for number in job.alive:
        results[job.names[number]] = finish(job.members[number], ended=by_signal, test=test.get(number))
    return _of_all({name: results[name] for name in members_of(job.run)}, complete=True)
