"""Advice on embedding tables and a cluster, with a plan for each switch: `recsmith advise TABLES --cluster CLUSTER`.

Every switch changes the tables, the batch or the cluster (table_changes.py) and is priced on the whole job
(table_prices.py). The rest of a step is its time without the embeddings.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from recsmith.analyses.advice import Advice, advise_by
from recsmith.analyses.aims import NAMED, STEP, Aim, JobPrice
from recsmith.analyses.table_changes import JobNames, TableSwitch, switches_of
from recsmith.analyses.table_prices import PlanSearch, PricedChanges, fits, fullest, is_quick
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.files import Source
from recsmith.planning.simulate import price
from recsmith.plans import Placement, Plan
from recsmith.problems.plain_reserve import kept_estimate
from recsmith.units import format_size, format_time
from recsmith.workloads import Workload, load_workload

SOUGHT = "every change is planned with the same effort as the job as it is, and a gain compares two such plans"
RUNS = (
    "tables stay where they are, so a gain is due to the change alone; a change that needs a new plan is compared "
    "with a new plan for the job as it is"
)
DRAFTED = "with so many tables, new plans are quick ones: `recsmith plan` may find steps that are some per cent shorter"


def advise(
    workload: Workload | Source,
    cluster: Cluster | Source,
    *,
    running: Sequence[Placement] | Plan | Source | None = None,
    step_s: float | None = None,
    step_told: str = "",
    not_priced: str = "",
    told: Sequence[str] = (),
    named: JobNames | None = None,
    aim: Aim = STEP,
    on_switch: Callable[[str], object] | None = None,
    **search: Any,
) -> Advice:
    """Advises which changes of tables, optimizer, communication or cluster make a job faster, and their possible cost.

    Args:
        workload: a Workload, a name such as 'dlrm-v2', or a file.
        cluster: a Cluster, a name such as 'h100:8x4', or a file.
        running: the plan that the job runs today; None: a plan is made now.
        step_s: measured seconds of a whole step of the running job; None: gains refer to the embeddings only.
        step_told: the source of step_s, in a sentence.
        not_priced: the parts of the job that these prices leave out, in a sentence.
        told: further sentences about the job.
        named: the user's names for tables and cluster, if these are passed as objects.
        aim: the objective and its limits.
        on_switch: called with the name of each switch before it is priced.
        search: further arguments of `plan`, for every plan.

    Raises:
        UsageError: a name, value or file breaks a rule, or step_s is less than the embeddings alone take.
        Infeasible, NoPlanFound: the tables as they are do not fit.
    """
    tables, where = load_workload(workload), load_cluster(cluster)
    aim.price_of(where.device.name)
    named = named or JobNames(*(str(each) for each in (workload, cluster) if isinstance(each, str | PathLike)))
    by = PlanSearch(search, aim, thorough=is_quick(tables, where))
    if on_switch is not None:
        on_switch("the job as it is")
    if running is None:
        base = by.made(tables, where)
    else:
        base = price(tables, where, running, cost_model=search.get("cost_model"), bound=False)
    rest_s, changes = _rest(base, step_s), dict[str, TableSwitch]()
    prices = PricedChanges(base, running is not None, rest_s, changes, by, aim.price_of)
    as_it_is = prices.priced(base)
    too_long = aim.step_under_s is not None and as_it_is.step_s > aim.step_under_s
    offered = switches_of(tables, where, running=running is not None, aim=aim, too_long=too_long, named=named)
    changes.update((each.switch.name, each) for each in offered)
    about = [
        *_about(base, step_s, running),
        *(each for each in (step_told, not_priced, *told) if each),
        *_aimed(aim, as_it_is),
        _memory(base, tables, running),
        SOUGHT if running is None else RUNS,
        *([] if by.thorough else [DRAFTED]),
    ]
    return advise_by(
        prices.price, [each.switch for each in offered], about, on_switch, aim=aim, beside=prices.beside
    )  # fmt: skip


def advise_plan(plan: Plan, on_switch: Callable[[str], object] | None = None) -> Advice:
    """Advice on a running plan, on its own cluster and under the cost model that priced it."""
    return advise(plan.workload, plan.cluster, running=plan, cost_model=plan.cost_model, on_switch=on_switch)


def _aimed(aim: Aim, as_it_is: JobPrice) -> list[str]:
    """Sentences on the objective and its limits; none for the default objective without limits."""
    limits: list[str] = []
    if aim.step_under_s is not None:
        limits.append(f"a step of at most {format_time(aim.step_under_s)}")
    if aim.budget is not None:
        limits.append(f"at most ${aim.budget:,.2f}/h")
    if aim.objective == STEP.objective and not limits:
        return []
    found = [f"{NAMED[aim.objective]} is to be small{', with ' if limits else ''}{' and '.join(limits)}"]
    if aim.step_under_s is not None and not as_it_is.whole:
        found.append("the limit of a step is compared with embeddings alone; --step-time says what a whole step takes")
    return found


def _memory(base: Plan, tables: Workload, running: object) -> str:
    """A sentence on the reserve of every device, and on whether the job as it is keeps it free."""
    estimate = kept_estimate(tables, base.cluster)
    kept = str(estimate) if estimate else f"reserve {format_size(base.cluster.reserve_bytes or 0)} a device"
    if fits(base):
        return kept
    room = min(each.hbm_capacity_bytes for each in base.cost.per_device)
    whose = "the plan that runs" if running is not None else "the plan"
    return (
        f"{kept}; {whose} does not fit beside it: its fullest device holds {format_size(fullest(base))} of "
        f"{format_size(room)}"
    )


def _rest(base: Plan, step_s: float | None) -> float | None:
    """Seconds of a step without the embeddings; None if the whole step's seconds are not given."""
    if step_s is None:
        return None
    embeddings = base.cost.step_s
    if step_s < embeddings:
        raise UsageError(
            f"a whole step is said to take {format_time(step_s)}, and its embeddings alone are predicted to take "
            f"{format_time(embeddings)}; measure the step of the job that runs these tables with this batch"
        )
    return step_s - embeddings


def _about(base: Plan, step_s: float | None, running: object) -> list[str]:
    whose = "the running plan" if running is not None else "a new plan"
    embeddings = format_time(base.cost.step_s)
    if step_s is None:
        return [f"{whose}: {embeddings} of embeddings a step; gains refer to these alone (--step-time adds the rest)"]
    if running is None:
        whose = "a new plan, as if it had been measured"
    rest = format_time(step_s - base.cost.step_s)
    return [
        f"{whose}: {format_time(step_s)} a step as measured, {embeddings} of it predicted for embeddings; the other "
        f"{rest} stay as they are, in proportion to the batch"
    ]
