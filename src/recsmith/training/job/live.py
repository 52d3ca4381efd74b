"""The state of a job in memory, from which it continues under another plan: rows move between ranks, not through disk.

It takes the place of the newest checkpoint when a job is prepared again, and holds the same content. On CPUs it refers
to the tensors of the previous job, so that for a while both plans' tables are in memory; on GPUs these are first copied
to host memory.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element

from recsmith.files import Raw
from recsmith.jobs.sharded_model import held_of
from recsmith.plans import Plan
from recsmith.training.job.exchange import Held, exchange
from recsmith.training.job.job import TrainingJob, kept_progress
from recsmith.training.job.resuming import CHECKPOINTS, Saved, kept_by_systems
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.random_states import random_states, restore_random_states
from recsmith.training.run import Run
from recsmith.training.stores.device import DeviceRows
from recsmith.units import format_size, format_time


@dataclass(frozen=True)
class KeptState:
    """What a rank keeps: the job's progress, its parts of tensors, and other optimizer state, by name.

    saved: the step of the newest checkpoint. group: CPU process group of all ranks. moved: bytes that this rank
    received, by name, once the state was loaded.
    """

    progress: Raw
    plan: Plan
    run: Run
    tensors: dict[str, list[Held]]
    others: dict[str, Any]
    random: Raw
    saved: int
    group: Any
    moved: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class LiveState(Saved):
    """A job's state in the memory of its ranks. folder: where its checkpoints would be."""

    kept: KeptState

    @property
    def progress(self) -> Raw:
        """The progress of the job."""
        return self.kept.progress

    @property
    def plan(self) -> Plan:
        """The plan that the job ran under."""
        return self.kept.plan

    @property
    def run(self) -> Run:
        """The run, as decided."""
        return self.kept.run

    def check_job(self, run: Run, weights: Mapping[str, torch.Tensor], stateful: Sequence[str]) -> None:
        """Nothing: it is the same model with the same optimizers."""

    def load(self, job: ShardedJob, run: Run) -> None:
        """Load weights and optimizer state into the ranks' new shards, on every rank; then free what was kept."""
        state = job.rows.state_to_load()
        flat, paths = flatten_state_dict(state)
        here = {name: _held(value) for name, value in flat.items() if hasattr(value, "size")}
        with torch.no_grad():
            self.kept.moved.update(exchange(self.kept.tensors, here, self.kept.group))
        for name in flat.keys() - here.keys():
            set_element(state, paths[name], self.kept.others[name])
        job.rows.load_state_dict(state)
        self.kept.tensors.clear()

    def restore_random(self) -> None:
        """Restore the saved states of random number generators."""
        restore_random_states(self.kept.random)

    def lines(self, run: Run, ranks: int) -> list[str]:
        """A line about the state that training continues from."""
        return [f"going on after step {self.progress['step']:,} from memory"]

    def moved_bytes(self) -> tuple[int, int]:
        """(bytes of weights, bytes of optimizer state) that this rank has received."""
        weights = sum(size for name, size in self.kept.moved.items() if name.startswith("model."))
        return weights, sum(self.kept.moved.values()) - weights


def can_stay_in_memory(job: TrainingJob) -> bool:
    """Whether the whole state of a job is in tensors of its model and optimizers, on all ranks; all must call it."""
    sharded = job.sharded
    plain = type(sharded.rows) is DeviceRows and sharded.hook is None
    return job.agreement.everywhere(plain and not kept_by_systems(sharded, job.run))


def live_state(job: TrainingJob) -> LiveState:
    """A job's current state, on every rank."""
    job.sharded.replicas.meet()
    job.sharded.rows.flush()
    flat = flatten_state_dict(job.sharded.rows.state_dict())[0]
    tensors = {name: _copied(_held(value)) for name, value in flat.items() if hasattr(value, "size")}
    others = {name: value for name, value in flat.items() if name not in tensors}
    progress = json.loads(json.dumps(kept_progress(job)))
    kept = KeptState(
        progress, job.plan, job.run, tensors, others, random_states(), job.progress.saved, job.agreement.group
    )
    return LiveState(Path(job.run.output) / CHECKPOINTS, kept)


def moved_line(weights: int, state: int, seconds: float) -> str:
    """The bytes that were moved over all ranks, in words."""
    return (
        f"moved between ranks, from memory to memory: {format_size(weights)} of weights and {format_size(state)} of "
        f"optimizer state; the job was prepared anew in {format_time(seconds)}"
    )


def _held(value: Any) -> list[Held]:
    return [(tuple(corner), tensor.detach()) for corner, tensor, _ in held_of(value)]


def _copied(held: list[Held]) -> list[Held]:
    """In host memory; tensors that are there already are not copied."""
    return [(corner, tensor.cpu()) for corner, tensor in held]
