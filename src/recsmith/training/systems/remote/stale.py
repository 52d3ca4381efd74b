"""A trainer that waits for no other: it leases batches, and server 0 holds the dense layers in addition to tables.

Gradients of tables are divided by the number of trainers that the job began with, as in a step of all of them. Dense
layers are updated by the gradient of each batch, at their learning rate divided by that number.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from recsmith.files import Raw
from recsmith.training.batches import TrainingBatch, training_batches
from recsmith.training.job.agreement import END, Ending
from recsmith.training.job.finishing import finish
from recsmith.training.job.job import AmongOthers, Progress, TrainingJob, log_progress
from recsmith.training.job.log import RunLog, StepTimes
from recsmith.training.job.models import Unsharded
from recsmith.training.loop import train_steps
from recsmith.training.random_states import random_states
from recsmith.training.rank import OneModel
from recsmith.training.run import Run
from recsmith.training.run.data import BatchSizes
from recsmith.training.sources import total_steps
from recsmith.training.systems.remote.client import TableClient
from recsmith.training.systems.remote.model import copy_dense, flat_tensors, never_anew, trainer_job
from recsmith.training.watchers import Watchers
from recsmith.units import counted

KEPT = 1000  # positions in the data that are kept: more than there can be batches under way


def train_stale(run: Run, client: TableClient, number: int, watchers: Watchers, ending: Ending) -> Raw:
    """Train the batches that this trainer leases, and return the result. number: of this trainer; 0 writes the log."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    os.environ["RANK"] = str(number)  # rank 0 writes messages
    job, batches = trainer_job(
        run, client, number, None, lambda parts, _, progress, log: leased(run, parts, client, log, progress)
    )
    data = replace(run.data, batch_size=run.data.local_batch_size(client.trainers), global_batch_size=None)
    metrics = replace(run.metrics, evaluate_every=None)
    begun = job.progress.step  # step of the checkpoint that all trainers continue from
    whole = total_steps(run, job.source, client.trainers, begun, job.progress.position)
    job = replace(job, run=replace(job.run, data=data, steps=None, checkpoint=None, metrics=metrics))
    client.dense = {name: each for name, each in flat_tensors(job.sharded).items() if name.startswith("model.")}
    client.parameters = dict(job.sharded.model.named_parameters())
    with closing(job.log), closing(batches):
        watchers.watch(job)
        model = LeasedModel(job, client, whole)
        while (left_by := train_steps(model, batches, watchers, ending, StepTimes())) is not None:
            never_anew(left_by)
            # this ends all trainers, after they have trained and saved the step under way
            client.ask("stop", signal=left_by == END)
        client.batch = None
        chief = client.wait_for("drained")
        client.lost, client.joined, client.left = (chief["told"][each] for each in ("lost", "joined", "left"))
        trained = chief["told"]["batches"]
        client.step_s = chief["told"]["seconds"] * client.trainers / trained if trained else None
        counts = {**chief["told"], **asdict(client.counts)}
        own, ended = job.progress.step - begun, chief["ended"]
        if not chief["mine"]:
            return {"step": chief["step"], "complete": not ended, "remote": counts}
        job.log.lead()
        job.log.write("remote", {**counts, "step": chief["step"], "own_batches": own})
        job.log.say({"note": lags_line(counts, own)})
        job.progress.step, job.progress.saved = chief["step"], chief["saved"]
        copy_dense(job.sharded, client.begin()[3])
        job.progress.tested = None  # scores of rows that other trainers have changed since
        if ended:  # for the message about checkpoints, which servers have written
            job = replace(job, run=replace(job.run, checkpoint=run.checkpoint))
        return {**finish(job, ended=ended), "remote": counts}


class LeasedModel(OneModel):
    """A trainer's model, whose log lines report the progress of all trainers. whole: steps of the job, if known."""

    def __init__(self, job: TrainingJob, client: TableClient, whole: int | None) -> None:
        super().__init__(job)
        self._client, self._whole = client, whole
        self._before = job.progress.step * client.trainers  # batches of all trainers when the last line was logged

    def tell(self, times: StepTimes, total: int | None) -> None:
        """Log scores and times of this trainer's batches since the last line, and how far the job is."""
        batches, width = (self._client.batch or 0) + 1, self._client.trainers
        self.job.progress.scores = self._window.scores()
        among = AmongOthers(
            step=batches // width, trained=self.job.progress.step, batches=batches,
            since=max(batches - self._before, 1), width=width, lag=self._client.lag,
        )  # fmt: skip
        self._before = max(batches, self._before)
        log_progress(self.job, times, self._whole, among)


def lags_line(counts: Raw, own: int) -> str:
    """A line on how many batches trainers with a staleness have trained, and how far their rows lagged."""
    lags = sorted((int(lag), count) for lag, count in counts["lags"].items())
    late = ", ".join(f"by {counted(lag, 'step') if lag else 'no step'} in {count:,}" for lag, count in lags)
    return f"remote: {counts['batches']:,} batches of all trainers, {own:,} of this one; their rows lagged {late}"


def leased(
    run: Run, parts: Unsharded, client: TableClient, log: RunLog, progress: Progress
) -> Generator[TrainingBatch]:
    """Yield the batches that this trainer leases, reading all in order; save the job when server 0 asks for it."""
    reader = Reader(run, parts, progress, client.trainers)
    with closing(reader):
        while True:
            found = client.wait_for("lease")
            client.log_changes(log, next(iter(found.values())) // client.trainers)
            if "end" in found:
                return
            if "save" in found:
                problem = _save(client, reader.state_before(found["save"]), found["save"])
                if problem:
                    log.say({"note": f"no checkpoint before batch {found['save']:,}: {problem}; training goes on"})
                continue
            batch = reader.batch(found["batch"])
            if batch is None:
                client.ask("end_at", batch=found["batch"])
                continue
            client.batch, client.lag = found["batch"], found["lag"]
            yield batch


class Reader:
    """The batches of a job by number, in the order in which a single trainer would read all of them."""

    def __init__(self, run: Run, parts: Unsharded, progress: Progress, width: int) -> None:
        self._next, self._state = progress.step * width, progress.position
        self._states = {self._next: self._state}  # positions in the data before batches that may be asked for again
        sizes = BatchSizes(((0, run.data.local_batch_size(width)),))
        self._open = lambda state: training_batches(parts.source, sizes, parts.features, rank=0, ranks=1, state=state)
        self._batches: Iterator[TrainingBatch] = self._open(self._state)
        self._held: TrainingBatch | None = None

    def batch(self, number: int) -> TrainingBatch | None:
        """The batch with a number; None if the data ends before it. For an earlier batch the data is reopened."""
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
        """The position in the data at which a batch begins."""
        self.batch(number - 1)
        return self._state

    def close(self) -> None:
        """Close the open reader of the data."""
        if isinstance(self._batches, Generator):
            self._batches.close()


def _save(client: TableClient, position: Any, batch: int) -> str | None:
    """Have the servers save the state before a batch; returns what went wrong, or None."""
    width = client.trainers
    dense = {name: each for name, each in client.begin()[3].items() if name.startswith(("model.", "dense."))}
    progress = {"step": batch // width, "ranks": width, "position": position, "scores": None}
    problem = client.save(dense, progress, [random_states()])
    client.ask("saved", batch=batch, well=problem is None)
    return problem
