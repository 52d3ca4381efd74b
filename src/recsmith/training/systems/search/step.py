"""The training step of an architecture search: it updates weights and choices, each on separate samples.

    pipeline: {name: search, steps: 4000, warm_up: 400, coefficient: 0.1, ceiling: 0.4}

Krishna et al. (arXiv 2110.14812): weights are trained on four fifths of the samples and choices on the rest. A sample's
number decides, so it never serves both. Here each batch updates both after one forward pass: first choices, by the
gradient of the batch's held-out samples, then weights, by that of all other samples.

B samples of a batch on this rank
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from recsmith._random import buckets, salt
from recsmith._types import Bools, Ints
from recsmith.errors import UsageError, check_rules, too_small
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.losses import by_label
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.steps.protocol import StepOutcome, UnpipelinedStep
from recsmith.training.systems.search import NO_CHOICES
from recsmith.training.systems.search.tables import Draws, draws_of

FIFTHS = 5  # 1 / FIFTHS of the samples is held out for the choices
BETAS, EPS = (0.9, 0.999), 1e-8  # of Adam for choices


class SearchStep(UnpipelinedStep):
    """A step that trains weights on each batch, and after a warm-up choices too.

    steps: of the whole search, over which the temperature falls by the same factor at each step. hot, cold: the
    temperature at the beginning and at the end. warm_up: steps before choices change. coefficient: weight of the
    logarithm of the expected price, as a share of the run's. ceiling: expected prices below this share count as the
    ceiling. fixed: share of the run's price that no choice changes. learning_rate: of Adam for choices.

    Raises:
        UsageError: the model has no choices, or a setting is out of range.
    """

    def __init__(
        self, job: ShardedJob, *, steps: int, warm_up: int, coefficient: float = 0.1, ceiling: float = 0.0,
        fixed: float = 0.0, hot: float = 0.5, cold: float = 0.2, learning_rate: float = 0.05,
    ) -> None:  # fmt: skip
        check_rules(
            too_small("pipeline.steps", steps, 1),
            too_small("pipeline.warm_up", warm_up, 0),
            None if coefficient >= 0 else f"pipeline.coefficient is {coefficient:g}; 0 or more",
            None if hot >= cold > 0 else f"pipeline: hot is {hot:g} and cold {cold:g}; hot >= cold > 0",
        )
        task: Any = job.model.module
        self.job, self.draws = job, draws_of(task)
        if not self.draws:
            raise UsageError(NO_CHOICES)
        self.steps, self.warm_up, self.coefficient, self.ceiling = steps, warm_up, coefficient, ceiling
        self.fixed, self.hot, self.cold, self.rate = fixed, hot, cold, learning_rate
        self.logits: torch.Tensor | None = None
        task.loss.register_forward_pre_hook(self._keep)

    def _keep(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.logits = inputs[0]

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train on the next batch."""
        batch = next(batches).to(self.job.device)
        kept = held_out(batch.place.samples.sample_ids)
        done = float(self.draws[0].turns[0])
        for draws in self.draws:
            draws.temperature = self.temperature(done)
            draws.turns[0] += 1
        loss, outcome = self.job.model(_without(batch, kept))
        if done >= self.warm_up:
            self._choose(batch, kept)
        self.job.optimizer.zero_grad()
        loss.backward()
        self.job.optimizer.step()
        _, logits, labels, place = outcome
        return StepOutcome(outcome[0], logits, labels, (place,))

    def temperature(self, done: float) -> float:
        """The temperature of the draws after this many steps."""
        along = min(1.0, max(0.0, done - self.warm_up) / max(1, self.steps - self.warm_up))
        return self.hot * (self.cold / self.hot) ** along

    def price(self) -> torch.Tensor:
        """The expected price of the last batch's draws, as a share of the run's price."""
        shares = [(draws.drawn.mean(dim=0) * draws.prices).sum() for draws in self.draws if draws.drawn is not None]
        return torch.stack(shares).sum() + self.fixed

    def _choose(self, batch: TrainingBatch, kept: Bools) -> None:
        """Update choices, the same on all ranks, by the mean gradient of all held-out samples."""
        assert self.logits is not None
        count, whole = torch.tensor(float(kept.sum()), device=self.job.device), len(kept)
        dist.all_reduce(count)
        losses = nn.functional.binary_cross_entropy_with_logits(
            by_label(self.logits, batch)[:whole], batch.labels[:whole], reduction="none"
        ).mean(dim=1)
        shown_loss = (losses * torch.from_numpy(kept).to(losses)).sum() * dist.get_world_size() / count.clamp(min=1.0)
        objective = shown_loss + self.coefficient * self.price().clamp(min=max(self.ceiling, 1e-12)).log()
        leaves = [draws.leaf for draws in self.draws if draws.leaf is not None]
        gradients = torch.autograd.grad(objective, leaves, retain_graph=True)
        for draws, gradient in zip(self.draws, gradients, strict=True):
            dist.all_reduce(gradient)
            _move(draws, gradient / dist.get_world_size(), self.rate)


def held_out(sample_ids: Ints) -> Bools:
    """Which samples (B,) train choices instead of weights: a fifth, by their numbers."""
    return buckets(sample_ids, np.array([salt("held out of weights")], np.uint64), FIFTHS) == 0


def _without(batch: TrainingBatch, kept: Bools) -> TrainingBatch:
    """The batch with loss weights of 0 for held-out samples."""
    samples = batch.place.samples
    weights = np.where(kept, 0.0, FIFTHS / (FIFTHS - 1)).astype(np.float32)
    place = replace(batch.place, samples=replace(samples, loss_weights=weights))
    return TrainingBatch(batch.dense_features, batch.sparse_features, batch.labels, place)


def _move(draws: Draws, gradient: torch.Tensor, rate: float) -> None:
    """A step of Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1), with state that is saved with the model."""
    first, second = draws.moments
    draws.turns[1] += 1
    first.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    done = float(draws.turns[1])
    corrected = math.sqrt(1 - BETAS[1] ** done) / (1 - BETAS[0] ** done)
    draws.theta.addcdiv_(first, second.sqrt().add_(EPS), value=-rate * corrected)
