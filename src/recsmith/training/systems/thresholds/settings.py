"""Fewer numbers on the wire: the largest gradients of dense layers, and the largest columns of pooled embeddings.

Gupta et al., "Training Recommender Systems at Scale: Communication-Efficient Model and Data Parallelism" (KDD 2021,
arXiv 2010.08899). Nothing here imports torch; what runs stands in dense.py and pooled.py.
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
from recsmith.workloads.data_types import ELEMENT_BYTES, DataType

AUTO_SHARE = 0.005  # of dense gradients where dense is auto: the share whose AUC is measured (docs)
# Seconds that choosing, sending and summing take for a number of the dense layers: on one CPU core, measured by
# benchmarks/thresholding.py cost. Of a GPU no time was measured: its memory is passed over so many times.
CPU_S_PER_NUMBER, GPU_PASSES = 3.3e-9, 8
# Seconds of a step beside them on one core, whatever the number: some fifteen calls for each of ten parameters. A
# process had 1.0 ms of CPU time more than with DDP's own sum with 8 small parameters, and 1.25 ms with 16.
CPU_S_PER_STEP = 1e-3
# Of a warm-up: steps of a window, the share by which the loss must fall in one, and how many times fewer cross if not.
WINDOW, LEVEL, RUNG = 32, 0.01, 4
GAP_BYTES = 2  # of a gradient's place: how many it is after the one before (dense.py)
COLUMN_BYTES = 2  # of a column's number, at most; one byte where a rank has at most 256 columns of a group
POOLED_TYPES = ("table_wise", "column_wise", "table_column_wise", "data_parallel")  # embeddings that cross whole


@noun
class KeptColumns:
    """Which pooled embeddings a model was trained with, where comms had a share of their columns cross (comms.pooled).

    groups: (feature, first column, end) of columns of which the largest are kept together, those of a rank. share: of
    them that are kept. values: element type in which they are.
    """

    share: float
    values: Literal["fp32", "bf16"]
    groups: tuple[tuple[tuple[str, int, int], ...], ...]


@noun
class Thresholded:
    """Only the largest numbers cross ranks.

    dense: share of the gradients of dense layers that a rank sends, such as 0.005; what it does not send stays with it
    and is added to the next step's. None: all. auto: 0.005 where the plan's links are so slow that it makes steps
    shorter, and all elsewhere. pooled: share of the columns of a sample's embeddings that a rank sends,
    and of their gradients, such as 0.125; none: all. values: element type of what is sent. gradients: of pooled
    embeddings: largest takes their own largest columns, which needs places of their own; same takes the columns that
    the forward pass took, as the paper does. renew: steps between two measurements of a parameter's threshold; early in
    training there are more. warm_up: loss has all dense gradients cross at first, and a quarter as many each time that
    the loss levels off, until it is the share. residuals: false forgets what was not sent, to see what that costs.
    forward, backward: element types of embeddings and of their gradients where all columns cross, as comms without a
    name have them.
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
        """How embeddings cross where all of their columns do."""
        return RunComms(forward=self.forward, backward=self.backward)

    @property
    def warm_steps(self) -> int:
        """Steps that a warm-up takes at least; 0 without one."""
        if self.warm_up is None:
            return 0
        share = AUTO_SHARE if self.dense in (None, "auto") else self.dense
        return WINDOW * (1 + math.ceil(math.log(1 / share, RUNG) - 1e-9))

    @property
    def value_bytes(self) -> int:
        """Bytes of a number that is sent."""
        return ELEMENT_BYTES[self.values]

    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Bytes of pooled embeddings for each number that there is, places included; as they are where all cross."""
        if self.pooled is None:
            return self.columns.bytes_per_value()
        placed = self.pooled * (self.value_bytes + COLUMN_BYTES)
        return placed, placed if self.gradients == "largest" else self.pooled * self.value_bytes

    def sharding_types(self) -> tuple[str, ...] | None:
        """Types whose pooled embeddings cross ranks whole; all where they are sent as they are."""
        return self.columns.sharding_types() if self.pooled is None else POOLED_TYPES

    @property
    def needs(self) -> Capabilities:
        """The gradients of dense layers in fp32, and as many columns of each sample."""
        dense = {GRADIENTS, FP32_WEIGHTS} if self.dense is not None else set[str]()
        return Capabilities(dense | ({BAGS} if self.pooled is not None else set()))

    def refuses(self, plan: Plan) -> str | None:
        """Tables whose embeddings are sums of several ranks; rows that are not pooled cross whole beside them."""
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
        """Whether values with their places are shorter than all values; all cross without places if not (dense.py)."""
        return isinstance(self.dense, float) and self.dense * (self.value_bytes + GAP_BYTES) < self.value_bytes

    def step_seconds(self, cluster: Cluster, numbers: int) -> tuple[float, float, float]:
        """Seconds of a step for dense gradients: all on the links of a cluster, the share on them, and choosing it.

        All of them take what any price of a job has them take; messages of a share go to each of W - 1 others.
        """
        ring = gradients_s(numbers, cluster)
        sent = crossing_s(self.dense_bytes(cluster.world_size, numbers), cluster)
        if cluster.device.kind == "cpu":
            return ring, sent, CPU_S_PER_STEP + numbers * CPU_S_PER_NUMBER
        return ring, sent, numbers * GPU_PASSES * ELEMENT_BYTES["fp32"] / cluster.device.hbm_bandwidth

    def gain_s(self, cluster: Cluster, numbers: int) -> float:
        """Seconds by which a step gets shorter where the share of so many dense gradients crosses; below 0: longer."""
        before, after, work = self.step_seconds(cluster, numbers)
        return before - after - work

    def dense_bytes(self, ranks: int, numbers: int) -> float:
        """Bytes that a rank sends of so many dense gradients in a step, where a share of them cross."""
        share = 1.0 if self.dense is None or self.dense == "auto" else self.dense
        number = min(share * (self.value_bytes + GAP_BYTES), self.value_bytes)  # bytes that are sent for each there is
        return (ranks - 1) * number * numbers

    def codecs(self) -> Codecs | None:
        """TorchRec's where all columns cross; they see no samples, and so choose none."""
        return self.columns.codecs() if self.pooled is None else None

    @property
    def ladder(self) -> tuple[int, float, float]:
        """Of a warm-up: steps of a window, the share by which the loss must fall in one, and by what it is divided."""
        return WINDOW, LEVEL, RUNG

    def attach(self, model: Any) -> GradientHook | None:
        """Send pooled embeddings by their largest columns, and sum dense gradients by a hook; nothing on one rank."""
        import torch.distributed as dist

        from recsmith.training.systems.thresholds.dense import DenseThresholds
        from recsmith.training.systems.thresholds.pooled import replace_pooled

        if dist.get_world_size() == 1:
            return None
        if self.pooled is not None and replace_pooled(model, self) == 0:
            raise UsageError("comms.pooled is given, and no table's pooled embeddings cross ranks; leave it out")
        # auto is decided before a model is trained; where it is not trained, no gradients cross
        return None if self.dense in (None, "auto") else DenseThresholds(self, model).hook()


def _share(name: str, value: float | str | None) -> str | None:
    if name == "dense" and value == 1:
        return "comms.dense is 1, at which all gradients cross as in any job; give null, or a share below 1"
    if value is None or (name == "dense" and value == "auto") or (not isinstance(value, str) and 0 < value <= 1):
        return None
    return f"comms.{name} is {value}; it is a share, above 0 and {'below' if name == 'dense' else 'at most'} 1"
