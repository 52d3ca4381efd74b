"""A trainer of a job whose tables are on servers: the planned job's loop, whose rows and steps cross processes."""

import os
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from recsmith.errors import RecSmithError
from recsmith.files import Raw
from recsmith.training.agreement import Agreement, heeding_sigterm
from recsmith.training.batches import TrainingBatch
from recsmith.training.job import (
    CHECKPOINTS,
    Progress,
    TrainingJob,
    batches_from,
    kept_progress,
    progress_from,
    settled,
)
from recsmith.training.log import RunLog, starting_lines, tell_pid
from recsmith.training.loop import train_prepared
from recsmith.training.models import unsharded
from recsmith.training.optimizers.building import set_schedule
from recsmith.training.remote.calls import ServerPlace, connected
from recsmith.training.remote.client import TableClient
from recsmith.training.remote.members import Regroup
from recsmith.training.remote.model import RemoteCheckpoints, trainer_model
from recsmith.training.remote.server import copy_dense, flat_tensors
from recsmith.training.remote.stale import train_stale
from recsmith.training.remote.tables import with_remote_tables
from recsmith.training.resuming import Saved
from recsmith.training.run import Run, run_from_raw, save_run
from recsmith.training.watchers import Watchers

STEP = "recsmith.training.remote.tables:RemoteStep"
GROUP_TIMEOUT = timedelta(minutes=10)  # of a collective that a living trainer never joins


def train_on_trainer(run: Raw, place: Raw, meet: str, name: str) -> Raw:
    """Train a run as one of its trainers; what came of it (JSON data).

    place: of the servers. meet: 'host:port' of the store where process groups form. name: of this trainer.
    """
    made, where = run_from_raw(run, "the run"), ServerPlace(**place)
    assert made.remote is not None
    calls = connected(where, name)
    client = TableClient(calls, made.remote.timeout_s)
    calls.greet(made.remote.timeout_s)
    client.live()
    with heeding_sigterm() as ending, Watchers(made.watched) as watchers:
        if made.remote.staleness:
            tell_pid()
            told = train_stale(made, client, int(os.environ["RANK"]), watchers, ending)
            client.leave()
            return told
        job: TrainingJob | None = None
        while True:
            _join_trainers(client, where, meet)
            tell_pid()
            try:
                if client.generation > 1:
                    _hand_over(client, job)
                job, batches = prepared_trainer(made, client)
                result = train_prepared(job, batches, watchers, ending)
                break
            except (Regroup, RuntimeError) as error:
                _after(error, client, job)
    if not isinstance(result, dict):
        raise RecSmithError(
            f"a watcher asked to {result.what} ({result.because}), which a job with `remote` does not do; start it "
            "again from its newest checkpoint, or leave the watcher out"
        )
    counts = asdict(client.counts)
    job.log.write("remote", {"step": job.progress.step, **counts})
    dist.barrier()
    client.leave()
    return {**result, "remote": counts}


def _after(error: Exception, client: TableClient, job: TrainingJob | None) -> None:
    """Leave the process group after a step that others have left, or died in; the error where neither is so."""
    dist.destroy_process_group()  # whoever waits for this trainer hears of it
    if job is not None:
        with suppress(Regroup):
            job.sharded.rows.flush()  # a step that all have pushed counts
    if not isinstance(error, Regroup) and not client.changed():
        raise error


def _hand_over(client: TableClient, job: TrainingJob | None) -> None:
    """Give the servers dense layers and how far trainer 0 is, which all go on from; newcomers are the last."""
    if client.rank == 0 and job is not None:
        rows: Any = job.sharded.rows
        progress = {**kept_progress(job), "step": client.clock, "position": rows.position, "ranks": client.world}
        client.to_all("keep", flat_tensors(job.sharded), progress=progress)
    dist.barrier()


def _join_trainers(client: TableClient, place: ServerPlace, meet: str) -> None:
    """Wait for the others, and join a process group with them."""
    client.gather()
    host, _, port = meet.rpartition(":")
    store = PrefixStore(f"{place.job}/trainers-{client.generation}", TCPStore(host, int(port), is_master=False))
    os.environ["RANK"] = str(client.rank)  # of those who write messages, 0
    dist.init_process_group("gloo", store=store, rank=client.rank, world_size=client.world, timeout=GROUP_TIMEOUT)


def prepared_trainer(run: Run, client: TableClient) -> tuple[TrainingJob, Generator[TrainingBatch]]:
    """The job of this trainer, from where the servers are, and the batches that come next."""
    begun, output, agreement = time.perf_counter(), Path(run.output), Agreement()
    parts = unsharded(run)
    plan, raw, names, dense = client.begin()
    parameters = parts.parameters
    with_remote_tables(parts.task, client)
    sharded = trainer_model(run, parts.task, client, names)
    progress = Progress() if raw is None else progress_from(raw, "server 0's progress")
    counted = replace(client.counts)
    batches = settled(sharded, batches_from(parts, progress))
    client.counts = counted  # without the pass that settles sums
    copy_dense(sharded, dense)
    sharded.rows.position = progress.position  # type: ignore[attr-defined]
    set_schedule(sharded.optimizer, progress.step)
    sharded.optimizer.set_optimizer_step(progress.step)
    checkpoints: Any = RemoteCheckpoints(output / CHECKPOINTS, client, agreement)
    saved = Saved(output / CHECKPOINTS / f"step-{progress.step:08d}")
    if saved.folder.is_dir():
        saved.restore_random()
    else:
        torch.manual_seed(run.seed * client.world + client.rank)
    log = RunLog(output, client.rank, tensorboard=run.metrics.tensorboard, step=progress.step)
    if client.rank == 0:
        save_run(run, output / "run.json")
    samples = parts.source.length
    for line in [
        *starting_lines(run, plan, parameters=parameters, samples=samples, ranks=client.world),
        *parts.source.notes(run.data.batch_sizes(client.world), client.world, progress.position),
        *(saved.told(run, client.world) if saved.folder.is_dir() else []),
    ]:
        log.say({"note": line})
    log.write("start", {"step": progress.step, "seconds": time.perf_counter() - begun, "plan": plan.digest})
    made = replace(run, pipeline=STEP)
    return TrainingJob(
        made, plan, parts.source, parts.features, sharded, agreement, checkpoints, log, progress
    ), batches
