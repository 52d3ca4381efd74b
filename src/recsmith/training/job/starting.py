"""How a rank's training begins: lock its folder, prepare the run, shard the model, set its state; and replan it."""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.files import Raw, decode, locked_folder, spell_out
from recsmith.jobs.hosts.rank import in_hosts, this_round
from recsmith.jobs.hosts.rounds import HOSTS, HostRound
from recsmith.plans import Plan, plan_from_raw, plan_to_raw, save_plan
from recsmith.scoring.scores import Scores
from recsmith.training.batches import TrainingBatch, batches_here
from recsmith.training.job.agreement import Agreement, Wish
from recsmith.training.job.card import keep_files
from recsmith.training.job.checkpoints import Checkpoints
from recsmith.training.job.going_on import newest_of
from recsmith.training.job.hosts import HostChange, HostsTold, note_running, plan_of_hosts
from recsmith.training.job.job import Keeps, Progress, TrainingJob, over_ranks
from recsmith.training.job.live import LiveState, moved_line
from recsmith.training.job.log import RunLog
from recsmith.training.job.models import Unsharded, unsharded
from recsmith.training.job.plan import agreed_anew, agreed_plan
from recsmith.training.job.preparing import PreparedRun, predicted_step, prepare
from recsmith.training.job.resuming import BEFORE, CHECKPOINTS, Saved, kept_in
from recsmith.training.job.sharded import ShardedJob, draw_weights, rank_device, set_steps, settle, shard
from recsmith.training.optimizers.building import set_schedule
from recsmith.training.random_states import random_kept
from recsmith.training.run import Checkpointing, Run, save_run
from recsmith.training.seams import systems
from recsmith.training.seams.registry import first_of
from recsmith.training.sources import dealt_source, total_steps, with_distinct
from recsmith.training.step_clock import STEPS

KILLED_S = 5.0  # seconds until all processes of a killed job are gone
LOST_S = 120.0  # seconds until a shared disk frees the locks of a lost host


@contextmanager
def owning(output: Path) -> Generator[None]:
    """Within this context, this job owns the run's folder; rank 0 holds the lock, at most until its process ends.

    A job that was just killed may still hold the lock, so this waits a little; longer if a host was lost.

    Raises:
        UsageError: another job writes there, or the folder cannot be created; on every rank.
    """
    with ExitStack() as held:

        def take() -> dict[str, Any]:
            begun, patience_s = time.monotonic(), LOST_S if in_hosts() else KILLED_S
            while True:
                try:
                    held.enter_context(locked_folder(output))
                    return {}
                except UsageError:
                    if not output.is_dir() or time.monotonic() - begun > patience_s:
                        raise
                time.sleep(0.1)

        from_rank_0(take)
        yield


def prepared(
    run: Run, agreement: Agreement, *, plan: Plan | None = None, live: LiveState | None = None
) -> tuple[TrainingJob, Generator[TrainingBatch]]:
    """A job, fresh or from its newest checkpoint, and the batches that come next.

    Args:
        run: the run that is trained.
        agreement: communication between ranks; one object serves for the lifetime of the process.
        plan: the plan to train under, if it differs by now from that of the run and its checkpoint.
        live: the state of the job in memory, to continue from instead of its newest checkpoint.
    """
    begun, output = time.perf_counter(), Path(run.output)
    checkpoints = Checkpoints(output / CHECKPOINTS, run.checkpoint or Checkpointing(), agreement)
    saved = live or newest_of(run)
    there, changes = this_round(), list[HostChange]()

    def plan_by(parts: Unsharded, before: Plan | None, _: int) -> Plan:
        if there is None or plan is not None:
            return plan or agreed_plan(parts, before, ranks_per_host())
        placed, change = agreed_of_hosts(parts, before, there, saved)
        changes.extend([change] if change else [])
        return placed

    made = prepare(run, dist.get_world_size(), saved=saved, together=True, plan_by=plan_by)
    predicted = predicted_step(made) if dist.get_rank() == 0 else None
    run, parts, progress = made.run, made.parts, progress_of(saved)
    found = [(system, system.attached(run, parts.task.model)) for system in systems()]
    attached = {system.kept or system.key: each for system, each in found if each is not None}
    attached.update([("hosts", HostsTold(each)) for each in changes])
    sharded = shard(replace(run, comms=made.comms), made.plan, parts.task, rank_device())
    batches = settled(sharded, batches_from(replace(parts, run=run), progress))
    said = [*made.about, *(each.said for each in made.lines), *made.notes(progress.position)]
    set_state(sharded, run, saved, progress)
    if saved is None:
        for system in systems():
            system.begin_weights(made, sharded)
        progress.kept |= from_rank_0(lambda: kept_before(run))
    for key, each in attached.items():
        total = total_steps(run, parts.source, dist.get_world_size(), progress.step, progress.position)
        each.begin(total, progress.kept.get(key))

    log = RunLog(output, dist.get_rank(), tensorboard=run.metrics.tensorboard, step=progress.step)
    if dist.get_rank() == 0:
        _keep_files(made, output, there)
    for line in said:
        log.say({"note": line})
    facts = {name: fact for each in systems() for name, fact in each.start_facts(run, made.plan).items()}
    if predicted is not None:
        facts["predicted_step_s"] = progress.told_s = predicted.step_s
    took = time.perf_counter() - begun
    log.write("start", {"step": progress.step, "seconds": took, "plan": made.plan.digest, **facts})
    if live is not None:
        _tell_moved(log, live, progress, took)
    keeps: dict[str, Keeps] = {system.kept: each.to_raw for system, each in found if system.kept and each is not None}
    job = TrainingJob(
        run, made.plan, parts.source, parts.features, sharded, agreement, checkpoints, log, progress, attached, keeps
    )
    return job, batches


def _keep_files(made: PreparedRun, output: Path, there: HostRound | None) -> None:
    """Write the files that a run's folder has from the start: files that its model names, the run and its plan."""
    keep_files(made.run.model, output)
    save_run(made.run, output / "run.json")
    save_plan(made.plan, output / "plan.json")
    if there is not None:
        note_running(output / HOSTS, there, made.plan)


def _tell_moved(log: RunLog, live: LiveState, progress: Progress, took_s: float) -> None:
    """Report what moved between ranks, if the job continues from its state in memory."""
    progress.saved = live.kept.saved
    weights, state = (over_ranks(size, dist.ReduceOp.SUM) for size in live.moved_bytes())
    log.write("moved", {"step": progress.step, "seconds": took_s, "weights_bytes": weights, "state_bytes": state})
    log.say({"note": moved_line(weights, state, took_s)})


def agreed_of_hosts(
    parts: Unsharded, before: Plan | None, there: HostRound, saved: Saved | None
) -> tuple[Plan, HostChange | None]:
    """(the plan of a round of hosts, made by rank 0; what changed about hosts, if anything)."""

    def make() -> dict[str, Any]:
        folder, step = Path(parts.run.output) / HOSTS, saved.progress["step"] if saved else 0
        plan, change = plan_of_hosts(parts, before, there, folder, step)
        return {"plan": plan_to_raw(plan), "change": change and spell_out(change)}

    made = from_rank_0(make)
    change = decode(HostChange, made["change"], "rank 0's plan") if made["change"] else None
    return plan_from_raw(made["plan"], "rank 0's plan"), change


def kept_before(run: Run) -> dict[str, Any]:
    """State that a fresh job takes over from the training that its run starts from."""
    found = first_of(each.watched_before(run) for each in systems())
    return {} if found is None else {BEFORE: found}


def progress_of(saved: Saved | None) -> Progress:
    """The progress that a checkpoint has saved; zero without a checkpoint."""
    if saved is None:
        return Progress()
    return progress_from(saved.progress, str(saved.folder))


def progress_from(raw: Raw, where: str) -> Progress:
    """The progress of a job, from its raw data. where: source of that data, for errors."""
    return Progress(
        step=raw["step"],
        begun=raw["step"],
        saved=raw["step"],
        position=raw["position"],
        scores=None if raw["scores"] is None else decode(Scores, raw["scores"], where),
        kept=kept_in(raw),
    )


def batches_from(parts: Unsharded, progress: Progress) -> Iterator[TrainingBatch]:
    """The batches of this rank that follow the progress."""
    source = dealt_source(with_distinct(parts.source, parts.features.groups), parts.run)
    return batches_here(parts.run, source, parts.features, step=progress.step, state=progress.position)


def settled(sharded: ShardedJob, batches: Iterator[TrainingBatch]) -> Generator[TrainingBatch]:
    """The batches, after the first one has fixed the order of sums; readers end when this generator is closed."""
    first = next(batches, None)
    if first is not None:
        with STEPS.standing():
            settle(sharded, first)

    def rest() -> Generator[TrainingBatch]:
        if first is not None:
            yield first
        yield from batches

    return rest()


def set_state(sharded: ShardedJob, run: Run, saved: Saved | None, progress: Progress) -> None:
    """Set weights, optimizer state and random states from the checkpoint, or for a fresh start."""
    if saved is None:
        draw_weights(sharded.rows, sharded.initial, run.seed)
        torch.manual_seed(run.seed * dist.get_world_size() + dist.get_rank())  # for dropout: every rank draws its own
        return
    saved.load(sharded, run)
    set_schedule(sharded.optimizer, progress.step)
    set_steps(sharded, progress.step)
    saved.restore_random()


def ranks_per_host() -> int:
    """Ranks of this machine, as its launcher says; otherwise all ranks."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))


def plan_anew(job: TrainingJob, wish: Wish, *, in_memory: bool = False) -> tuple[Plan | None, str]:
    """(another plan to continue under from the state just saved, or None if no other plan is better; the reason).

    in_memory: the state need not have been saved.
    """
    if not in_memory and job.progress.saved != job.progress.step:
        return None, "the state could not be saved; training goes on under the plan that it has"
    try:
        with STEPS.standing(), random_kept():
            plan = agreed_anew(unsharded(job.run), job.plan, ranks_per_host(), wish.plan)
    except (UsageError, Infeasible, NoPlanFound) as error:
        return None, f"no other plan: {error}; training goes on under the plan that it has"
    if plan.placements == job.plan.placements:
        return None, "the plan that would be made is the one that runs"
    problem = job.checkpoints.finish()
    return (None, f"the state could not be saved: {problem}") if problem else (plan, f"plan {plan.digest[:12]}")
