"""Small nouns to test with: every argument has a default that is legal."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recsmith.clusters import Cluster, Device, Links
from recsmith.plans import Bound, DeviceCost, Placement, Plan, StepCost, digest_of, sorted_by_name
from recsmith.workloads import Feature, Table, Workload


def table(name: str = "a", rows: int = 100, dim: int = 32, *, pooling_factor: float = 1.0, **rest: Any) -> Table:
    features = (Feature(name=name, pooling_factor=pooling_factor),)
    return Table(**{"name": name, "num_embeddings": rows, "embedding_dim": dim, "features": features, **rest})


def workload(*tables: Table, **rest: Any) -> Workload:
    return Workload(**{"batch_size": 16, "optimizer": "sgd", "tables": tables or (table(),), **rest})


def cluster(hosts: int = 1, local: int = 2, **rest: Any) -> Cluster:
    device = Device(name="toy", hbm_bytes=2**30, hbm_bandwidth=1e12)
    links = Links(intra_host_bandwidth=1e11, inter_host_bandwidth=1e10)
    return Cluster(**{"device": device, "links": links, "hosts": hosts, "local_world_size": local, **rest})


def placed(name: str, kind: str, ranks: Sequence[int], widths: Sequence[int] = (), kernel: str = "fused") -> Placement:
    return Placement(
        table=name, sharding_type=kind, compute_kernel=kernel, ranks=tuple(ranks), widths=tuple(widths)
    )  # fmt: skip


def plan_of(work: Workload, machines: Cluster, *placements: Placement) -> Plan:
    """A plan by hand: legal placements, a made-up cost, no bound."""
    parts = dict.fromkeys(("forward_compute_s", "backward_compute_s", "forward_comm_s", "backward_comm_s"), 0.25)
    devices = tuple(
        DeviceCost(rank=rank, wait_s=0.0, hbm_bytes=1, hbm_capacity_bytes=2**30, **parts)
        for rank in range(machines.world_size)
    )
    work = sorted_by_name(work)
    return Plan(
        workload=work,
        cluster=machines,
        placements=placements,
        planner="hand",
        cost_model="torchrec",
        cost=StepCost(total_s=1.0, per_device=devices),
        bound=Bound(value_s=None, kind="none", space=""),
        gap=None,
        digest=digest_of(work, machines, {}, placements),
    )


def made_plan(rank: int = 0, world: int = 2, name: str = "a", **bound: float | None) -> Plan:
    """A plan by hand of one whole table on a rank. bound: its fields, instead of none."""
    plan = plan_of(workload(table(name)), cluster(local=world), placed(name, "table_wise", [rank]))
    limit = Bound(**{"value_s": None, "kind": "relaxation", "space": "all types"} | bound)  # pyright: ignore[reportArgumentType]
    return replace(plan, bound=limit, gap=limit.gap(plan.cost.total_s))
