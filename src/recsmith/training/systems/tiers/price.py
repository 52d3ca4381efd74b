"""Seconds that tables in files add to a step, and the line on them before a job; without torch."""

import math
from collections.abc import Sequence
from typing import Any

from recsmith.costs.fetches import disk_fetches
from recsmith.plans import Plan
from recsmith.training.job.run_step import RankMemory
from recsmith.training.run import Run
from recsmith.training.systems.tiers.shares import cached_tables, least_slots, predicted_hits, stored_plan
from recsmith.units import counted, format_size, format_time
from recsmith.workloads.workload import AHEAD

# Seconds of lookups from a file that the operating system holds in memory (benchmarks/fetch_rates.py):
TABLE_S = 4e-4  # per table with a cache: its threads, and finding slots that it may use
CACHED_ID_S = 8e-8  # per id: finding its slot
FETCH_S = 6.5e-7  # per id whose row the cache lacks


def fetch_s(tables: float, ids: float, missed: float) -> float:
    """Seconds in which a rank finds the rows of a batch. missed: the number of ids whose row no cache holds."""
    return tables * TABLE_S + ids * CACHED_ID_S + missed * FETCH_S


def rows_s(run: Run, plan: Plan, step_s: float = 0.0) -> float:
    """Seconds that a step waits for rows that no cache holds, on the plan's disk or in the system's memory.

    step_s: seconds of the job's step without this waiting. If rows are fetched ahead by a thread, the disk works during
    the step; the work of cores on rows is not hidden.
    """
    cached, hits = cached_tables(run, plan), predicted_hits(run, plan)
    if not cached or hits is None:
        return 0.0
    ids = plan.workload.batch_size * sum(
        each.pooling_factor * each.num_poolings for one in cached for each in one.table.features
    )
    tables = math.ceil(len(cached) / plan.cluster.world_size)
    if plan.cluster.disk is None:
        return fetch_s(tables, ids, ids * (1 - hits))
    found = disk_fetches(stored_plan(run, plan))
    disk_s = 0.0 if found is None else found.longest_s
    return fetch_s(tables, ids, 0.0) + (max(0.0, disk_s - step_s) if _waits_ahead(run) else disk_s)


def priced_s(run: Run, plan: Plan) -> float:
    """Disk seconds that the plan's cost contains already, for the tables that the plan itself keeps on disk."""
    if "cache" in run.rows_named[1] or plan.cluster.disk is None:
        return 0.0
    found = disk_fetches(plan)
    return 0.0 if found is None else min(found.longest_s, plan.cost.step_s)


def tiers_line(run: Run, plan: Plan, memory: Sequence[RankMemory], batches: int | None) -> str:
    """The line on tables in files: bytes in files and in memory, predicted hit rate, and seconds of a step.

    plan: as `planned_as_run` makes it. memory: of each rank. batches: of the whole run, or None if unknown.
    """
    folder: Any = run.rows_named[1].get("folder", "")
    cached, hits, least = cached_tables(run, plan), predicted_hits(run, plan), least_slots(run, plan)
    whole = sum(each.share >= 1 for each in cached)
    raised = sum(each.share * each.table.num_embeddings <= least[each.table.name] for each in cached) - whole
    more = [f"{counted(whole, 'table')} whole, for two batches may read all of their rows"] if whole else []
    more += [f"{counted(raised, 'table')} with the rows of two batches"] if raised > 0 else []
    slots = sum(each.share * each.table.weight_bytes for each in cached)
    wait = rows_s(run, plan)
    found = None if plan.cluster.disk is None else disk_fetches(plan)
    hides = found is not None and _waits_ahead(run)
    ahead = f", the disk's part beside the step before (pipeline {AHEAD})" if hides else ""
    whole_run = None if batches is None else predicted_hits(run, plan, batches)
    mean = "" if whole_run is None else f" ({whole_run:.1%} in the mean of all, with caches that are empty at first)"
    by = "a disk as the plan knows it" if found is not None else "a file that the system's memory holds"
    return (
        f"rows: tiered: {counted(len(cached), 'table')} in files in '{folder}', "
        f"{format_size(max(each.file for each in memory))} on the rank that has most; in memory are "
        f"{format_size(round(slots))} of their weights{''.join(f', {each}' for each in more)}; "
        f"{hits or 0.0:.1%} of lookups find a row there once they are full{mean}, and rows take "
        f"{format_time(wait)} of a step{ahead}, from {by}"
    )


def _waits_ahead(run: Run) -> bool:
    """Whether the rows of the next batch are fetched while this batch trains."""
    return run.step_named[0] == AHEAD
