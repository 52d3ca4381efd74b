"""Which tables of a run are in files, how many of their rows are in memory, and how often lookups find them there."""

import math
from dataclasses import replace

from recsmith.errors import check_rules
from recsmith.plans import Cache, Placement, Plan
from recsmith.problems.cached_lookups import BATCHES, PROFILE, CachedTable, cached_tables_of, hit_share
from recsmith.sharding import KEY_VALUE
from recsmith.training.run import Run
from recsmith.training.run.parts import COPIED
from recsmith.training.seams.registry import batches_of_a_step
from recsmith.training.systems.tiers.allotting import allotted
from recsmith.units import counted
from recsmith.workloads import Table

ANY_SIZE = 2**52  # bytes of disk per host if the cluster does not say
SPREAD = 1.25  # ids that a batch may read / their mean, for features whose bags differ in length


def check_caches(cache: float | None = None, policy: str | None = None, profile: int = PROFILE) -> None:
    """Raise UsageError if settings of the caches of `rows: tiered` are invalid."""
    fits, alone = cache is None or 0 < cache <= 1, policy is not None and cache is None
    check_rules(
        None if fits else f"rows.cache is {cache}; it is a share of rows, above 0 and at most 1",
        "rows.policy goes with rows.cache; without it the plan says both: plan with --cache-policy static"
        if alone else None,
        None if alone or profile >= 1 else f"rows.profile is {profile}; it is a number of batches, at least 1",
    )  # fmt: skip


def cached_tables(run: Run, plan: Plan) -> list[CachedTable]:
    """The tables that a run on CPU keeps in files, each with the share of its rows that is in memory."""
    name, settings = run.rows_named
    if name != "tiered":
        return []
    check_caches(**{each: settings[each] for each in ("cache", "policy", "profile") if each in settings})
    tables = {table.name: table for table in plan.workload.tables if table.pooled or "cache" in settings}
    placed = [each for each in plan.placements if each.table in tables and each.sharding_type != COPIED]
    least = least_slots(run, plan)
    if "cache" in settings:
        static = settings.get("policy") == "static"
        wanted = [CachedTable(tables[each.table], settings["cache"], static) for each in placed]
        held = [least[each.table.name] for each in wanted]
        profile = profile_of(run)
        shares = allotted(plan.workload, wanted, held, plan.cluster.world_size, profile) if wanted else []
        return [each._replace(share=share) for each, share in zip(wanted, shares, strict=True)]
    stored = {each.table for each in placed if each.compute_kernel == KEY_VALUE.name}
    return [
        each._replace(share=share_of(each, least[each.table.name]))
        for each in cached_tables_of(plan)
        if each.table.name in stored
    ]


def share_of(cached: CachedTable, least: int) -> float:
    """The share of a table's rows that its cache holds: what is asked for, but at least `least` rows."""
    return min(1.0, max(cached.share, least / cached.table.num_embeddings))


def least_slots(run: Run, plan: Plan) -> dict[str, int]:
    """The least number of rows in each table's cache: as many as two batches of all ranks may read."""
    ranks = plan.cluster.world_size
    samples = run.data.local_batch_size(ranks) * ranks * batches_of_a_step(run)
    return {table.name: min(table.num_embeddings, BATCHES * _ids(table, samples)) for table in plan.workload.tables}


def _ids(table: Table, samples: int) -> int:
    ids = sum(
        each.pooling_factor * each.num_poolings * (1.0 if each.pooling_factor == 1 else SPREAD)
        for each in table.features
    )
    return math.ceil(samples * ids)


def stored_plan(run: Run, plan: Plan) -> Plan:
    """The plan as the run keeps its rows: tables in files are marked as such, each with its share of rows in memory.

    If the cluster states no size of its disks, the plan assumes disks that hold any table.
    """
    cached = {each.table.name: each for each in cached_tables(run, plan)}
    placements = tuple(_stored(each, cached.get(each.table)) for each in plan.placements)
    cluster = replace(plan.cluster, ssd_bytes_per_host=plan.cluster.ssd_bytes_per_host or ANY_SIZE)
    return replace(plan, digest="", placements=placements, cluster=cluster)


def _stored(placement: Placement, cached: CachedTable | None) -> Placement:
    if cached is None:
        return placement
    cache = Cache(load_factor=cached.share, policy="static" if cached.static else "lru")
    return replace(placement, compute_kernel=KEY_VALUE.name, cache=cache)


def profile_of(run: Run) -> int:
    """The number of batches whose reads are counted, to keep the rows that are read most."""
    return run.rows_named[1].get("profile", PROFILE)


def predicted_hits(run: Run, plan: Plan, batches: int | None = None) -> float | None:
    """The predicted share of lookups in cached tables that find their row in memory; None if no table is cached.

    batches: of the whole job, for the mean over it; None: the share once caches are full and the profile is complete.
    """
    cached = cached_tables(run, plan)
    if not cached:
        return None
    return hit_share(plan.workload, cached, plan.cluster.world_size, profile=profile_of(run), batches=batches)


def unfinished_profile(run: Run, batches: int | None) -> str | None:
    """The note that a job of this many batches ends before its profile is complete; None if it does not."""
    profile = profile_of(run)
    if batches is None or batches > profile:
        return None
    return (
        f"rows.profile is {profile:,}, and the run has {counted(batches, 'batch', 'batches')}, so that reads are "
        f"counted to its end and no rows stay: give it fewer, such as {max(1, batches // 4):,}, or leave out policy"
    )
