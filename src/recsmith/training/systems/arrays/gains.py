"""What training several models together brings, before anything is trained; without torch.

A step of a member alone is that of its own dry run (prediction/job_step.py), so that an array and a dry run of one
member tell the same. Together, ids and what every step costs are paid once, and what batching the members costs comes
in their place: measured on ranks of one core each (`python benchmarks/arrays.py pairs`).

B samples of a rank, F features, D columns, K members
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from recsmith.clusters import Cluster
from recsmith.data import DataSchema
from recsmith.prediction.dense_shapes import numbers_of
from recsmith.prediction.histories import history_layers_s
from recsmith.prediction.job_step import OPTIMIZER_S, JobStep, gradients_s
from recsmith.prediction.speeds import layers_s
from recsmith.training.job.layer_shapes import PAIRS, shapes_of
from recsmith.training.models import sequence_settings
from recsmith.training.models.work import layer_work
from recsmith.training.run import Run, RunModel, RunTable
from recsmith.training.run.tables import tables_of
from recsmith.training.systems.arrays.members import members_of
from recsmith.units import format_time

LEAST = 1.1  # times the models a second, under which `auto` trains in turn
# What training together takes beyond that: of a step, of a number that is pooled, of a weight of dense layers.
BATCHED_S, SPREAD_S, JOINED_S = 1e-3, 7e-9, 3e-9


@dataclass(frozen=True)
class StepWork:
    """What a rank does in a step of one model.

    pooled: numbers that it pools. weights: of dense layers. layers_s: seconds of these.
    """

    pooled: float
    weights: float
    layers_s: float


class AloneStep(NamedTuple):
    """The step of one member by itself, as its dry run tells it, and the cluster of its plan."""

    step: JobStep
    cluster: Cluster


@dataclass(frozen=True)
class ArrayGain:
    """Models a second of an array of so many members together, beside in turn.

    alone: a step of each member alone, in seconds, and step: of the array together, on CPU ranks of a core each; none
    where nothing of it was measured, as on GPUs. wanted: as the run has it.
    """

    members: int
    alone: tuple[float, ...]
    step: JobStep | None
    wanted: str

    @property
    def value(self) -> float | None:
        """Times the models a second."""
        return None if self.step is None else sum(self.alone) / self.step.step_s

    @property
    def together(self) -> bool:
        """How the array is trained."""
        pays = self.value is not None and self.value >= LEAST
        return self.wanted == "always" or (self.wanted == "auto" and pays)

    def line(self) -> str:
        """What is said of it."""
        how = f"array: {self.members} members are trained {'together' if self.together else 'in turn'}"
        if self.step is None or self.value is None:
            return f"{how} (array.together: {self.wanted}); what that brings here was not measured"
        why = f"{self.wanted}, which wants {LEAST} times" if self.wanted == "auto" else self.wanted
        least, most = (format_time(each(self.alone)) for each in (min, max))
        return (
            f"{how} (array.together: {why}): a step of one alone is predicted to take "
            f"{least if least == most else f'{least} to {most}'} and one of all together "
            f"{format_time(self.step.step_s)}, which is {self.value:.2f} times the models a second"
        )


def predicted_gain(run: Run, schema: DataSchema, alone: AloneStep | None, *, again: float = 0.0) -> ArrayGain:
    """What training the members of a run's array together brings.

    alone: of its first member; None where its step is not predicted. again: share of the layers that is computed twice.

    Raises:
        UsageError: its members, or their tables, break a rule.
    """
    assert run.array is not None
    models = [member.model for member in members_of(run).values()]
    if alone is None:
        return ArrayGain(len(models), (), None, run.array.together)
    works = [work_of(each, schema, run.data.local_batch_size(run.ranks or 1)) for each in models]
    steps = [_step_of(each, works[0], alone.step) for each in works]
    count, weights = len(works), sum(each.weights for each in works)
    step = replace(
        alone.step, trainer_s=alone.step.trainer_s + BATCHED_S,
        embeddings_s=count * alone.step.embeddings_s + SPREAD_S * sum(each.pooled for each in works),
        layers_s=(1 + again) * sum(each.layers_s for each in steps),
        gradients_s=gradients_s(weights, alone.cluster) if weights else count * alone.step.gradients_s,
        optimizer_s=sum(each.optimizer_s for each in steps) + JOINED_S * weights,
    )  # fmt: skip
    return ArrayGain(count, tuple(each.step_s for each in steps), step, run.array.together)


def _step_of(work: StepWork, first: StepWork, step: JobStep) -> JobStep:
    """The step of a member alone, by that of the first, whose layers may have other sizes."""
    layers, more = step.layers_s + work.layers_s - first.layers_s, OPTIMIZER_S * (work.weights - first.weights)
    share = work.weights / first.weights if first.weights else 1.0
    return replace(
        step, layers_s=layers, gradients_s=step.gradients_s * share, optimizer_s=step.optimizer_s + more
    )  # fmt: skip


def work_of(model: RunModel, schema: DataSchema, samples: int) -> StepWork:
    """What a rank does in a step of one model. Of a model of the user's, layers are not counted."""
    factors = {feature.name: feature.pooling_factor or 1.0 for feature in schema.features}
    features = [(name, table) for table in tables_of(model, schema) for name in table.features]
    numbers = sum((t.embedding_dim or 0) * (factors[name] if t.pooling == "none" else 1) for name, t in features)
    weights, layers = _layers(model, schema, features, factors, samples)
    return StepWork(pooled=float(samples * numbers), weights=weights, layers_s=layers)


def _layers(
    model: RunModel, schema: DataSchema, features: Sequence[tuple[str, RunTable]], factors: Mapping[str, float],
    samples: int,
) -> tuple[float, float]:  # fmt: skip
    """(weights, seconds) of the dense layers of a model."""
    settings = sequence_settings(model.name, model.arguments)
    if settings is None:
        shapes = shapes_of(model, schema)
        pairs = (len(features), model.embedding_dim) if model.name == PAIRS else None
        return float(numbers_of(shapes)), layers_s(shapes, samples, pairs)
    others = sum(table.embedding_dim or 0 for _, table in features if table.pooling != "none")
    lengths = np.array([factors[settings.history[0]]])
    work = layer_work(settings, model.embedding_dim, lengths=lengths, others=others, labels=len(schema.labels))
    return float(sum(out * inward for _, out, inward in work.products)), history_layers_s(work, samples)
