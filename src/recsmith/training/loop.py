"""Training on one rank, from top to bottom: batch -> model -> loss -> backward -> optimizers -> metrics -> checkpoint.

Every rank of a job runs `train_on_rank`. What happens in a step stands in `_train`; what is done beside the steps, in
job.py.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from recsmith.data import Batch
from recsmith.data.deduplication import expanded
from recsmith.files import Raw
from recsmith.plans import save_plan
from recsmith.prediction.capturing import captured
from recsmith.training.agreement import Agreement, Ending, heeding_sigterm
from recsmith.training.batches import TrainingBatch, pinned, training_batches
from recsmith.training.broken_loss import LossGuard
from recsmith.training.bytes_sent import BytesSent
from recsmith.training.card import check_maps, keep_maps
from recsmith.training.checkpoints import Checkpoints, Saved
from recsmith.training.job import Progress, TrainingJob, evaluate_now, finish, log_progress, progress_of, save
from recsmith.training.log import RunLog, StepTimes, tell_pid, time_forward, timed
from recsmith.training.metrics import Window
from recsmith.training.models import build_task, find_function
from recsmith.training.plan import agreed_plan, starting_lines
from recsmith.training.plan_rules import check_loadable
from recsmith.training.run import Checkpointing, Run, run_from_raw, save_run
from recsmith.training.sharded import ShardedJob, draw_weights, rank_device, settle, shard
from recsmith.training.sources import open_source, with_distinct
from recsmith.training.steps import step_of
from recsmith.training.steps.protocol import StepOutcome, TrainingStep
from recsmith.training.stores import fetched_ahead
from recsmith.training.tables.dedup_parts import deduplication_of
from recsmith.training.tables.plain import features_of

Watcher = Callable[[int, float, Batch], object]  # step, loss, samples of this rank; what a run's watchers are
CHECKPOINTS = "checkpoints"
AGREED_EVERY = 8  # steps; trade-off: more of them cost less, and end training later after a signal or a broken loss


def train_on_rank(run: Raw) -> Raw:
    """Train a run on this rank of a job, from its newest checkpoint if it has one; what came of it (JSON data)."""
    with heeding_sigterm() as ending:
        tell_pid()
        job, batches = _prepared(run_from_raw(run, "the run"))
        try:
            with captured(job.run.capture):
                ended = _train(job, batches, ending)
            return finish(job, ended=ended)
        finally:
            job.log.close()


def _prepared(run: Run) -> tuple[TrainingJob, Iterator[TrainingBatch]]:
    """Data, model, plan and state of a job, fresh or from its newest checkpoint; and the batches that come next."""
    begun, rank, agreement = time.perf_counter(), dist.get_rank(), Agreement()
    output = Path(run.output)
    source = open_source(run)
    deduplication = deduplication_of(run, source)
    task = build_task(run.model, source.schema, run.seed, deduplication=deduplication)  # tables on meta: no memory yet
    features = features_of(task)
    checkpoints = Checkpoints(output / CHECKPOINTS, run.checkpoint or Checkpointing(), agreement)
    saved = checkpoints.newest() if run.checkpoint else None
    plan = agreed_plan(run, task, source, saved.plan if saved else None, _ranks_per_host())
    if saved is not None:
        check_maps(run.model, output)
        check_loadable(saved.plan, plan)
    said = starting_lines(run, task, plan, source)
    sharded, progress = shard(run, plan, task, rank_device()), progress_of(saved)

    ranks = dist.get_world_size()
    sizes = run.data.batch_sizes(ranks)
    said += source.notes(sizes, ranks, progress.position)
    batches = training_batches(
        with_distinct(source, features.groups), sizes, features, rank=rank, ranks=ranks, state=progress.position,
        step=progress.step,
    )  # fmt: skip
    first = next(batches, None)
    if first is not None:
        settle(sharded, first)
        batches = itertools.chain([first], batches)
    _set_state(sharded, run, saved, progress)

    log = RunLog(output, rank, tensorboard=run.metrics.tensorboard, step=progress.step)
    if rank == 0:
        keep_maps(run.model, output)
        save_run(run, output / "run.json")
        save_plan(plan, output / "plan.json")
    for line in [*said, *([f"going on after step {progress.step:,} of '{saved.folder}'"] if saved else [])]:
        log.say({"note": line})
    log.write("start", {"step": progress.step, "seconds": time.perf_counter() - begun, "plan": plan.digest})
    return TrainingJob(run, plan, source, features, sharded, agreement, checkpoints, log, progress), batches


def _set_state(sharded: ShardedJob, run: Run, saved: Saved | None, progress: Progress) -> None:
    """Weights, state of optimizers and random states: of the checkpoint, or of a fresh start."""
    if saved is None:
        draw_weights(sharded.rows, sharded.initial, run.seed)
        torch.manual_seed(run.seed * dist.get_world_size() + dist.get_rank())  # of dropout: every rank draws its own
        return
    saved.load(sharded)
    sharded.optimizer.set_optimizer_step(progress.step)
    saved.restore_random()


def _train(job: TrainingJob, batches: Iterator[TrainingBatch], ending: Ending) -> bool:
    """Train until steps or samples are used up, or a signal asks to end, which is True."""
    run, progress, device = job.run, job.progress, job.sharded.device
    times, window, guard = StepTimes(), Window(device), LossGuard(device)
    step: TrainingStep = step_of(job.sharded, run.pipeline, lambda text: job.log.say({"note": text}))
    batches = timed(fetched_ahead(pinned(batches, device), job.sharded.rows), times)
    usual_step = progress.step + 1 + step.batches_ahead
    time_forward(job.sharded.model, times)
    watchers: list[Watcher] = [find_function(name) for name in run.watchers]
    stop, total = False, job.total_steps
    while not stop and (run.steps is None or progress.step < run.steps):
        try:
            counting = not progress.sent_bytes and progress.step + 1 >= usual_step
            outcome = _counted(step, batches, progress) if counting else step(batches)
        except StopIteration:
            break
        progress.step, progress.position = progress.step + 1, outcome.places[-1].state
        times.steps, times.samples = times.steps + 1, times.samples + outcome.asked
        progress.corrupt += outcome.corrupt
        window.add(outcome.logits, outcome.labels)
        for watch in watchers:
            for place in outcome.places:
                watch(progress.step, float(outcome.loss), expanded(place.samples))

        guard.look(progress.step, outcome.loss, outcome.places[-1])
        due = run.checkpoint is not None and progress.step % run.checkpoint.every == 0
        if due or progress.step % AGREED_EVERY == 0:
            stop, due = _agreed(job, ending, guard, due)

        if progress.step % run.metrics.every == 0:
            progress.scores = window.scores()
            log_progress(job, times, total)
        if run.metrics.evaluate_every and progress.step % run.metrics.evaluate_every == 0:
            step.pause()
            evaluate_now(job)
            step.resume()
        if due:
            save(job)
        job.checkpoints.poll()
    step.pause()
    _agreed_at_the_end(job, guard)
    return stop


def _agreed(job: TrainingJob, ending: Ending, guard: LossGuard, due: bool) -> tuple[bool, bool]:
    """Whether all ranks stop here, and whether they save a checkpoint: where one is due, and where they stop.

    Raises:
        RecSmithError: a loss of some rank is not finite.
    """
    agreement = job.agreement
    stop, broken = agreement.heard()  # as told the time before: nobody waits
    agreement.tell(stop=ending.asked, broken=guard.culprit is not None)
    saves = job.run.checkpoint is not None and (due or stop)
    if saves and not broken:  # never a state whose loss nobody has looked at
        asked, broken = agreement.heard()
        stop = stop or asked
    if broken:
        guard.refuse(job.output)
    return stop, saves


def _agreed_at_the_end(job: TrainingJob, guard: LossGuard) -> None:
    """Refuse what was trained where a loss of some rank is not finite.

    Raises:
        RecSmithError: one is not.
    """
    job.agreement.heard()
    job.agreement.tell(stop=False, broken=guard.culprit is not None)
    if job.agreement.heard()[1]:
        guard.refuse(job.output)


def _counted(step: TrainingStep, batches: Iterator[TrainingBatch], progress: Progress) -> StepOutcome:
    """A step, and the bytes that it gives to collectives: the most of any rank."""
    with BytesSent() as sent:
        outcome = step(batches)
    most = torch.tensor(sum(sent.bytes.values()), dtype=torch.int64, device=outcome.loss.device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    progress.sent_bytes = max(1, int(most))
    return outcome


def _ranks_per_host() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
