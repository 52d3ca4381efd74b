"""The memory of a training step over time: bytes alive on each rank in each phase, by kind.

A step has nine phases, in this order. `_alive` lists the phases in which each kind of bytes is alive. The bytes are
those of the accounting `real` for tables, of `batch_parts` for the local batch, and of `DenseBytes` for the rest of the
model. The sum over the kinds of a phase is its peak. On CPU this agrees with measurements (docs/memory.md); on CUDA it
follows from the code of TorchRec 1.8 and FBGEMM, and was not measured.

Legend: P phases, K kinds, T tables, W ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Ints
from recsmith.plans import Placement
from recsmith.problems.batch_parts import BatchParts, batch_parts
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.footprint import Footprint, memory_kinds
from recsmith.problems.problem import Problem
from recsmith.sharding.memory import PIPELINE_DEPTH

PHASES = (
    "input", "index all-to-all", "lookup", "output all-to-all", "dense forward", "dense backward",
    "gradient all-to-all", "embedding update", "dense optimizer",
)  # fmt: skip
KINDS = (
    "weights", "optimizer state", "cache", "inputs", "outputs", "gradients", "temporaries", "dense layers",
    "activations",
)  # fmt: skip
# phases in which a stashed table is away, because none of its kernels runs
AT_REST = ("dense forward", "dense backward")
_EXCHANGED = ("lookup", "output all-to-all", "gradient all-to-all", "embedding update")
_RETURNED = ("output all-to-all", "dense forward", "dense backward", "gradient all-to-all", "embedding update")
# phases in which a rank's share of fully sharded weights is alive
_SHARED = ("output all-to-all", *AT_REST, "gradient all-to-all", "embedding update")
_BACKWARD = ("dense backward", "gradient all-to-all", "embedding update", "dense optimizer")


@dataclass(frozen=True, slots=True)
class MemorySchedule:
    """Bytes (P, K, W) in each phase by kind and rank, and the capacity of each rank (W,)."""

    bytes: Ints
    capacity: Ints

    @property
    def totals(self) -> Ints:
        """Bytes (P, W) of each phase."""
        return self.bytes.sum(axis=1)

    @property
    def peak(self) -> Ints:
        """Bytes (W,) of each rank's fullest phase."""
        return self.totals.max(axis=0)

    def when(self, rank: int) -> str:
        """The fullest phase of a rank; the first one of several."""
        return PHASES[int(self.totals[:, rank].argmax())]

    @property
    def fullest(self) -> int:
        """The rank that fills the largest share of its memory in its fullest phase; the lowest rank of several."""
        return int((self.peak / self.capacity).argmax())

    @property
    def fits(self) -> bool:
        """Whether every phase of every rank fits its capacity."""
        return bool((self.peak <= self.capacity).all())


def memory_schedule(
    problem: Problem, placements: Sequence[Placement], footprint: Footprint, dense: DenseBytes,
    stashed: Ints | None = None, stashed_state: Ints | None = None,
) -> MemorySchedule:  # fmt: skip
    """The memory of a step of placed tables, in the accounting `real`.

    placements, footprint: the same tables. stashed, stashed_state: bytes (W,) of weights, and of optimizer state, that
        are elsewhere in the phases AT_REST: with replicas of a 2D job, or in host memory.
    """
    parts = memory_kinds(problem, footprint)
    own = batch_parts(problem.workload, placements, problem.cluster.world_size)
    alive = _alive(parts, own if dense.batch_apart else _NO_BATCH, dense, problem)
    made = np.zeros((len(PHASES), len(KINDS), problem.cluster.world_size), dtype=np.int64)
    for kind, amount, phases in alive:
        made[[PHASES.index(phase) for phase in phases], KINDS.index(kind)] += amount
    for away, kind in ((stashed, "weights"), (stashed_state, "optimizer state")):
        if away is not None:
            made[[PHASES.index(phase) for phase in AT_REST], KINDS.index(kind)] -= away
    return MemorySchedule(made, np.array(problem.cluster.hbm_per_rank, dtype=np.int64))


_NO_BATCH = BatchParts(ids=0.0, outputs=0.0, gradients=0.0, kept=0.0)


def _alive(
    parts: Mapping[str, Ints], own: BatchParts, dense: DenseBytes, problem: Problem
) -> tuple[tuple[str, Ints | int, tuple[str, ...]], ...]:
    """(kind, bytes, phases in which they are alive), each once.

    Outputs of lookups are freed by the all-to-all, and their gradients are as large. Ids are needed until the update.
    Autograd keeps the embeddings of the local batch until the update ends (measured on CPU); their gradients appear as
    activations are freed, and are freed by the gradient all-to-all.
    """
    batches = PIPELINE_DEPTH[problem.workload.pipeline] if problem.cluster.device.kind == "cuda" else 1
    return (
        ("weights", parts["weights"], PHASES),
        ("weights", parts.get("share", 0), _SHARED),
        ("temporaries", parts.get("padded", 0), ("output all-to-all",)),
        ("optimizer state", parts["optimizer state"], PHASES),
        ("cache", parts["cache"], PHASES),
        ("inputs", parts["ids"] + int(own.ids * batches), PHASES),
        ("outputs", parts["outputs"], _EXCHANGED),
        ("outputs", int(own.outputs), _RETURNED),
        ("gradients", parts["gradients"], PHASES),
        ("gradients", max(0, int(own.outputs) - dense.activations), ("dense backward",)),
        ("gradients", int(own.gradients), ("gradient all-to-all",)),
        ("gradients", int(own.kept), ("gradient all-to-all", "embedding update")),
        ("temporaries", parts["sorting"], ("embedding update",)),
        ("dense layers", dense.fixed + np.array(dense.apart or 0, dtype=np.int64), PHASES),
        ("dense layers", dense.gradients, _BACKWARD),
        ("activations", dense.activations, AT_REST),
        ("temporaries", dense.temporaries, ("dense optimizer",)),
    )


def dense_phases_over(schedule: MemorySchedule) -> Ints:
    """Bytes (W,) by which the fuller of the phases AT_REST exceeds a rank's capacity; 0 or less if both fit."""
    return schedule.totals[[PHASES.index(phase) for phase in AT_REST]].max(axis=0) - schedule.capacity
