"""What both kinds of trainers of a job with servers use: the job, its dense layers, checkpoints of the servers."""

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchrec.distributed import collective_utils
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingPlan
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import RecSmithError
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.agreement import Agreement, Wish
from recsmith.training.job.job import Progress, TrainingJob
from recsmith.training.job.log import RunLog
from recsmith.training.job.models import Task, Unsharded
from recsmith.training.job.preparing import predicted_step, prepare
from recsmith.training.job.resuming import CHECKPOINTS, Saved
from recsmith.training.job.sharded import ShardedJob, rank_device, table_of
from recsmith.training.job.starting import progress_from
from recsmith.training.loop import ANEW
from recsmith.training.optimizers.building import combined_optimizer, set_schedule
from recsmith.training.random_states import random_states
from recsmith.training.run import Run, save_run
from recsmith.training.systems.remote.calls import AGAIN, Tensors
from recsmith.training.systems.remote.client import TableClient
from recsmith.training.systems.remote.tables import RemoteRows, with_remote_tables

Batches = Generator[TrainingBatch]
STEP = "recsmith.training.systems.remote.tables:RemoteStep"


def trainer_job(
    run: Run, client: TableClient, number: int, width: int | None,
    batches_of: Callable[[Unsharded, ShardedJob, Progress, RunLog], Batches],
) -> tuple[TrainingJob, Batches]:  # fmt: skip
    """The job of a trainer at the step that the servers have reached, and its next batches.

    Args:
        run: the run of the job.
        client: this trainer's access to the servers.
        number: of this trainer; 0 writes the log.
        width: number of trainers that share a step; None: as many as the job began with.
        batches_of: makes the batches.

    Raises:
        RecSmithError: the servers are ahead of the last known dense layers.
    """
    begun, output = time.perf_counter(), Path(run.output)
    with client.group.opening():
        agreement = Agreement()
    plan, raw, names, dense = client.begin()
    trainers = width or client.trainers
    prepared = prepare(run, trainers, plan_by=lambda *_: plan)  # servers compare the checkpoint
    run, parts = prepared.run, prepared.parts
    predicted = predicted_step(prepared) if number == 0 else None
    with_remote_tables(parts.task, client)
    sharded = trainer_model(run, parts.task, client, names)
    progress = Progress() if raw is None else progress_from(raw, "server 0's progress")
    if progress.step < client.clock:
        raise RecSmithError(f"all trainers that had trained are gone, and their dense layers with them; {AGAIN}")
    log = RunLog(output, number, tensorboard=run.metrics.tensorboard, step=progress.step)
    counted = replace(client.counts)
    batches = batches_of(parts, sharded, progress, log)
    client.counts = counted  # not counting the pass that `settled` makes before the first batch
    copy_dense(sharded, dense)
    set_schedule(sharded.optimizer, progress.step)
    sharded.optimizer.set_optimizer_step(progress.step)
    saved = Saved(output / CHECKPOINTS / f"step-{progress.step:08d}")
    prepared = replace(prepared, saved=saved if saved.folder.is_dir() else None)
    torch.manual_seed(run.seed * trainers + number)
    if width is not None and prepared.saved:
        saved.restore_random()
    if number == 0:
        save_run(run, output / "run.json")
    for line in [*prepared.about, *(each.said for each in prepared.lines), *prepared.notes(progress.position)]:
        log.say({"note": line})
    facts = {} if predicted is None else {"predicted_step_s": predicted.step_s}
    progress.told_s = facts.get("predicted_step_s")
    log.write("start", {"step": progress.step, "seconds": time.perf_counter() - begun, "plan": plan.digest, **facts})
    checkpoints: Any = RemoteCheckpoints(output / CHECKPOINTS, client, agreement)
    made = replace(run, pipeline=STEP)
    job = TrainingJob(made, plan, parts.source, parts.features, sharded, agreement, checkpoints, log, progress)
    return job, batches


def trainer_model(run: Run, task: Task, client: TableClient, names: dict[str, str]) -> ShardedJob:
    """The model of a trainer: its dense layers in DistributedDataParallel, as in the planned job."""
    device = rank_device()
    collective_utils._INITIALIZED = True  # the first model calls a collective, which newcomers would enter alone
    model = DistributedModelParallel(task, device=device, plan=ShardingPlan({}), sharders=[])
    optimizer = combined_optimizer(model.fused_optimizer, {}, dict(model.named_parameters()), run.optimizers)
    return ShardedJob(model, optimizer, RemoteRows(model, optimizer, client, names), {}, device)


def never_anew(came: Any) -> None:
    """Raise RecSmithError if a watcher asks to prepare the job anew, which a job with servers cannot do.

    came: what training returned, such as the wish because of which it stopped.
    """
    if isinstance(came, Wish) and came.what in ANEW:
        raise RecSmithError(
            f"a watcher asked to {came.what} ({came.because}), which a job with `remote` does not do; start it again "
            "from its newest checkpoint, or leave the watcher out"
        )


class RemoteCheckpoints:
    """The checkpoints of a job whose servers write them, as its trainers see them."""

    def __init__(self, folder: Path, client: TableClient, agreement: Agreement) -> None:
        self.folder, self.client, self.agreement = folder, client, agreement

    def save(self, job: ShardedJob, _: Run, __: Plan, progress: Raw) -> str | None:
        """Save the state after a step; called on every trainer. Returns what went wrong, or None."""
        job.rows.flush()
        random: list[Any] = [None] * self.client.world
        dist.all_gather_object(random, random_states(), group=self.agreement.group)
        dense: Tensors = flat_tensors(job)

        def save() -> dict[str, Any]:
            return {"problem": self.client.save(dense, progress, random)}

        return from_rank_0(save, self.agreement.group)["problem"]

    def publish_model(self, _: Path) -> None:
        """Do nothing: a run with servers refuses `checkpoint.publish`."""

    def late_problem(self) -> None:
        """Nothing: `save` returns after the servers have written, and nothing is published."""

    def poll(self) -> None:
        """Do nothing: `save` returns after the servers have written."""

    def finish(self) -> None:
        """Do nothing: `save` returns after the servers have written."""


def learning_rate(optimizer: CombinedOptimizer, step: int) -> float:
    """The learning rate of tables in the step that follows `step` steps."""
    set_schedule(optimizer, step)
    groups: Any = next(part.param_groups for name, part in optimizer.optimizers if name == "sparse")
    return groups[0]["lr"]


def flat_tensors(job: ShardedJob, *, made: bool = False) -> Tensors:
    """The weights of dense layers and the state of their optimizer, by name; writing into these changes the job.

    made: whether to create the optimizer's state if it has none yet; the caller must then overwrite all of it.
    """
    for name, part in job.optimizer.optimizers:
        if name == "dense" and made and all(key.startswith("__") for key in part.state_dict()["state"]):
            part.init_state()  # only the state of a schedule exists from the start
    found: Tensors = {f"model.{name}": each for name, each in job.model.state_dict().items() if table_of(name) is None}
    for name, part in job.optimizer.optimizers:
        for parameter, kept in part.state_dict()["state"].items() if name == "dense" else ():
            if not parameter.startswith("__"):  # state of a schedule, which follows from the step
                found |= {f"dense.{parameter}.{key}": each for key, each in kept.items()}
    return found


def dense_step(job: ShardedJob, tensors: Tensors, run: Run, batch: int, trainers: int) -> None:
    """Update dense layers by the gradients of one batch, at a step's learning rate divided by the trainers."""
    for name, parameter in job.model.named_parameters():
        if table_of(name) is None:
            parameter.grad = tensors[f"grad.{name}"]
    part: Any = next(part for name, part in job.optimizer.optimizers if name == "dense")
    for group in part.param_groups:
        group["lr"] = run.optimizers.dense.learning_rate
    set_schedule(job.optimizer, batch // trainers)
    for group in part.param_groups:
        group["lr"] /= trainers
    part.step()


def copy_dense(job: ShardedJob, tensors: Tensors) -> None:
    """Write the `flat_tensors` of another process into a job."""
    with torch.no_grad():
        for name, each in flat_tensors(job, made=any(name.startswith("dense.") for name in tensors)).items():
            if name in tensors:
                each.copy_(tensors[name])
