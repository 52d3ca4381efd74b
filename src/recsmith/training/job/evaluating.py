"""Evaluation of a sharded model on all samples of a dataset, which leaves training unchanged."""

from dataclasses import replace

import torch
import torch.distributed as dist

from recsmith.data import DataSchema, Dataset
from recsmith.scoring.predictions import ScoredLabels, Window
from recsmith.scoring.ranking import grouping
from recsmith.scoring.scores import Scores
from recsmith.training.batches import evaluation_batches
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.losses.settings import number_tasks
from recsmith.training.random_states import random_kept
from recsmith.training.run import Run
from recsmith.training.step_clock import STEPS
from recsmith.training.tables.features import Features


def scored_labels(run: Run, schema: DataSchema) -> ScoredLabels:
    """The labels that a run's model predicts."""
    return ScoredLabels(schema.labels, number_tasks(run.model.tasks, schema), run.metrics.pr_auc)


def score(job: ShardedJob, dataset: Dataset, features: Features, batch_size: int, run: Run) -> Scores:
    """Scores of one model on all samples of a dataset, with exact AUC; called on every rank."""
    return score_each(job, dataset, features, batch_size, run)[0]


def score_each(
    job: ShardedJob, dataset: Dataset, features: Features, batch_size: int, run: Run, models: int = 1
) -> list[Scores]:
    """Scores of several models that are called as one, with logits of shape (models, B, L); called on every rank.

    run: gives the models' tasks, and which samples are ranked together.

    Raises:
        UsageError: the data does not say which samples are ranked together.
    """
    labels_of, ranked = scored_labels(run, dataset.schema), grouping(run.metrics.group, run.metrics.at, dataset)
    windows = [Window(job.device, labels_of, ranked) for _ in range(models)]
    job.replicas.meet()
    job.model.eval()
    with STEPS.standing(), random_kept(), torch.no_grad():
        for batch, count in evaluation_batches(
            dataset, features, rank=dist.get_rank(), ranks=dist.get_world_size(), batch_size=batch_size
        ):
            job.rows.prefetch(batch)
            _, (_, logits, labels, _) = job.model(batch.to(job.device))
            for window, each in zip(windows, logits.view(models, *labels.shape), strict=True):
                window.add(each[:count], labels[:count], [batch.place.samples])
                window.add_groups(batch.place.samples, count)
    job.model.train()
    found = [window.exact_scores() for window in windows]
    return [replace(each, corrupt=(dataset.num_samples or each.samples) - each.samples) for each in found]
