"""Settings for sending only the largest dense gradients, and the largest columns of pooled embeddings.

Gupta et al., "Training Recommender Systems at Scale: Communication-Efficient Model and Data Parallelism" (KDD 2021,
arXiv 2010.08899). Nothing here imports torch; the implementation is in dense.py and pooled.py.
"""

import math
from typing import Any, Literal

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.errors import UsageError, check_rules
from recsmith.plans import Plan
from recsmith.prediction.job_step import crossing_s, gradients_s
from recsmith.training.collectives.protocol import Codecs, GradientHook
from recsmith.training.collectives.quantised import RunComms
from recsmith.training.seams.capabilities import BAGS, FP32_WEIGHTS, GRADIENTS, Capabilities
from recsmith.training.systems.thresholds.sent import column_bytes, kept_of
from recsmith.workloads.data_types import ELEMENT_BYTES, DataType

AUTO_SHARE = 0.005  # share of dense gradients sent if dense is auto: the one whose AUC was measured (docs)
# Seconds to choose, send and sum, per number of the dense layers: on one CPU core, measured by
# benchmarks/thresholding.py cost. No time was measured on a GPU, so this many passes over its memory are assumed.
CPU_S_PER_NUMBER, GPU_PASSES = 3.3e-9, 8
# Further seconds of a step on one core, whatever the number: some fifteen calls for each of ten parameters. A process
# used 1.0 ms more CPU time than with DDP's own sum with 8 small parameters, and 1.25 ms with 16.
CPU_S_PER_STEP = 1e-3
# Of a warm-up: steps of a window, the share by which the loss must fall in one, and the divisor of the share sent if it
# does not.
WINDOW, LEVEL, RUNG = 32, 0.01, 4
GAP_BYTES = 2  # bytes of a gradient's place: its distance to the place before (dense.py)
PRICED_COLUMNS = 4096  # of a rank, in prices before there is a plan: as 257 to 32,768 columns, of two bytes each
POOLED_TYPES = ("table_wise", "column_wise", "table_column_wise", "data_parallel")  # types that send no partial sums


@noun
class KeptColumns:
    """The pooled columns that a model was trained with, if only a share of them was sent (comms.pooled).

    groups: (feature, first column, end) of the columns of one rank, among which the largest are kept. share: of the
    columns of a group that are kept. values: element type of the kept columns.
    """

    share: float
    values: Literal["fp32", "bf16"]
    groups: tuple[tuple[tuple[str, int, int], ...], ...]


@noun
class Thresholded:
    """Only the largest numbers cross ranks.

    dense: share of the gradients of dense layers that a rank sends, such as 0.005. What it does not send is kept and
    added to the next step's gradients. None: all are sent. auto: 0.005 if the plan's links are so slow that it makes
    steps shorter, and all otherwise. pooled: share of the columns of a sample's embeddings that a rank sends, and of
    their gradients, such as 0.125; none: all. values: element type of what is sent. gradients: of pooled embeddings:
    largest sends their own largest columns, with separate column numbers; same sends the columns of the forward pass,
    as the paper does. renew: steps between two measurements of a parameter's threshold; early in training it is
    measured more often. warm_up: loss sends all dense gradients at first, and a quarter as many each time that the loss
    levels off, until the share is reached. residuals: false drops what was not sent, to measure what that costs.
    forward, backward: element types of embeddings and of their gradients if all columns are sent, as in comms without a
    name.
    """

    dense: float | Literal["auto"] | None = AUTO_SHARE
    pooled: float | None = None
    values: Literal["fp32", "bf16"] = "fp32"
    gradients: Literal["largest", "same"] = "largest"
    renew: int = 512
    residuals: bool = True
    warm_up: Literal["loss"] | None = None
    forward: DataType = "fp32"
    backward: DataType = "fp32"

    def __post_init__(self) -> None:
        check_rules(
            _share("dense", self.dense),
            _share("pooled", self.pooled),
            "comms has neither dense nor pooled, and so would change nothing"
            if self.dense is None and self.pooled is None else None,
            None if self.renew > 0 else f"comms.renew is {self.renew}; it counts steps and must be above 0",
            None if self.warm_up is None or self.dense is not None else (
                "comms.warm_up is of gradients of dense layers, and comms.dense is null, so that all of them cross; "
                "leave warm_up out"),
            None if self.pooled is None or self.columns == RunComms() else (
                f"comms.pooled sends columns in {self.values} (comms.values), and comms.forward and comms.backward say "
                f"{self.forward} and {self.backward}; they are of embeddings that cross whole: drop one of them"),
        )  # fmt: skip

    @property
    def columns(self) -> RunComms:
        """Element types of embeddings and their gradients, for when all of their columns are sent."""
        return RunComms(forward=self.forward, backward=self.backward)

    @property
    def warm_steps(self) -> int:
        """The least number of steps of a warm-up; 0 without one."""
        if self.warm_up is None:
            return 0
        share = AUTO_SHARE if self.dense in (None, "auto") else self.dense
        return WINDOW * (1 + math.ceil(math.log(1 / share, RUNG) - 1e-9))

    @property
    def value_bytes(self) -> int:
        """Bytes of a number that is sent."""
        return ELEMENT_BYTES[self.values]

    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Bytes sent forward and backward for each number of pooled embeddings, column numbers included.

        Without `pooled`, as in comms without a name. Plans are made by it, so a rank's columns are not known yet; of a
        plan `message_bytes` is exact.
        """
        if self.pooled is None:
            return self.columns.bytes_per_value()
        placed = self.pooled * (self.value_bytes + column_bytes(PRICED_COLUMNS))
        return placed, placed if self.gradients == "largest" else self.pooled * self.value_bytes

    def message_bytes(self, width: int, *, placed: bool = True) -> int:
        """Bytes of a sample's columns of a rank that has `width` of them. placed: whether column numbers go along."""
        return kept_of(width, self.pooled or 1.0) * (self.value_bytes + (column_bytes(width) if placed else 0))

    def sharding_types(self) -> tuple[str, ...] | None:
        """Sharding types of pooled tables that it can carry: with `pooled`, those without partial sums. None: all."""
        return self.columns.sharding_types() if self.pooled is None else POOLED_TYPES

    @property
    def needs(self) -> Capabilities:
        """Dense gradients and weights in fp32 for `dense`, and one vector per sample for `pooled`."""
        dense = {GRADIENTS, FP32_WEIGHTS} if self.dense is not None else set[str]()
        return Capabilities(dense | ({BAGS} if self.pooled is not None else set()))

    def refuses(self, plan: Plan) -> str | None:
        """Refuse plans in which ranks send partial sums of pooled tables. Other tables are not affected."""
        if self.pooled is None:
            return self.columns.refuses(plan)
        pooled = {table.name for table in plan.workload.tables if table.pooled}
        if not pooled:
            return "comms.pooled is of pooled embeddings, and all tables have pooling none; leave comms.pooled out"
        for placement in plan.placements:
            if placement.table in pooled and placement.sharding_type not in POOLED_TYPES:
                return (
                    f"comms.pooled sends the largest columns of a sample, and table '{placement.table}' is "
                    f"{placement.sharding_type}, whose ranks send partial sums; use a plan of {', '.join(POOLED_TYPES)}"
                )
        return None

    @property
    def saves_places(self) -> bool:
        """Whether values with their places take fewer bytes than all values; if not, dense.py sends all values."""
        return isinstance(self.dense, float) and self.dense * (self.value_bytes + GAP_BYTES) < self.value_bytes

    def step_seconds(self, cluster: Cluster, numbers: int) -> tuple[float, float, float]:
        """Seconds of a step for dense gradients: all of them on the cluster's links, the share, and choosing it.

        The first is the price used everywhere else; the messages of a share are sent to each of W - 1 other ranks.
        """
        ring = gradients_s(numbers, cluster)
        sent = crossing_s(self.dense_bytes(cluster.world_size, numbers), cluster)
        if cluster.device.kind == "cpu":
            return ring, sent, CPU_S_PER_STEP + numbers * CPU_S_PER_NUMBER
        return ring, sent, numbers * GPU_PASSES * ELEMENT_BYTES["fp32"] / cluster.device.hbm_bandwidth

    def gain_s(self, cluster: Cluster, numbers: int) -> float:
        """Seconds that a step saves if the share of this many dense gradients is sent; below 0, it gets longer."""
        before, after, work = self.step_seconds(cluster, numbers)
        return before - after - work

    def dense_bytes(self, ranks: int, numbers: int) -> float:
        """Bytes that a rank sends in a step for the share of this many dense gradients."""
        share = 1.0 if self.dense is None or self.dense == "auto" else self.dense
        number = min(share * (self.value_bytes + GAP_BYTES), self.value_bytes)  # bytes sent per dense number
        return (ranks - 1) * number * numbers

    def codecs(self) -> Codecs | None:
        """TorchRec's codecs if all columns are sent; else None, since codecs cannot choose columns of a sample."""
        return self.columns.codecs() if self.pooled is None else None

    @property
    def ladder(self) -> tuple[int, float, float]:
        """Of a warm-up: steps of a window, the share by which its loss must fall, and the divisor of the share."""
        return WINDOW, LEVEL, RUNG

    def attach(self, model: Any) -> GradientHook | None:
        """Send the largest columns of pooled embeddings, and sum dense gradients by a hook; nothing on one rank."""
        import torch.distributed as dist

        from recsmith.training.systems.thresholds.dense import DenseThresholds
        from recsmith.training.systems.thresholds.pooled import replace_pooled

        if dist.get_world_size() == 1:
            return None
        if self.pooled is not None and replace_pooled(model, self) == 0:
            raise UsageError("comms.pooled is given, and no table's pooled embeddings cross ranks; leave it out")
        # auto is decided before a model is trained; a model that is not trained sends no gradients
        return None if self.dense in (None, "auto") else DenseThresholds(self, model).hook()


def _share(name: str, value: float | str | None) -> str | None:
    if name == "dense" and value == 1:
        return "comms.dense is 1, at which all gradients cross as in any job; give null, or a share below 1"
    if value is None or (name == "dense" and value == "auto") or (not isinstance(value, str) and 0 < value <= 1):
        return None
    return f"comms.{name} is {value}; it is a share, above 0 and {'below' if name == 'dense' else 'at most'} 1"
