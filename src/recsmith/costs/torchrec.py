"""Cost model `torchrec`: TorchRec 1.8's training estimator, computed for all options of a problem at once.

Source of every formula: torchrec 1.8.0, torchrec/distributed/planner/estimator/estimator.py (EmbeddingPerfEstimator)
and constants.py. Equal to it to 1e-9 for pooled and sequence tables, kernels dense, fused, fused_uvm and
fused_uvm_caching (any load factor, no cache statistics), on one pod. It is strictly additive: no launch, no latency, no
reuse of rows, and its constants are of the V100 era; compare the plans that it prefers under another model as well.

Its evaluator is the simplest one, for any formula: each piece costs its rank some seconds, and they add up.

Legend: N pieces, M modes, W ranks, G = 1 fusion group, F = 1 phase; the four parts are recsmith.plans.PARTS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.clusters import Cluster, Device
from recsmith.costs.protocol import LARGEST_SUM, Evaluator, Plane, StepRule
from recsmith.errors import UsageError
from recsmith.plans import PARTS
from recsmith.problems import Problem
from recsmith.sharding import (
    DATA_PARALLEL,
    DENSE,
    FUSED,
    HOST_KERNELS,
    KERNEL_NAMES,
    KEY_VALUE,
    SHARDING_TYPES,
    SPLIT_ROWS,
    UVM,
    UVM_CACHING,
    Collective,
)
from recsmith.sharding.memory import ID_BYTES
from recsmith.workloads.data_types import ELEMENT_BYTES

Seconds = Callable[[Ints, Ints], Floats]
BACKWARD = 2.0  # BWD_COMPUTE_MULTIPLIER: backward over forward compute
WEIGHTED = 1.1  # WEIGHTED_KERNEL_MULTIPLIER: extra backward kernel of weighted features, over forward compute
BATCHED_COPY = 2.455  # BATCHED_COPY_PERF_FACTOR: copy after the all-gather of row-split types
ELEMENTWISE = 9.22  # DP_ELEMENTWISE_KERNELS_PERF_FACTOR: optimizer kernels of data_parallel, over the table
LEAST_LOOKUP_WIDTH = 32  # narrower rows cost as much as this in table- and column-wise lookups
PENALTY = ((64, 1.75), (128, 1.15))  # QUARTER_ and HALF_BLOCK_PENALTY: factor for widths below
UVM_SLOWDOWN = 10  # UVM kernels reach a tenth of the underlying bandwidth (kernel_bw_lookup)


_WHOLE_ROWS = [
    i for i, sharding in enumerate(SHARDING_TYPES) if sharding.forward[:1] == (Collective("all_to_all", "world"),)
]
Way = Sequence[tuple[Collective, ...]]  # collectives of one direction, by type
_FORWARD: Way = [sharding.forward for sharding in SHARDING_TYPES]
_BACKWARD: Way = [sharding.backward for sharding in SHARDING_TYPES]


@dataclass(frozen=True)
class AdditiveEvaluator:
    """An evaluator that needs only a formula for the seconds of a piece: nothing is fused, shared or launched.

    seconds(modes, widths): the four parts (N, 4), 0 or more, that pieces with these modes (N,) and columns (N,) cost
    each rank that they cover. `problem.modes` and `problem.demand` hold what a formula needs. The step takes as long as
    the rank with the largest sum.
    """

    problem: Problem
    seconds: Seconds
    groups: int = 1
    additive: bool = True
    step_rule: StepRule = LARGEST_SUM
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])  # a formula is not trained
    bends: tuple[Plane, ...] = ()
    lifted: tuple[tuple[float, Evaluator], ...] = ()  # the plane is not below zero
    group: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Put all modes (M,) into one group."""
        object.__setattr__(self, "group", np.zeros(len(self.problem.modes.table), dtype=np.int64))

    @property
    def shared(self) -> Floats:
        """Zeros, because collectives have no latency."""
        return np.zeros((self.groups, len(PARTS)))

    @property
    def planes(self) -> tuple[Plane, ...]:
        """One plane: the sum of the parts itself."""
        return (Plane(np.ones((1, len(PARTS))), 0.0),)

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """The seconds of pieces by the formula."""
        return self.seconds(modes, widths)

    def head(self, sums: Floats) -> Floats:
        """The sums themselves, which are seconds already."""
        return sums

    def loads(self, sums: Floats) -> Floats:
        """The sum of the four parts (1, ...)."""
        return sums.sum(axis=-1)[None]

    def compute(self, sums: Floats) -> Floats:
        """Seconds of forward and backward compute."""
        return sums[..., 0] + sums[..., 1]


@dataclass(frozen=True)
class TorchRecSeconds:
    """TorchRec's formula for one problem: the seconds of the four parts that pieces cost each rank that they cover."""

    problem: Problem
    bandwidth: Floats  # bytes per second of each mode's kernel (M,)

    def __call__(self, modes: Ints, widths: Ints) -> Floats:
        """Seconds (N, 4) of forward compute, backward compute, forward comm and backward comm."""
        demand, table, kind = self.problem.demand, self.problem.modes.table[modes], self.problem.modes.type[modes]
        whole_rows, split_rows, copies = np.isin(kind, _WHOLE_ROWS), np.isin(kind, SPLIT_ROWS), kind == DATA_PARALLEL
        element = demand.element_bytes[table].astype(float)
        sent, returned = (np.where(copies, element, size) for size in self._comm_bytes(element))
        bandwidth = self.bandwidth[modes]

        ids = self.problem.modes.ids[modes]
        inputs = np.ceil(ids * ID_BYTES) * np.where(demand.weighted[table], 2, 1)
        lookups = ids * np.where(whole_rows, np.maximum(widths, LEAST_LOOKUP_WIDTH), widths) * element
        outputs = self.problem.modes.outputs[modes] * widths * sent
        forward = (inputs + lookups + outputs) * np.where(whole_rows, _penalty(widths), 1.0) / bandwidth
        backward = forward * (BACKWARD + np.where(demand.weighted[table], WEIGHTED, 0.0))

        gradients = self.problem.modes.outputs[modes] * widths * returned
        across = demand.outputs[table] * self.problem.cluster.hosts * widths
        weights = (demand.rows[table] * widths).astype(float) * element
        forward_comm = self._comm(kind, _FORWARD, outputs, across * sent, weights)
        backward_comm = self._comm(kind, _BACKWARD, gradients, across * returned, weights)
        copied = np.where(split_rows, gradients * BATCHED_COPY, 0.0) + np.where(copies, weights * ELEMENTWISE, 0.0)
        return np.stack([forward, backward, forward_comm, backward_comm + copied / bandwidth], axis=-1)

    def _comm_bytes(self, element: Floats) -> list[Floats | float]:
        """Bytes per element sent, forward and backward: those of the workload's comm_dtypes.

        If there are none, or fp32 in both directions, TorchRec uses the table's type.
        """
        workload = self.problem.workload
        if workload.comm_bytes is None and set(workload.comm_dtypes) <= {None, "fp32"}:
            return [element, element]
        return [float(ELEMENT_BYTES["fp32"]) if sent is None else sent for sent in workload.bytes_per_value]

    def _comm(self, kind: Ints, way: Way, outputs: Floats, across: Floats, weights: Floats) -> Floats:
        """Seconds (N,) of the collectives of each piece's type, in one direction."""
        seconds = np.zeros(len(kind))
        for i, calls in enumerate(way):
            mine = kind == i
            for call in calls:
                sent = weights if call.payload == "table" else across if call.scope == "across_hosts" else outputs
                seconds[mine] += sent[mine] * _seconds_per_byte(call, self.problem.cluster)
        return seconds


def _penalty(widths: Ints) -> Floats:
    """The factor for narrow rows in table- and column-wise kernels (compute_block_usage_penalty)."""
    return np.select([widths < limit for limit, _ in PENALTY], [factor for _, factor in PENALTY], 1.0)


def _seconds_per_byte(call: Collective, cluster: Cluster) -> float:
    """Seconds per byte by BasicCommsBandwidths.get_bw, and the ring of DataParallelEvaluator._default_bwd_comms."""
    links, hosts = cluster.links, cluster.hosts
    if call.op == "all_reduce":
        rings = min(hosts, 2)
        twice = 2 if hosts > 2 else 1
        return (2 * rings - 1) / rings / (links.inter_host_bandwidth * cluster.local_world_size) * twice
    if call.scope == "across_hosts":
        return 1 / links.inter_host_bandwidth if hosts > 1 else 0.0
    local = call.scope == "host" or hosts == 1
    return 1 / (links.intra_host_bandwidth if local else links.inter_host_bandwidth)


class TorchRecCostModel:
    """TorchRec 1.8's training estimator, with its default configuration; sources in the module."""

    name = "torchrec"
    about = "TorchRec 1.8's estimator with its default constants."

    def compile(self, problem: Problem) -> AdditiveEvaluator:
        """The estimator for a problem; UsageError ('not covered') if TorchRec does not estimate it."""
        return AdditiveEvaluator(problem, TorchRecSeconds(problem, _bandwidth(problem)))


def _bandwidth(problem: Problem) -> Floats:
    """Bandwidth of each mode (M,) by kernel_bw_lookup of constants.py; the cache factor is used as the hit rate."""
    device, hit = problem.cluster.device, problem.modes.load_factor
    if (problem.modes.kernel == KEY_VALUE.number).any():
        raise UsageError(
            f"kernel {KEY_VALUE.name} is not covered by cost model torchrec, which takes every disk for one of "
            "100 MB/s; use analytic"
        )
    hosted = [name for name in HOST_KERNELS if KERNEL_NAMES.index(name) in problem.modes.kernel]
    speed = dict.fromkeys(KERNEL_NAMES, np.full(len(hit), device.hbm_bandwidth))
    speed[DENSE.name] = speed[FUSED.name] * 0.5
    if hosted:
        link = _host_link(device, hosted[0])
        speed[UVM.name] = np.full(len(hit), link / UVM_SLOWDOWN)
        speed[UVM_CACHING.name] = (hit * device.hbm_bandwidth + (1 - hit) * link) / UVM_SLOWDOWN
    return np.choose(problem.modes.kernel, [speed[kernel] for kernel in KERNEL_NAMES])


def _host_link(device: Device, kernel: str) -> float:
    if device.kind != "cuda" or device.host_link_bandwidth is None:
        raise UsageError(
            f"kernel {kernel} on device '{device.name}' is not covered by cost model torchrec: "
            "it needs a cuda device with a host_link_bandwidth; use fused"
        )
    return device.host_link_bandwidth
