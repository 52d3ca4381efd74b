"""What training several models together brings, before anything is trained; without torch.

A step of a model alone has the parts of prediction/job_step.py, with lookups by what a number that is pooled takes, for
there is no plan yet. Together, ids and what every step costs are paid once, and what batching the members costs comes
in their place: measured on ranks of one core each (`python benchmarks/arrays.py pairs`).

B samples of a rank, F features, D columns, K members
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recsmith.data import DataSchema
from recsmith.prediction.histories import history_layers_s
from recsmith.prediction.job_step import OPTIMIZER_S, JobStep, numbers_of
from recsmith.prediction.speeds import layers_s
from recsmith.training.job.layer_shapes import PAIRS, shapes_of
from recsmith.training.models import sequence_settings
from recsmith.training.models.work import layer_work
from recsmith.training.run import Run, RunModel, RunTable
from recsmith.training.run.tables import tables_of
from recsmith.training.systems.arrays.members import members_of

LEAST = 1.1  # times the models a second, under which `auto` trains in turn
POOLED_S = 8e-9  # of a number that is pooled, forward and backward
# What training together takes beyond that: of a step, of a number that is pooled, of a weight of dense layers.
BATCHED_S, SPREAD_S, JOINED_S = 6e-3, 12e-9, 3e-9
# Of a step alone on the processor that arrays were measured on, which is slower than that of prediction/job_step.py: of
# any step, a feature, a feature of a sample, an id; and of several ranks.
TRAINER_S, FEATURE_S, BAG_S, ID_S, MEETING_S = 2.5e-3, 2.2e-4, 2e-7, 2.1e-7, 4e-3


@dataclass(frozen=True)
class StepWork:
    """What a rank does in a step of one model.

    bags, ids: that it reads. pooled: numbers that it pools. weights: of dense layers. layers_s: seconds of these.
    """

    bags: float
    ids: float
    features: int
    pooled: float
    weights: float
    layers_s: float

    def own_s(self) -> float:
        """What each of several members takes, together or alone."""
        return self.pooled * POOLED_S + self.layers_s + self.weights * OPTIMIZER_S

    def shared_s(self, ranks: int) -> float:
        """What all members together pay once."""
        return self.trainer_s(ranks) + self.reading_s()

    def trainer_s(self, ranks: int) -> float:
        """Of the loop, and of what is done for each feature."""
        return TRAINER_S + FEATURE_S * self.features + (MEETING_S if ranks > 1 else 0.0)

    def reading_s(self) -> float:
        """Of ids, and of the bags that they are in."""
        return self.bags * BAG_S + self.ids * ID_S


@dataclass(frozen=True)
class ArrayGain:
    """Models a second of an array of so many members together, beside in turn.

    step: of the array together, on CPU ranks of a core each. wanted: as the run has it.
    """

    value: float
    members: int
    step: JobStep
    wanted: str
    on_gpu: bool = False

    @property
    def together(self) -> bool:
        """How the array is trained."""
        pays = self.value >= LEAST and not self.on_gpu
        return self.wanted == "always" or (self.wanted == "auto" and pays)

    def line(self) -> str:
        """What is said of it."""
        how = f"array: {self.members} members are trained {'together' if self.together else 'in turn'}"
        if self.on_gpu:
            return f"{how} (array.together: {self.wanted}); what that brings on GPUs was not measured"
        why = f"{self.wanted}, which wants {LEAST} times" if self.wanted == "auto" else self.wanted
        return (
            f"{how} (array.together: {why}); together, {self.value:.2f} times the models a second are predicted, on "
            "CPU ranks of a core each"
        )


def predicted_gain(run: Run, schema: DataSchema, *, on_gpu: bool, again: float = 0.0) -> ArrayGain:
    """What training the members of a run's array together brings. again: share of the layers that is computed twice.

    Raises:
        UsageError: its members, or their tables, break a rule.
    """
    assert run.array is not None
    ranks = run.ranks or 1
    models = [member.model for member in members_of(run).values()]
    works = [work_of(each, schema, run.data.local_batch_size(ranks)) for each in models]
    alone = sum(each.own_s() + each.shared_s(ranks) for each in works)
    pooled, weights = sum(each.pooled for each in works), sum(each.weights for each in works)
    step = JobStep(
        trainer_s=works[0].trainer_s(ranks) + BATCHED_S, reading_s=works[0].reading_s(),
        embeddings_s=pooled * (POOLED_S + SPREAD_S), layers_s=(1 + again) * sum(each.layers_s for each in works),
        gradients_s=0.0, optimizer_s=weights * (OPTIMIZER_S + JOINED_S),
    )  # fmt: skip
    return ArrayGain(alone / step.step_s, len(models), step, run.array.together, on_gpu)


def work_of(model: RunModel, schema: DataSchema, samples: int) -> StepWork:
    """What a rank does in a step of one model. Of a model of the user's, layers are not counted."""
    tables = tables_of(model, schema)
    factors = {feature.name: feature.pooling_factor or 1.0 for feature in schema.features}
    features = [(name, table) for table in tables for name in table.features]
    ids = sum(factors[name] for name, _ in features)
    numbers = sum((t.embedding_dim or 0) * (factors[name] if t.pooling == "none" else 1) for name, t in features)
    weights, layers = _layers(model, schema, features, factors, samples)
    return StepWork(
        bags=samples * len(features), ids=samples * ids, features=len(features), pooled=float(samples * numbers),
        weights=weights, layers_s=layers,
    )  # fmt: skip


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
