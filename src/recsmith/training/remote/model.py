"""What trainers of a job with servers have alike: a model of dense layers, and checkpoints that servers write."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
from torchrec.distributed import collective_utils
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingPlan

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.training.agreement import Agreement
from recsmith.training.models import Task
from recsmith.training.optimizers.building import combined_optimizer
from recsmith.training.remote.calls import Tensors
from recsmith.training.remote.client import TableClient
from recsmith.training.remote.server import flat_tensors
from recsmith.training.remote.tables import RemoteRows
from recsmith.training.resuming import random_states
from recsmith.training.run import Run
from recsmith.training.sharded import ShardedJob, rank_device


def trainer_model(run: Run, task: Task, client: TableClient, names: dict[str, str]) -> ShardedJob:
    """The model of a trainer: its dense layers in DistributedDataParallel, as the planned job has them."""
    device = rank_device()
    collective_utils._INITIALIZED = True  # the first model of a process asks all others, and newcomers would ask alone
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
            return {"problem": self.client.save(dense, progress, random)}

        return from_rank_0(save, self.agreement.group)["problem"]

    def poll(self) -> None:
        """Servers write before they answer."""

    def finish(self) -> None:
        """Servers write before they answer."""
