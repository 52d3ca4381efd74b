"""Cases of cost model `analytic` with round figures, and the terms and prices of their pieces."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import settings

from recsmith.clusters import Cluster
from recsmith.costs import price
from recsmith.plans import Placement, StepCost
from recsmith.problems import Space, footprint_of
from recsmith.workloads import AccessProfile, Table
from support.cases import OFF_DISK, Case, cluster, drawn, medium_case, workload

ANALYTIC = drawn(medium_case, models=("analytic",), counts=(2, 4), dims=(4, 20, 64, 192))
FEW = settings(max_examples=20)
INTRA, INTER = 1e-5, 3e-5  # latencies
LAUNCH = 1e-6
COUNTED = AccessProfile(reuse_bins=(0.0, 1.0, *[0.0] * 15), lookups=80, unique_rows=40)  # 40 rows, each read twice


def cluster_of(local: int = 2, hosts: int = 1, **device: Any) -> Cluster:
    made = cluster(local, hosts, ddr_bytes_per_host=2**40)
    fields = {"l2_bytes": 10**6, "l2_bandwidth": 4e12, "launch_s": LAUNCH} | device
    return replace(
        made,
        device=replace(made.device, **fields),
        links=replace(made.links, intra_host_latency_s=INTRA, inter_host_latency_s=INTER),
    )


def case_of(*tables: Table, on: Cluster | None = None, space: Space | None = None, **fields: Any) -> Case:
    return Case(
        workload(*tables, **fields), on or cluster_of(), space or Space(kernels=OFF_DISK), cost_model="analytic"
    )


def placed(name: str, kind: str, ranks: tuple[int, ...], kernel: str = "fused") -> Placement:
    return Placement(table=name, sharding_type=kind, compute_kernel=kernel, ranks=ranks)


def priced(case: Case, *placements: Placement) -> StepCost:
    return price(case.evaluator, footprint_of(case.problem, placements))


def terms_of(case: Case, kind: str, kernel: str = "fused", width: int | None = None, load_factor: float | None = None):
    """Terms of the first table's piece, the whole width by default."""
    mode = case.problem.find_mode(0, kind, kernel, load_factor)
    assert mode is not None
    return case.evaluator.terms(np.array([mode]), np.array([width or case.problem.tables[0].embedding_dim]))[0]


def shared_by(case: Case, kind: str, kernel: str = "fused") -> tuple[float, float]:
    """What a group of this type costs every rank, forward and backward."""
    mode = case.problem.find_mode(0, kind, kernel)
    assert mode is not None
    compute, backward, forward_comm, backward_comm = case.evaluator.shared[case.evaluator.group[mode]].tolist()
    assert compute == backward == 0
    return forward_comm, backward_comm
