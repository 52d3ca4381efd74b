"""Sharding groups of a 2D job after the number of its hosts has changed: fewer or more groups, under the same plan.

Every group holds all tables, so the plan of a group does not change. Data moves to ranks whose place in their group
changes: ranks are renumbered, and TorchRec's default layout gives neighbouring ranks the same shards.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from recsmith.clusters import of_ranks
from recsmith.errors import PlanMismatch
from recsmith.planning.replan import replan
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, digest_of
from recsmith.plans.diff import as_now, moved_bytes
from recsmith.training.run import Run


def of_groups_left(plan: Plan, run: Run, ranks: int) -> Plan:
    """The plan of sharding groups for a job with `ranks` ranks, which must form whole groups.

    If a placement depends on which ranks of a group share a host, and that changes, tables are placed anew.
    """
    workload = replace(plan.workload, batch_size=run.data.local_batch_size(ranks))
    cluster = of_ranks(plan.cluster, ranks)
    try:
        made = simulate(replace(plan, workload=workload, cluster=cluster))
    except PlanMismatch:
        return replan(plan, workload, cluster, max_moved="100%", cost_model=plan.cost_model).result.plan
    return replace(made, digest=digest_of(made.workload, made.cluster, made.constraints, made.placements))


def moved_of_groups(before: Plan, after: Plan, places: Mapping[int, int]) -> tuple[int, int]:
    """(bytes of tables that ranks receive without having held them, the least that any numbering of ranks moves).

    places: current rank by rank of the job before. Groups of another size count as having held nothing. The least is 0,
    which means unknown, if tables are placed anew.
    """
    same = before.cluster.world_size == after.cluster.world_size
    held = {now: before.cluster.rank_in_group(old) for old, now in places.items() if same}
    wanted = {rank: after.cluster.rank_in_group(rank) for rank in range(after.cluster.job_world_size)}
    pairs = Counter((held.get(rank), place) for rank, place in wanted.items())
    moved = sum(count * received(before, after, *pair) for pair, count in pairs.items())
    if not same or before.placements != after.placements:
        return moved, 0
    groups, copies = after.cluster.job_world_size // after.cluster.world_size, Counter(held.values())
    lacking = {place: groups - copies[place] for place in range(after.cluster.world_size) if copies[place] < groups}
    return moved, sum(count * received(before, after, None, place) for place, count in lacking.items())


def received(before: Plan, after: Plan, held: int | None, place: int) -> int:
    """Bytes that a rank at `place` in its group receives. held: its place in the group before; None: it had none."""
    own = as_now(before, {} if held is None else {held: place})
    shards = moved_bytes(own, after.placements, after.workload, after.cluster).values()
    return sum(size for each in shards for rank, size in each if rank == place)
