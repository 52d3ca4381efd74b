"""The predicted gain of training several models together; without torch.

The step of a member alone is that of its own dry run (prediction/job_step.py), so an array and the dry run of a member
state the same seconds. Together, the exchange of ids and the fixed cost of a step are paid once, and batching the
members adds costs of its own, measured on ranks of one core each (`python benchmarks/arrays.py pairs`).

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

LEAST = 1.1  # least ratio of models a second, together over in turn, at which `auto` trains together
# Seconds that training together adds: for a step, for a pooled number, for a weight of the dense layers.
BATCHED_S, SPREAD_S, JOINED_S = 1e-3, 7e-9, 3e-9


@dataclass(frozen=True)
class StepWork:
    """The work of a rank in a step of one model.

    pooled: number of values that it pools. weights: number of weights of the dense layers. layers_s: seconds of the
    dense layers.
    """

    pooled: float
    weights: float
    layers_s: float


class AloneStep(NamedTuple):
    """The step of one member trained alone, as its dry run predicts it, and the cluster of its plan."""

    step: JobStep
    cluster: Cluster


@dataclass(frozen=True)
class ArrayGain:
    """The predicted speed of an array trained together, compared with training its members in turn.

    alone: seconds of a step of each member alone, on CPU ranks of one core each. step: a step of all members together;
    None if nothing was measured for it, as on GPUs. wanted: array.together of the run.
    """

    members: int
    alone: tuple[float, ...]
    step: JobStep | None
    wanted: str

    @property
    def value(self) -> float | None:
        """Models a second together, divided by models a second in turn; None if not predicted."""
        return None if self.step is None else sum(self.alone) / self.step.step_s

    @property
    def together(self) -> bool:
        """Whether the members are trained together."""
        pays = self.value is not None and self.value >= LEAST
        return self.wanted == "always" or (self.wanted == "auto" and pays)

    def line(self) -> str:
        """A line that says how the array is trained, and why."""
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
    """The predicted gain of training the members of a run's array together.

    alone: step of the first member; None if it is not predicted. again: share of the layers that is computed twice.

    Raises:
        UsageError: the members, or their tables, break a rule.
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
    """The step of a member alone, derived from the first member's, whose layers may have other sizes."""
    layers, more = step.layers_s + work.layers_s - first.layers_s, OPTIMIZER_S * (work.weights - first.weights)
    share = work.weights / first.weights if first.weights else 1.0
    return replace(
        step, layers_s=layers, gradients_s=step.gradients_s * share, optimizer_s=step.optimizer_s + more
    )  # fmt: skip


def work_of(model: RunModel, schema: DataSchema, samples: int) -> StepWork:
    """The work of a rank in a step of one model. The layers of a user's own model are not counted."""
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
