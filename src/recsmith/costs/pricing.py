"""Prices of placed pieces: seconds of every rank in the four parts, of each phase, and of the step.

Legend: N pieces, k work terms, G fusion groups, W ranks, F phases; the four parts are recsmith.plans.PARTS.
"""

from dataclasses import replace

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.clusters import Cluster
from recsmith.costs.protocol import CostModel, Evaluator
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.elementary import distinct
from recsmith.plans import PARTS, DeviceCost, StepCost
from recsmith.problems import Footprint, Space, build_problem, memory_taken, sum_per_group
from recsmith.workloads import Workload

ROOM = 2**45  # bytes of device memory (32 TiB), more than any measured group needs


def piece_seconds(evaluator: Evaluator, modes: Ints, widths: Ints) -> Floats:
    """Seconds (N,) of pieces, each alone on a rank that it covers, including launches."""
    return evaluator.head(evaluator.terms(modes, widths)).sum(axis=-1)


def device_sums(evaluator: Evaluator, footprint: Footprint) -> Floats:
    """Summed terms of each rank and group (W, G, k)."""
    terms = evaluator.terms(footprint.mode, footprint.width)
    return sum_per_group(terms, evaluator.group[footprint.mode], evaluator.groups, footprint, evaluator.problem)


def device_parts(evaluator: Evaluator, footprint: Footprint) -> Floats:
    """Seconds of each rank in the four parts (W, 4)."""
    local = evaluator.head(device_sums(evaluator, footprint)).sum(axis=1)  # (W, G, 4) -> (W, 4)
    return local + evaluator.shared[distinct(evaluator.group[footprint.mode])].sum(axis=0)


def phase_seconds(evaluator: Evaluator, parts: Floats) -> Floats:
    """Seconds of each phase (F, ...) under the model's step rule, from seconds in the four parts (..., 4)."""
    return evaluator.step_rule.phase_seconds(parts)


def step_of(evaluator: Evaluator, parts: Floats) -> float:
    """Seconds of the step from the ranks' parts (W, 4): the sum over phases of the slowest rank."""
    return evaluator.step_rule.step_seconds(parts)


def step_seconds(evaluator: Evaluator, footprint: Footprint) -> float:
    """Seconds of a step with these placed pieces."""
    return step_of(evaluator, device_parts(evaluator, footprint))


def price(evaluator: Evaluator, footprint: Footprint) -> StepCost:
    """The cost of a step with these placed pieces, by rank."""
    parts = device_parts(evaluator, footprint)
    total = step_of(evaluator, parts)
    wait = np.maximum(total - parts.sum(axis=1), 0.0)
    used, _ = memory_taken(evaluator.problem, footprint)
    capacity = evaluator.problem.capacity
    devices = zip(parts.tolist(), wait.tolist(), used.tolist(), capacity.tolist(), strict=True)
    return StepCost(
        total_s=total,
        per_device=tuple(
            DeviceCost(
                rank=rank, **dict(zip(PARTS, row, strict=True)), wait_s=idle, hbm_bytes=size, hbm_capacity_bytes=room
            )
            for rank, (row, idle, size, room) in enumerate(devices)
        ),
        sequences_s=sequence_seconds(evaluator.problem.workload, evaluator.problem.cluster),
    )


def one_device(cluster: Cluster) -> Cluster:
    """A single device of a cluster, with enough memory for any workload."""
    return replace(cluster, local_world_size=1, hosts=1, hbm_bytes=ROOM, reserve_bytes=0)


def group_seconds(model: CostModel, workload: Workload, device: Cluster) -> Floats:
    """Seconds (2,), forward and backward, of all tables of a workload as one group on one device; takes about 10 ms."""
    problem = build_problem(workload, device, Space(types=("table_wise",), kernels=("fused",), widths="torchrec"))
    evaluator = model.compile(problem)
    modes = np.arange(len(problem.tables))
    terms = evaluator.terms(modes, problem.demand.dim[problem.modes.table])
    return evaluator.head(terms.sum(axis=0, keepdims=True))[0, :2]
