"""What training several models together brings, before anything is trained; without torch.

A step is a sum of work, each at a rate that was measured on ranks of one core each (`python benchmarks/arrays.py
pairs`): what every step costs, reading and sending ids, lookups, products of layers, and parameters. Together, the
first two are paid once.

B samples of a rank, F features, D columns, K members
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from recsmith.data import DataSchema
from recsmith.training.arrays.members import members_of
from recsmith.training.run import Run, RunModel
from recsmith.training.tables import tables_of

LEAST = 1.1  # times the models a second, under which `auto` trains in turn


@dataclass(frozen=True)
class Rates:
    """Seconds of a step of some ranks: by itself, of an id, of a number that is pooled, of a product, of a weight."""

    step: float
    ids: float
    pooled: float
    products: float
    weights: float

    def seconds(self, work: "StepWork") -> float:
        """Of a step."""
        parts = self.ids * work.ids, self.pooled * work.pooled, self.products * work.products
        return self.step + sum(parts) + self.weights * work.weights


ALONE = Rates(step=6e-3, ids=1.2e-6, pooled=8e-9, products=8e-11, weights=3e-9)
TOGETHER = Rates(step=18e-3, ids=1.0e-6, pooled=2e-8, products=8e-11, weights=6e-9)


@dataclass(frozen=True)
class StepWork:
    """What a rank does in a step: ids that it reads, numbers that it pools, products and weights of dense layers."""

    ids: float
    pooled: float
    products: float
    weights: float


@dataclass(frozen=True)
class ArrayGain:
    """Models a second of an array of so many members together, beside in turn. wanted: as the run has it."""

    value: float
    members: int
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
    models = [member.model for member in members_of(run).values()]
    whole = run.data.global_batch_size
    works = [work_of(each, schema, whole / (run.ranks or 1) if whole else run.data.batch_size) for each in models]
    pooled, products, weights = (
        sum(getattr(each, name) for each in works) for name in ("pooled", "products", "weights")
    )
    together = TOGETHER.seconds(StepWork(works[0].ids, pooled, products * (1 + again), weights))
    value = sum(ALONE.seconds(each) for each in works) / together
    return ArrayGain(value, len(models), run.array.together, on_gpu)


def work_of(model: RunModel, schema: DataSchema, samples: float) -> StepWork:
    """What a rank does in a step of one model. Of a model of the user's, layers are not counted."""
    tables = tables_of(model, schema)
    factors = {feature.name: feature.pooling_factor or 1.0 for feature in schema.features}
    features = [(name, table.embedding_dim or 0) for table in tables for name in table.features]
    ids, columns = sum(factors[name] for name, _ in features), sum(width for _, width in features)
    weights, products = _layers(model, max(1, len(schema.dense)), len(features), columns)
    return StepWork(samples * ids, samples * columns, samples * products, weights)


def _layers(model: RunModel, dense: int, features: int, columns: int) -> tuple[float, float]:
    """(weights, products of a sample) of the dense layers of a built-in model."""
    width, all_columns = model.embedding_dim, columns + model.embedding_dim
    if model.name == "deepfm":
        sizes = [(dense, model.hidden, width), (all_columns, model.factors), (width + model.factors + 1, 1)]
        return _of(sizes), _of(sizes)
    if model.name == "dlrm_dcn":
        cross = 2.0 * model.cross_layers * all_columns * min(model.cross_rank, all_columns)
        bottom, top = (dense, *model.bottom, width), (all_columns, *model.top, 1)
        return _of([bottom, top]) + cross, _of([bottom, top]) + cross
    if model.name == "dlrm":
        pairs = features * (features + 1) // 2
        bottom, top = (dense, *model.bottom, width), (width + pairs, *model.top, 1)
        return _of([bottom, top]), _of([bottom, top]) + (features + 1) ** 2 * width
    return 0.0, 0.0


def _of(stacks: Sequence[Sequence[int]]) -> float:
    """Weights of stacks of linear layers of these sizes."""
    return float(sum(a * b for sizes in stacks for a, b in pairwise(sizes)))
