"""An explained plan by hand: two phases, and all about one of its tables."""

from dataclasses import replace
from typing import Any

from recsmith.analyses.alternatives import Alternative
from recsmith.analyses.explain import Explanation, PartShare, Phase, RankShare, TableAccount, TableShare
from recsmith.plans import Bound
from support.build import cluster, placed, plan_of, table, workload

PLACED = placed("[b]", "table_wise", [0]), placed("a", "row_wise", [0, 1])
BOUND = Bound(value_s=0.9, kind="relaxation", space="all types")
PLAN = replace(plan_of(workload(table("a"), table("[b]")), cluster(), *PLACED), bound=BOUND, gap=0.11)


def part(name: str, seconds: float, launch: float = 0.0, latency: float = 0.0) -> PartShare:
    return PartShare(part=name, seconds=seconds, launch_s=launch, latency_s=latency)


TABLES = tuple(TableShare(table=f"t{i}", sharding_type="table_wise", seconds=0.1 - i / 1000) for i in range(10))
PHASES = (
    Phase(rank=1, seconds=0.6, mean_s=0.5, tables=TABLES, parts=(
        part("forward_compute_s", 0.1), part("backward_compute_s", 0.3, 2e-6), part("backward_comm_s", 0.2, 0.0, 3e-6),
    )),
    Phase(rank=0, seconds=0.4, mean_s=0.4, tables=TABLES[:1], parts=(part("forward_comm_s", 0.4),)),
)  # fmt: skip
EXPLANATION = Explanation(plan=PLAN, cost_model="torchrec", total_s=1.0, phases=PHASES)


def option(kind: str, total: float | None, *ranks: int, **changes: Any) -> Alternative:
    change = None if total is None else total - 1.0
    made = Alternative(
        sharding_type=kind, compute_kernel="fused", widths=(), ranks=ranks, total_s=total, change=change, current=False
    )
    return replace(made, **changes)


def account(*options: Alternative, **changes: Any) -> Explanation:
    shares = [
        RankShare(rank=rank, forward_compute_s=1e-3, backward_compute_s=2e-3, forward_comm_s=0.0, backward_comm_s=0.0)
        for rank in range(2)
    ]
    placement = PLAN.placements[1]
    made = TableAccount(
        table=table("a"), placement=placement, ranks=tuple(shares), ids=1234.0, unique_ratio=0.125,
        shards=tuple(shard for shard in PLAN.shards() if shard.table == "a"),
        alternatives=options or (option("row_wise", 1.0, 0, 1, current=True),),
    )  # fmt: skip
    return replace(EXPLANATION, account=replace(made, **changes))
