"""A trainer that waits for nobody: it leases batches, and dense layers are on server 0 beside the tables.

Gradients of tables are divided by the number of trainers that the job began with, as in a step of all of them. Dense
layers take the gradient of each batch, at their learning rate divided by that number.
"""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from recsmith.files import Raw
from recsmith.training.agreement import END, Agreement, Ending
from recsmith.training.batches import TrainingBatch, training_batches
from recsmith.training.job import CHECKPOINTS, Progress, TrainingJob, finish, progress_from
from recsmith.training.log import RunLog, StepTimes, starting_lines
from recsmith.training.loop import train_steps
from recsmith.training.metrics import Window
from recsmith.training.models import Unsharded, unsharded
from recsmith.training.remote.client import TableClient
from recsmith.training.remote.model import RemoteCheckpoints, trainer_model
from recsmith.training.remote.server import copy_dense, flat_tensors
from recsmith.training.remote.tables import with_remote_tables
from recsmith.training.resuming import random_states
from recsmith.training.run import Run, save_run
from recsmith.training.watchers import Watchers

KEPT = 1000  # places in the data: more than may be under way at once
STALE_STEP = "recsmith.training.remote.tables:StaleStep"


def train_stale(run: Run, client: TableClient, number: int, watchers: Watchers, ending: Ending) -> Raw:
    """Train the batches that this trainer leases; what came of it. number: of this trainer; 0 writes the log."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    os.environ["RANK"] = str(number)  # of those who write messages, 0
    job, batches = prepared_stale(run, client, number)
    with closing(job.log), closing(batches):
        watchers.begin(job.progress.watchers)
        left_by = train_steps(job, batches, watchers, ending, StepTimes(), Window(job.sharded.device))
        if left_by == END:
            client.words(0, "stop")
        client.batch = None
        chief = client.drained()
        told = {**chief["told"], **asdict(client.counts)}
        job.log.write("remote", {"step": job.progress.step, **told})
        job.progress.step = chief["step"]
        if not chief["mine"]:
            return {"step": chief["step"], "complete": left_by != END, "remote": told}
        copy_dense(job.sharded, client.begin()[3])
        return {**finish(job, ended=left_by == END), "remote": told}


def prepared_stale(run: Run, client: TableClient, number: int) -> tuple[TrainingJob, Generator[TrainingBatch]]:
    """The job of this trainer, and the batches that it leases."""
    begun, output, agreement = time.perf_counter(), Path(run.output), Agreement()
    parts, (plan, raw, names, dense) = unsharded(run), client.begin()
    parameters, width = parts.parameters, client.trainers
    with_remote_tables(parts.task, client)
    sharded = trainer_model(run, parts.task, client, names)
    copy_dense(sharded, {name: each for name, each in dense.items() if name.startswith("model.")})
    client.dense = {name: each for name, each in flat_tensors(sharded).items() if name.startswith("model.")}
    client.parameters = dict(sharded.model.named_parameters())
    torch.manual_seed(run.seed * width + number)
    progress = Progress() if raw is None else progress_from(raw, "server 0's progress")
    log = RunLog(output, number, tensorboard=run.metrics.tensorboard, step=progress.step)
    if number == 0:
        save_run(run, output / "run.json")
        samples = parts.source.length
        for line in starting_lines(run, plan, parameters=parameters, samples=samples, ranks=width):
            log.say({"note": line})
        log.write("start", {"step": progress.step, "seconds": time.perf_counter() - begun, "plan": plan.digest})
    data = replace(run.data, batch_size=run.data.local_batch_size(width), global_batch_size=None)
    made = replace(
        run, pipeline=STALE_STEP, data=data, steps=None, checkpoint=None,
        metrics=replace(run.metrics, evaluate_every=None),
    )  # fmt: skip
    checkpoints: Any = RemoteCheckpoints(output / CHECKPOINTS, client, agreement)
    job = TrainingJob(made, plan, parts.source, parts.features, sharded, agreement, checkpoints, log, progress)
    return job, leased(made, parts, client, log, progress)


def leased(
    run: Run, parts: Unsharded, client: TableClient, log: RunLog, progress: Progress
) -> Generator[TrainingBatch]:
    """The batches that this trainer leases, of all that it reads in order; it saves the job where it is asked to."""
    reader = Reader(run, parts, progress, client.trainers)
    with closing(reader):
        while True:
            found = client.lease()
            if "end" in found:
                return
            if "save" in found:
                problem = _save(client, reader.state_before(found["save"]), found["save"])
                if problem:
                    log.say({"note": f"no checkpoint before batch {found['save']:,}: {problem}; training goes on"})
                continue
            batch = reader.batch(found["batch"])
            if batch is None:
                client.words(0, "ended", batch=found["batch"])
                continue
            client.batch = found["batch"]
            yield batch


class Reader:
    """The batches of a job by their numbers, as one trainer would read them all."""

    def __init__(self, run: Run, parts: Unsharded, progress: Progress, width: int) -> None:
        self._next, self._state = progress.step * width, progress.position
        self._states = {self._next: self._state}  # of the data, before batches that may come again
        self._open = lambda state: training_batches(
            parts.source, run.data.batch_sizes(1), parts.features, rank=0, ranks=1, state=state
        )
        self._batches: Iterator[TrainingBatch] = self._open(self._state)
        self._held: TrainingBatch | None = None

    def batch(self, number: int) -> TrainingBatch | None:
        """The batch of a number; None where the data ends before it. One from before begins anew."""
        if number < self._next:
            self.close()
            self._next = max(each for each in self._states if each <= number)
            self._state = self._states[self._next]
            self._batches = self._open(self._state)
        while self._next <= number:
            self._held = next(self._batches, None)
            if self._held is None:
                return None
            self._next, self._state = self._next + 1, self._held.place.state
            self._states[self._next] = self._state
            if len(self._states) > KEPT:
                del self._states[min(self._states)]
        return self._held

    def state_before(self, number: int) -> Any:
        """Where the data goes on with a batch."""
        self.batch(number - 1)
        return self._state

    def close(self) -> None:
        """End what reads."""
        if isinstance(self._batches, Generator):
            self._batches.close()


def _save(client: TableClient, position: Any, batch: int) -> str | None:
    """Have the servers save all that is before a batch; what went wrong, in words."""
    width = client.trainers
    dense = {name: each for name, each in client.begin()[3].items() if name.startswith(("model.", "dense."))}
    progress = {"step": batch // width, "ranks": width, "position": position, "scores": None}
    problem = client.save(dense, progress, [random_states()])
    client.words(0, "saved", batch=batch)
    return problem
