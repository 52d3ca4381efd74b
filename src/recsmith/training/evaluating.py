"""Scores of a sharded model on samples that it does not train on."""

import torch
import torch.distributed as dist

from recsmith.data import Dataset
from recsmith.training.batches import evaluation_batches
from recsmith.training.metrics import Window
from recsmith.training.scores import Scores
from recsmith.training.sharded import ShardedJob
from recsmith.training.tables.features import Features


def score(job: ShardedJob, dataset: Dataset, features: Features, batch_size: int) -> Scores:
    """Scores on all samples of a dataset, with the exact AUC; called on every rank."""
    window = Window(job.device)
    job.model.eval()
    with torch.no_grad():
        for batch, count in evaluation_batches(
            dataset, features, rank=dist.get_rank(), ranks=dist.get_world_size(), batch_size=batch_size
        ):
            _, (_, logits, labels, _) = job.model(batch.to(job.device))
            window.add(logits[:count], labels[:count])
    job.model.train()
    return window.exact_scores()
