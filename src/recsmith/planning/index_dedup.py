"""Decides whether ids of sequence tables are deduplicated: plans without and with, and keeps the shorter step.

It is one switch of a job, EmbeddingCollectionSharder(use_index_dedup=...) of TorchRec, so both settings are tried.
"""

from collections.abc import Callable
from dataclasses import replace

from recsmith.errors import Infeasible, NoPlanFound
from recsmith.planning.result import Result
from recsmith.workloads import Workload
from recsmith.workloads.workload import IndexDedup

DEDUP_CHOICES: tuple[IndexDedup, ...] = ("off", "on")


def deduplicated_where_it_pays(workload: Workload, plan: Callable[[Workload], Result]) -> Result:
    """The better of the two results, whose plan states the setting; off if equal, or if there are no sequence tables.

    Raises:
        Infeasible, NoPlanFound: neither has a plan; the error is that of the workload without deduplication.
    """
    without = replace(workload, index_dedup="off")
    if all(table.pooled for table in workload.tables):
        return plan(without)
    found: list[Result] = []
    errors: list[Infeasible | NoPlanFound] = []
    for choice in DEDUP_CHOICES:
        try:
            found.append(plan(replace(workload, index_dedup=choice)))
        except (Infeasible, NoPlanFound) as error:
            errors.append(error)
    if not found:
        raise errors[0]
    best = min(found, key=lambda each: each.plan.cost.step_s)
    return replace(best, elapsed_s=sum(each.elapsed_s for each in found))
