"""Predicts the step of a training job before anything is trained: the one sum that every price of a job uses.

    step = trainer + reading + embeddings + rows from elsewhere + layers + gradients + optimizer

Embeddings are those of the plan under its cost model, layers are kernels of the learned machine (speeds.py), gradients
use its curve of a collective, and reading depends on the format of the data (reading.py). The trainer's own work was
measured on other jobs than those that check it (`python benchmarks/dry_run.py rates`); the figures are of a core of
this project's machine. On GPUs nothing of this was measured, so no step is predicted there.

B samples of a rank, W ranks
"""

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.plans import Plan
from recsmith.prediction.dense_shapes import NUMBER_BYTES, Shapes, numbers_of
from recsmith.prediction.reading import GENERATED, Reading
from recsmith.prediction.speeds import core, layers_s
from recsmith.prediction.turns import between_hosts_s, exchange_s
from recsmith.units import format_time

ERROR = 0.25  # share of a step within which ten of twelve jobs are (docs/benchmarks/train.md)
TRAINER_S = 1.27e-3  # seconds of any step: the loop, TorchRec's pipeline, losses and scores
FEATURE_S = 9.9e-6  # seconds of a feature: its ids as a tensor, its part of the batch, its table in the lookup
BAG_S = 1.9e-7  # seconds of a feature of a trained sample: its place in the tensors, its part of the tables' outputs
SENT_ID_S = 1.4e-8  # seconds of an id that is looked up: joined with others, checked, sorted by feature, sent
MEETING_S = 2.3e-3  # seconds of a step of several ranks: exchange of sizes, and TorchRec's work around it
MET_FEATURE_S = 9.7e-5  # the same for each feature
UNEVEN = 0.4  # share of the seconds of dense layers and optimizer that several ranks add: all wait for the slowest
OPTIMIZER_S = 2.7e-9  # seconds of a number of dense layers: Adam, and zeroing gradients (benchmarks/narrow.py)


@noun
class JobStep:
    """Seconds of a step of a job, part by part.

    trainer_s: of the loop, the work for each feature, and the synchronisation of ranks. reading_s: of reading the
    samples of a batch, as far as nothing hides it. embeddings_s: of lookups, their updates and their exchanges between
    ranks, by the plan's cost model, with the extra seconds of gloo between hosts. layers_s: forward and backward of
    dense layers. gradients_s: of the exchange of their gradients between ranks. optimizer_s: of their update, and of
    that of copied tables. rows_s: of rows that come from files or servers, which is no work of the tables' kernels.
    error: share of the step by which the prediction may be off.
    """

    trainer_s: float
    reading_s: float
    embeddings_s: float
    layers_s: float
    gradients_s: float
    optimizer_s: float
    rows_s: float = 0.0
    error: float = ERROR

    @property
    def step_s(self) -> float:
        """Seconds of the whole step: the sum of its parts."""
        parts = self.trainer_s, self.reading_s, self.embeddings_s, self.layers_s, self.gradients_s, self.optimizer_s
        return sum(parts) + self.rows_s

    def __str__(self) -> str:
        """In a line, the step, its error and its parts."""
        parts = {
            "tables": self.embeddings_s, "rows from elsewhere": self.rows_s, "dense layers": self.layers_s,
            "their gradients": self.gradients_s, "their optimizer": self.optimizer_s,
            "reading": self.reading_s, "the trainer": self.trainer_s,
        }  # fmt: skip
        text = ", ".join(f"{name} {format_time(seconds)}" for name, seconds in parts.items() if seconds > 0)
        return f"{format_time(self.step_s)}, predicted to {self.error:.0%} for a rank that has a core: {text}"


def job_step(
    plan: Plan, shapes: Shapes, *, pairs: bool = False, embeddings_s: float | None = None,
    reading: Reading | None = None,
) -> JobStep | None:  # fmt: skip
    """The step of a job with plain dense layers under a plan; None on GPUs, where nothing of it was measured.

    shapes: those of its dense parameters. pairs: whether the model takes products of all pairs of features, as DLRM
    does. embeddings_s: seconds of its tables; None: as the plan says. reading: how samples are read; None: as generated
    samples of the plan's features.
    """
    workload, cluster = plan.workload, plan.cluster
    if cluster.device.kind != "cpu":
        return None
    features = [each for table in workload.tables for each in table.features]
    batch, ranks = workload.batch_size, cluster.job_world_size
    ids = [each.pooling_factor * each.num_poolings for each in features]
    sent = sum((each.batch_size or batch) * count for each, count in zip(features, ids, strict=True))
    width = max((table.embedding_dim for table in workload.tables), default=0)
    layers = layers_s(shapes, batch, (len(features), width) if pairs else None)
    updated = numbers_of(shapes) * OPTIMIZER_S
    tables = plan.cost.step_s if embeddings_s is None else embeddings_s
    waited = between_hosts_s(plan, sent, batch * len(features)) if embeddings_s is None else 0.0
    read = batch * (reading or Reading(sample_s=GENERATED.of(ids))).sample_s
    read *= 1 if reading is not None and reading.alone else ranks
    return JobStep(
        trainer_s=trainer_s(len(features), ranks, layers + updated),
        reading_s=max(read - (exchange_s(plan) if waited else 0.0), 0.0) + given_s(batch * len(features), sent),
        embeddings_s=tables + waited,
        layers_s=layers,
        gradients_s=gradients_s(numbers_of(shapes), cluster),
        optimizer_s=updated + copied_numbers(plan) * OPTIMIZER_S,
    )  # fmt: skip


def given_s(bags: float, ids: float) -> float:
    """Seconds in which a rank makes tensors of the bags and ids that were read, and passes them to the tables."""
    return bags * BAG_S + ids * SENT_ID_S


def trainer_s(features: int, ranks: int, layers_s: float) -> float:
    """Seconds of the trainer in any step, with the synchronisation of several ranks. layers_s: of layers and update."""
    met = MEETING_S + MET_FEATURE_S * features + UNEVEN * layers_s if ranks > 1 else 0.0
    return TRAINER_S + FEATURE_S * features + met


def lookups_s(plan: Plan) -> float:
    """Seconds of a step in which the slowest rank looks up and updates its rows, without exchanges between ranks."""
    return max(each.forward_compute_s + each.backward_compute_s for each in plan.cost.per_device)


def copied_numbers(plan: Plan) -> int:
    """Elements of data-parallel tables: all of them are updated in each step, as those of dense layers are."""
    copied = {each.table for each in plan.placements if each.sharding_type == "data_parallel"}
    return sum(
        table.num_embeddings * table.embedding_dim for table in plan.workload.tables if table.name in copied
    )  # fmt: skip


def crossing_s(sent: float, cluster: Cluster) -> float:
    """Seconds in which a rank sends this many bytes to others: by the links, and at least a collective's latency."""
    curve = core().curve("all_reduce", cluster.job_world_size) if cluster.device.kind == "cpu" else None
    return max(sent / cluster.ring_bandwidth, 0.0 if curve is None else curve.latency_s)


def gradients_s(numbers: float, cluster: Cluster) -> float:
    """Seconds to sum this many gradients over all ranks: by the links, or as measured if that is longer.

    In a ring, each rank sends 2 (W - 1) / W of the fp32 numbers.
    """
    ranks, sent = cluster.job_world_size, numbers * NUMBER_BYTES
    if ranks == 1:
        return 0.0
    ring = 2 * (ranks - 1) / ranks * sent / cluster.ring_bandwidth
    if cluster.device.kind != "cpu" or core().curve("all_reduce", ranks) is None:
        return ring
    return max(ring, core().collective_s("all_reduce", sent, ranks))
