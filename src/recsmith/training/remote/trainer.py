"""A trainer of a job whose tables are on servers: the planned job's loop, whose rows and steps cross processes."""

import os
import time
from collections.abc import Generator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingPlan

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import RecSmithError
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.training.agreement import Agreement, heeding_sigterm
from recsmith.training.batches import TrainingBatch
from recsmith.training.job import CHECKPOINTS, Progress, TrainingJob, batches_from, progress_from, settled
from recsmith.training.log import RunLog, starting_lines, tell_pid
from recsmith.training.loop import train_prepared
from recsmith.training.models import Task, unsharded
from recsmith.training.optimizers.building import combined_optimizer, set_schedule
from recsmith.training.remote.backends import connected
from recsmith.training.remote.calls import ServerPlace, Tensors
from recsmith.training.remote.client import TableClient
from recsmith.training.remote.server import copy_dense, flat_tensors
from recsmith.training.remote.tables import RemoteRows, with_remote_tables
from recsmith.training.resuming import Saved, random_states
from recsmith.training.run import Run, run_from_raw, save_run
from recsmith.training.sharded import ShardedJob, rank_device
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
        _join_trainers(client, where, meet)
        tell_pid()
        job, batches = prepared_trainer(made, client)
        result = train_prepared(job, batches, watchers, ending)
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
    batches = settled(sharded, batches_from(parts, progress))
    client.counts.__init__()
    copy_dense(sharded, dense)
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


def trainer_model(run: Run, task: Task, client: TableClient, names: dict[str, str]) -> ShardedJob:
    """The model of a trainer: its dense layers in DistributedDataParallel, as the planned job has them."""
    device = rank_device()
    model = DistributedModelParallel(task, device=device, plan=ShardingPlan({}), sharders=[])
    optimizer = combined_optimizer(model.fused_optimizer, {}, dict(model.named_parameters()), run.optimizers)
    return ShardedJob(model, optimizer, RemoteRows(model, optimizer, client, names), {}, device)


class RemoteCheckpoints:
    """Checkpoints of a job whose servers write them."""

    def __init__(self, folder: Path, client: TableClient, agreement: Agreement) -> None:
        self.folder, self.client, self.agreement = folder, client, agreement

    def save(self, job: ShardedJob, _: Run, __: Plan, progress: Raw) -> str | None:
        """Save the state after a step, on every trainer; what went wrong, in words."""
        job.rows.flush()
        random: list[Any] = [None] * self.client.world
        dist.all_gather_object(random, random_states(), group=self.agreement.group)
        dense: Tensors = flat_tensors(job)

        def save() -> dict[str, Any]:
            said = self.client.to_all("save", dense, progress=progress, random=random)
            return {"problem": next((each["problem"] for each in said if each["problem"]), None)}

        return from_rank_0(save, self.agreement.group)["problem"]

    def poll(self) -> None:
        """Servers write before they answer."""

    def finish(self) -> None:
        """Servers write before they answer."""
