"""Remarks on a plan, one sentence each, for the terminal, pages and reports."""

from collections import Counter
from collections.abc import Sequence

from recsmith.analyses.hot_rows import row_blocks_of
from recsmith.analyses.step_memory import step_memory
from recsmith.analyses.towers import imbalance
from recsmith.costs.collectives import synchronisation_of
from recsmith.planning.stashing import exposed_copies_s, stash_of
from recsmith.plans import Placement, Plan, StepCost, describe_kernel, inexact_optimizers, inexact_tables, wide_tables
from recsmith.problems.cached_lookups import CachedTable, cached_tables_of, hit_share
from recsmith.problems.drawn import QUANTILE
from recsmith.problems.plain_reserve import kept_estimate
from recsmith.reports.step_memory import stash_words
from recsmith.sharding import DEVICE_KERNELS, KEY_VALUE, NOTED_ON_CUDA
from recsmith.units import counted, format_size, format_time

FULL_BATCH = f"the fullest of {round(1 / (1 - QUANTILE)):,} batches"
MOST_NAMED = 8  # towers whose numbers of tables are listed


def rest_words(plan: Plan) -> str | None:
    """Which tables wait in host memory during the dense layers, or that none has to; None if nobody asked for this."""
    rests = stash_of(plan)
    if rests is None and "stash" in plan.constraints and not plan.cluster.fully_sharded:
        return "nothing rests in host memory, for tables and activations fit beside each other"
    return rests and stash_words(rests, plan)


def with_copies_words(plan: Plan, step_s: float) -> str:
    """The plan's step time including copies that dense layers do not hide. step_s: seconds without these copies."""
    exposed = exposed_copies_s(plan)
    if not exposed:
        return format_time(step_s)
    return (
        f"{format_time(step_s + exposed)}: {format_time(step_s)} and up to {format_time(exposed)} of copies of tables "
        "that rest"
    )


def towers_words(plan: Plan) -> str | None:
    """How many tables each tower has, and how far the busiest host is above the mean; None without towers."""
    if not plan.towers:
        return None
    counts = ", ".join(f"{len(tower)}" for tower in plan.towers[:MOST_NAMED])
    more = ", ..." if len(plan.towers) > MOST_NAMED else ""
    return f"{len(plan.towers)}, of {counts}{more} tables; the busiest host is {imbalance(plan):.1%} above the mean"


def sync_words(plan: Plan) -> str | None:
    """Bytes that the replicas of a sharding group synchronise, and the seconds per step; None without replicas."""
    sync = synchronisation_of(plan)
    if sync is None:
        return None
    counted = "not counted by cost model torchrec" if plan.cost_model == "torchrec" else "in bwd comm"
    return (
        f"{format_size(sync.size)} on the rank with most, {format_time(sync.seconds)} of a step, {counted}; "
        "ranks are those of one sharding group"
    )


def sequences_words(plan: Plan) -> str | None:
    """Seconds for the rows of sequence tables under any plan, and how equal ids are looked up; None if that is 0 s."""
    if plan.cost.sequences_s == 0:
        return None
    tables = counted(sum(not table.pooled for table in plan.workload.tables), "sequence table")
    once = "each rank looks its equal ids up once (index_dedup: on)"
    how = once if plan.workload.index_dedup == "on" else "equal ids are looked up one by one (index_dedup: off)"
    beside = format_time(plan.cost.sequences_s)
    return f"{beside} of every rank's step go to rows of {tables} under any plan; {how}"


def is_beneath(placement: Placement) -> bool:
    """Whether a table's weights are stored outside device memory."""
    return placement.compute_kernel not in DEVICE_KERNELS


def beneath_label(plan: Plan) -> str:
    """Where tables outside device memory are stored: 'host' or 'disk'."""
    return "disk" if any(each.compute_kernel == KEY_VALUE.name for each in plan.placements) else "host"


def beneath_words(plan: Plan) -> str | None:
    """Tables stored outside device memory, by kernel and cached share; None if there are none.

    Includes the predicted hit rate of the caches, which follows from the access profiles.
    """
    beneath = [placement for placement in plan.placements if is_beneath(placement)]
    if not beneath:
        return None
    tables = {table.name: table for table in plan.workload.tables}
    counts = Counter(describe_kernel(placement.compute_kernel, placement.cache) for placement in beneath)
    kernels = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    size = format_size(sum(tables[placement.table].weight_bytes for placement in beneath))
    where = "on disk" if beneath_label(plan) == "disk" else "in host memory"
    hits = hit_words(cached_tables_of(plan), plan)
    return f"{counted(len(beneath), 'table')}, {size} of weights {where}: {kernels}{hits}"


def hit_words(cached: Sequence[CachedTable], plan: Plan) -> str:
    """The predicted hit rate of the tables that have a cache; '' if there are none."""
    if not cached:
        return ""
    share = hit_share(plan.workload, cached, plan.cluster.world_size)
    return f"; {share:.1%} of their lookups hit a cache, predicted"


def inexact_words(plan: Plan) -> str | None:
    """Which tables train differently from the unsharded model, and why; None if none does."""
    tables = inexact_tables(plan)
    if not tables:
        return None
    count = f"{len(tables)} tables are" if len(tables) > 1 else f"table {tables[0]} is"
    return (
        f"{count} split by columns under {inexact_optimizers(plan)}: each shard keeps row statistics of its own, "
        "so training differs from the unsharded model; --keep-exact forbids it"
    )


def wide_text(plan: Plan) -> str | None:
    """Which tables have pieces too wide for some of FBGEMM's CUDA kernels; None if none has."""
    tables = wide_tables(plan)
    if not tables:
        return None
    count = f"{len(tables)} tables have" if len(tables) > 1 else f"table {tables[0]} has"
    return (
        f"{count} pieces of more than {NOTED_ON_CUDA:,} columns, for which releases of FBGEMM returned zeros "
        "(meta-pytorch/torchrec#3673): check yours, or limit `widths` in constraints"
    )


def hot_rows_words(plan: Plan) -> list[str]:
    """Where the hot rows of tables split by rows are, as known or assumed, in sentences; none without such tables."""
    split, made = row_blocks_of(plan), list[str]()
    assumed = [each for each in split if each.known == "scattered"]
    if assumed:
        how = "as stated" if all(each.stated for each in assumed) else "assumed"
        count = "for " + counted(len(assumed), "table") + " split by rows"
        made.append(
            f"hot rows scattered ({how}, {count}): all blocks of rows are equally busy, as with hashed ids; count them "
            "with `recsmith data workload`, or state `hot_rows: in_front` if ids are sorted by frequency"
        )
    for known, where in (("in_front", "hot rows in front (as stated)"), ("counted", "hot rows as counted")):
        found = [each for each in split if each.known == known]
        if found:
            more = f" of {counted(len(found), 'table')} split by rows" if len(found) > 1 else ""
            made.append(
                f"{where}: the busiest block of '{found[0].table}' has {found[0].times:.2f} times the mean lookups"
                f"{', the most' if more else ''}{more}; every rank is priced as the busiest"
            )
    return made


def drawn_words(plan: Plan) -> str | None:
    """The fullest batch that tables split by rows have memory for; None without such, or in TorchRec's accounting."""
    split = sum(each.kind.blocks(plan.cluster) > 1 for each in plan.placements)
    if not split or plan.constraints.get("memory", "real") != "real":
        return None
    kept = f"; {format_size(plan.cluster.reserve_bytes)} of reserve in addition" if plan.cluster.reserve_bytes else ""
    return f"room for ids, outputs and temporaries of {FULL_BATCH}, for {counted(split, 'table')} split by rows{kept}"


def overfull_phase_words(plan: Plan) -> str | None:
    """The phase of a step that exceeds a rank's memory although tables fit; None without one, or without `stash`."""
    if "stash" not in plan.constraints or plan.cost.overfull:
        return None
    schedule = step_memory(plan).schedule
    if schedule.fits:
        return None
    rank = schedule.fullest
    over = format_size(int(schedule.peak[rank] - schedule.capacity[rank]))
    return (
        f"rank {rank} would need {over} more memory than there is in phase '{schedule.when(rank)}'; plan again with "
        "--stash, which chooses the tables that rest"
    )


def layers_words(plan: Plan) -> str:
    """The estimated memory kept free for layers over histories; '' without such layers or if the reserve was stated."""
    found = kept_estimate(plan.workload, plan.cluster)
    return f"kept free: {found}" if found and found.positions else ""


def overfull_words(cost: StepCost) -> str | None:
    """Which ranks need more memory than they have; None if none does."""
    if not cost.overfull:
        return None
    first, others = cost.overfull[0], len(cost.overfull) - 1
    more = f" and {others} more" if others else ""
    return (
        f"rank {first.rank}{more} would need more memory than there is: {format_size(first.hbm_bytes)} where tables "
        f"may take {format_size(first.hbm_capacity_bytes)}; plan again for this cluster, or keep less free (--reserve)"
    )
