"""What the owner of embedding tables could switch on, by a plan for each: `recsmith advise` on tables and a cluster.

Every switch changes the tables, the batch or the cluster (table_changes.py) and is priced on the whole job
(table_prices.py). The rest of a step is what it takes beyond its embeddings.
"""

from collections.abc import Callable, Sequence
from typing import Any

from recsmith.analyses.advice import MOST_SEARCHED, Advice, advise_by
from recsmith.analyses.aims import NAMED, STEP, Aim
from recsmith.analyses.table_changes import switches_of
from recsmith.analyses.table_prices import PricedChanges, base_plan, is_quick, is_small
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.files import Source
from recsmith.planning.simulate import price
from recsmith.plans import Placement, Plan
from recsmith.units import format_time
from recsmith.workloads import Workload, load_workload

KEPT = (
    "placements are kept where they can be, and a short search goes on from them for the changes that look best; "
    "planning anew can only add to gains"
)
DRAFTED = "the plan is a quick one, for so many tables: `recsmith plan` may find one that is some per cent shorter"


def advise(
    workload: Workload | Source,
    cluster: Cluster | Source,
    *,
    running: Sequence[Placement] | Plan | Source | None = None,
    step_s: float | None = None,
    step_told: str = "",
    not_priced: str = "",
    aim: Aim = STEP,
    on_switch: Callable[[str], object] | None = None,
    **search: Any,
) -> Advice:
    """Which changes of tables, optimizer, communication or cluster make a job faster, and what each may cost.

    Args:
        workload: nouns, a name such as 'dlrm-v2', or a file.
        cluster: a noun, a name such as 'h100:8x4', or a file.
        running: the plan that the job runs today; None: the plan that is made now.
        step_s: seconds of a whole step of the job as it runs, measured; None: gains are of the embeddings' part alone.
        step_told: where that is from, in a sentence.
        not_priced: what of the job these prices leave out, in a sentence.
        aim: what the job is to have less of, and its limits.
        on_switch: hears the name of each switch before it is priced.
        search: what `plan` takes beside, for every plan.

    Raises:
        UsageError: a name, value or file breaks a rule, or step_s is less than the embeddings alone take.
        Infeasible, NoPlanFound: the tables as they are do not fit.
    """
    tables, where = load_workload(workload), load_cluster(cluster)
    aim.price_of(where.device.name)
    changes = {each.switch.name: each for each in switches_of(tables, where, running=running is not None, aim=aim)}
    if running is None:
        base = base_plan(tables, where, search)
    else:
        base = price(tables, where, running, cost_model=search.get("cost_model"))
    prices = PricedChanges(base, _rest(base, step_s), changes, search, aim.price_of)
    drafted = running is None and not is_quick(tables, where)
    about = [
        *_about(base, step_s, running),
        *(each for each in (step_told, not_priced) if each),
        *_aimed(aim),
        KEPT,
        *([DRAFTED] if drafted else []),
    ]
    return advise_by(
        prices.kept, [each.switch for each in changes.values()], about, on_switch, aim=aim, searched=prices.searched,
        most_searched=len(changes) if is_small(tables, where) else MOST_SEARCHED,
    )  # fmt: skip


def advise_plan(plan: Plan, on_switch: Callable[[str], object] | None = None) -> Advice:
    """Advice on a plan that runs, on its own cluster and under the cost model that priced it."""
    return advise(plan.workload, plan.cluster, running=plan, cost_model=plan.cost_model, on_switch=on_switch)


def _aimed(aim: Aim) -> list[str]:
    """What there is to be less of and its limits, where somebody said so."""
    limits: list[str] = []
    if aim.step_under_s is not None:
        limits.append(f"a step of at most {format_time(aim.step_under_s)}")
    if aim.budget is not None:
        limits.append(f"at most ${aim.budget:,.2f}/h")
    if aim.objective == STEP.objective and not limits:
        return []
    return [f"{NAMED[aim.objective]} is to be small{', with ' if limits else ''}{' and '.join(limits)}"]


def _rest(base: Plan, step_s: float | None) -> float:
    """Seconds of a step that are not the embeddings'; 0 where nobody says what a whole step takes."""
    if step_s is None:
        return 0.0
    embeddings = base.cost.step_s
    if step_s < embeddings:
        raise UsageError(
            f"a whole step is said to take {format_time(step_s)}, and its embeddings alone are predicted to take "
            f"{format_time(embeddings)}; measure the step of the job that runs these tables with this batch"
        )
    return step_s - embeddings


def _about(base: Plan, step_s: float | None, running: object) -> list[str]:
    whose = "the plan that runs" if running is not None else "the plan that is made now"
    embeddings = format_time(base.cost.step_s)
    if step_s is None:
        return [f"{whose}: {embeddings} of embeddings a step; gains are of these alone (--step-time tells the rest)"]
    rest = format_time(step_s - base.cost.step_s)
    return [
        f"{whose}: {format_time(step_s)} a step as measured, {embeddings} of it predicted for embeddings; the other "
        f"{rest} stay as they are, in proportion to the batch"
    ]
