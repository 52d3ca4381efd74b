"""Cost model `analytic`: kernels and collectives priced by the device's figures, calibrated on published measurements.

A fusion group on a rank costs, forward and backward, launch + max(memory seconds, cache seconds) summed over its pieces
(embedding_kernels.py), plus the bytes of its collectives (collectives.py). Every group in use costs every rank the
latencies of its collectives. The step follows READY_THEN_FORWARD. In a 2D job (Cluster.replication), backward comm
includes a rank's synchronisation with its replicas, which is linear in the bytes that it holds.

Left out: the input distribution of ids, which train pipelines overlap with compute, and the dense part of the model.
The model is convex and monotone in the summed terms, and exactly incremental. Each of its planes assumes that memory,
or cache, decides.

Legend: N pieces, G fusion groups, k = 7 terms.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.clusters import Cluster, whole_job
from recsmith.costs.collectives import latency, seconds_per_byte, synchronisation_latency, synchronisation_seconds
from recsmith.costs.embedding_kernels import EmbeddingKernels
from recsmith.costs.protocol import READY_THEN_FORWARD, Evaluator, Plane, StepRule, ready_and_forward
from recsmith.plans import PARTS
from recsmith.problems import Problem
from recsmith.sharding import DATA_PARALLEL, SHARDING_TYPES, Collective
from recsmith.sharding.memory import OUTPUT_BYTES

# launch of a kernel, if the device states none: 83.2 us for 22 kernels of a tiny batch (meta-pytorch/torchrec#4688)
LAUNCH_S = 3.8e-6
FORWARD_KERNELS = 2  # launched by a fusion group: bounds check and lookup (FBGEMM 1.8)
BACKWARD_KERNELS = 20  # linearise, sort, run lengths, scans, fills, update (FBGEMM 1.8, transpose_embedding_input.cu)

_ALL_TO_ALL = Collective("all_to_all", "world")
_WAYS = [each.forward for each in SHARDING_TYPES], [each.backward for each in SHARDING_TYPES]  # collectives, by type
# Columns of the terms:
PIECES, FORWARD_MEMORY, FORWARD_CACHE, BACKWARD_MEMORY, BACKWARD_CACHE, FORWARD_COMM, BACKWARD_COMM = range(7)


@dataclass(frozen=True)
class AnalyticEvaluator:
    """The analytic model for one problem; terms are the number of pieces and seconds.

    launched: number of kernels that a fusion group launches, forward and backward.
    """

    problem: Problem
    kernels: EmbeddingKernels
    launch_s: float
    group: Ints
    groups: int
    shared: Floats
    planes: tuple[Plane, ...]
    launched: tuple[float, float] = (FORWARD_KERNELS, BACKWARD_KERNELS)
    additive: bool = False
    step_rule: StepRule = READY_THEN_FORWARD
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])  # the model is not trained
    bends: tuple[Plane, ...] = ()
    lifted: tuple[tuple[float, Evaluator], ...] = ()  # no plane is below zero

    def with_kernels(self, kernels: EmbeddingKernels, launched: tuple[float, float]) -> "AnalyticEvaluator":
        """The same model with other kernels and launches."""
        return replace(self, kernels=kernels, launched=launched, planes=_planes(sum(launched) * self.launch_s))

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Terms (N, 7): 1, seconds of memory and cache forward and backward, seconds of comm forward and backward."""
        forward, backward = self.kernels.work(modes, widths)
        comm = self._comm(modes, widths)
        terms = np.empty((7, len(modes)))
        for i, term in enumerate((1.0, *forward, *backward, *comm)):
            terms[i] = term
        return terms.T

    def _comm(self, modes: Ints, widths: Ints) -> tuple[Floats, Floats]:
        """Seconds (N,), (N,) that each piece's bytes take in collectives, forward and backward."""
        table, kind = self.problem.modes.table[modes], self.problem.modes.type[modes]
        copies = self.problem.demand.rows[table] * widths * float(OUTPUT_BYTES)
        outputs, sequence = self.problem.modes.bags[modes] * widths, 1 - self.problem.demand.pooled[table]
        made = list[Floats]()
        for rates, element in zip(self._rates, self._element_bytes(), strict=True):
            carried = np.where(kind == DATA_PARALLEL, copies, outputs * element)
            made.append(sum((carried * each for each in rates[sequence, kind].T), np.zeros(len(modes))))
        forward, backward = made
        if self.problem.cluster.replication is not None:
            backward = backward + synchronisation_seconds(self.problem, modes, widths)
        return forward, backward

    @cached_property
    def _rates(self) -> Floats:
        """Seconds per byte (2, 2, types, calls): forward and backward, pooled and sequences, by type and its calls.

        Rows of sequences return to the requesting rank, whether split by rows or not.
        """
        rates = np.zeros((2, 2, len(SHARDING_TYPES), max(len(calls) for way in _WAYS for calls in way)))
        for (pooled, sequences), way in zip(rates, _WAYS, strict=True):
            for kind, calls in enumerate(way):
                pooled[kind, : len(calls)] = [self._seconds_per_byte(call) for call in calls]
            sequences[:, 0] = self._seconds_per_byte(_ALL_TO_ALL)
            sequences[DATA_PARALLEL] = pooled[DATA_PARALLEL]
        return rates

    def _element_bytes(self) -> list[float]:
        """Bytes per element of a message, forward and backward."""
        return [OUTPUT_BYTES if sent is None else sent for sent in self.problem.workload.bytes_per_value]

    def _seconds_per_byte(self, call: Collective) -> float:
        """Seconds per byte of a rank's outputs; between hosts, each rank sends only its share of its host's outputs."""
        share = self.problem.cluster.local_world_size if call.scope == "across_hosts" else 1
        return seconds_per_byte(call, _taking_part(call, self.problem.cluster)) / share

    def head(self, sums: Floats) -> Floats:
        """Seconds of a group (..., 4): launch + max(memory, cache), forward and backward, and collectives."""
        parts = np.empty((4, *sums.shape[:-1]))
        launched = self.launch_s * (sums[..., PIECES] > 0)
        np.maximum(sums[..., FORWARD_MEMORY], sums[..., FORWARD_CACHE], out=parts[0])
        np.maximum(sums[..., BACKWARD_MEMORY], sums[..., BACKWARD_CACHE], out=parts[1])
        parts[0] += self.launched[0] * launched
        parts[1] += self.launched[1] * launched
        parts[2], parts[3] = sums[..., FORWARD_COMM], sums[..., BACKWARD_COMM]
        return np.moveaxis(parts, 0, -1)

    def loads(self, sums: Floats) -> Floats:
        """Seconds until a rank is ready, and of its forward collectives (2, ...)."""
        return ready_and_forward(self.compute(sums), sums[..., BACKWARD_COMM], sums[..., FORWARD_COMM])

    def compute(self, sums: Floats) -> Floats:
        """Seconds of launch + max(memory, cache), forward and backward together."""
        seconds = np.maximum(sums[..., FORWARD_MEMORY], sums[..., FORWARD_CACHE])
        seconds += np.maximum(sums[..., BACKWARD_MEMORY], sums[..., BACKWARD_CACHE])
        seconds += sum(self.launched) * self.launch_s * (sums[..., PIECES] > 0)
        return seconds


class AnalyticCostModel:
    """Seconds of kernels and collectives from the device's figures; sources in the module and docs/cost-models.md."""

    name = "analytic"
    about = "Kernels and collectives from the figures of the device."

    def compile(self, problem: Problem) -> AnalyticEvaluator:
        """The model for a problem; UsageError if the device lacks a figure that its kernels need."""
        launch_s = LAUNCH_S if problem.cluster.device.launch_s is None else problem.cluster.device.launch_s
        group = problem.modes.group
        return AnalyticEvaluator(
            problem, EmbeddingKernels.of(problem), launch_s, group=group, groups=int(group.max()) + 1,
            shared=_latencies(problem), planes=_planes((FORWARD_KERNELS + BACKWARD_KERNELS) * launch_s),
        )  # fmt: skip


def _latencies(problem: Problem) -> Floats:
    """Latencies (G, 4) of the collectives of each fusion group."""
    group = problem.modes.group
    kinds = np.zeros(int(group.max()) + 1, dtype=np.int64)
    kinds[group] = problem.modes.type
    seconds = np.zeros((len(kinds), len(PARTS)))
    for each, kind in enumerate(kinds.tolist()):
        for part, calls in ((2, SHARDING_TYPES[kind].forward), (3, SHARDING_TYPES[kind].backward)):
            seconds[each, part] = sum(latency(call, _taking_part(call, problem.cluster)) for call in calls)
        if kind != DATA_PARALLEL:
            seconds[each, 3] += synchronisation_latency(problem.cluster)
    return seconds


def _taking_part(call: Collective, cluster: Cluster) -> Cluster:
    """The devices of a call: gradients of whole tables are reduced over all sharding groups of a 2D job."""
    return whole_job(cluster) if call.payload == "table" else cluster


def _planes(opening: float) -> tuple[Plane, ...]:
    """The four planes in which memory or cache decides, forward and backward."""
    planes: list[Plane] = []
    for forward in (FORWARD_MEMORY, FORWARD_CACHE):
        for backward in (BACKWARD_MEMORY, BACKWARD_CACHE):
            slopes = np.zeros((2, 7))
            slopes[0, [forward, backward, BACKWARD_COMM]] = 1.0
            slopes[1, FORWARD_COMM] = 1.0
            planes.append(Plane(slopes, opening))
    return tuple(planes)
