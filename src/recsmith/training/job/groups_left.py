"""Sharding groups of a 2D job when the number of its hosts has changed: fewer groups or more, under the same plan.

Every group holds all tables, so that the plan of a group stays. What moves is of ranks that have another place in their
group than before: ranks are numbered anew, and TorchRec's default layout gives neighbouring ranks the same shards.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from recsmith.clusters import of_ranks
from recsmith.errors import PlanMismatch
from recsmith.planning.replan import replan
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, digest_of
from recsmith.training.run import Run


def of_groups_left(plan: Plan, run: Run, ranks: int) -> Plan:
    """The plan of sharding groups for a job that has so many ranks, of which groups can be made.

    Where other ranks of a group share a host than before, and a placement needs that, tables are placed anew.
    """
    workload = replace(plan.workload, batch_size=run.data.local_batch_size(ranks))
    cluster = of_ranks(plan.cluster, ranks)
    try:
        made = simulate(replace(plan, workload=workload, cluster=cluster))
    except PlanMismatch:
        return replan(plan, workload, cluster, max_moved="100%", cost_model=plan.cost_model).result.plan
    return replace(made, digest=digest_of(made.workload, made.cluster, made.constraints, made.placements))


def moved_of_groups(before: Plan, after: Plan, places: Mapping[int, int]) -> tuple[int, int]:
    """Bytes of tables that ranks receive which did not hold them, and the least that any numbering of ranks moves.

    places: by each rank of the job before, its rank now. Groups of another size are taken to have held nothing.
    """
    sizes = Counter[int]()
    tables = {table.name: table for table in after.workload.tables}
    for shard in after.shards():
        rows, columns = (end - start for start, end in (shard.rows, shard.columns))
        sizes[shard.rank] += rows * columns * tables[shard.table].element_bytes
    groups = after.cluster.job_world_size // after.cluster.world_size
    same = before.cluster.world_size == after.cluster.world_size
    held = {now: before.cluster.rank_in_group(old) for old, now in places.items() if same}
    wanted = {rank: after.cluster.rank_in_group(rank) for rank in range(after.cluster.job_world_size)}
    moved = sum(sizes[place] for rank, place in wanted.items() if held.get(rank) != place)
    copies = Counter(held.values())
    least = sum(max(0, groups - copies[place]) * size for place, size in sizes.items())
    return moved, least
