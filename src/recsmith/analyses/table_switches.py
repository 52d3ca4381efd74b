"""What the owner of embedding tables could switch on, by a plan for each: `recsmith advise` on tables and a cluster.

Every switch changes the tables, the batch or the cluster, and is planned anew by the search that planned the job. Where
a search takes long, placements stay where they can, so that a switch takes a price alone; planning anew can only add to
its gain. The rest of a step is what it takes beyond its embeddings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsmith.analyses.advice import Advice, JobPrice, Switch, advise_by
from recsmith.clusters import Cluster, load_cluster, sharding_group
from recsmith.costs.published import error_of
from recsmith.errors import UsageError
from recsmith.files import Source
from recsmith.planning import plan
from recsmith.planning.simulate import price, price_plan
from recsmith.plans import Placement, Plan
from recsmith.units import format_time
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.optimizers import OptimizerName

Edit = Callable[[Workload, Cluster], tuple[Workload, Cluster]]
SEARCHED = 2000  # tables times devices: with more of them, one search takes longer than all prices
KEPT = "changes keep the job's placements where they can, for so many tables; planning anew can only add to their gains"
ROW_WISE: dict[str, OptimizerName] = {"adagrad": "rowwise_adagrad", "adam": "partial_rowwise_adam"}


@dataclass(frozen=True)
class TableSwitch:
    """A switch and what it changes. edit: of tables and cluster. planned: whether it needs other placements."""

    switch: Switch
    edit: Edit
    planned: bool = False


def advise(
    workload: Workload | Source,
    cluster: Cluster | Source,
    *,
    running: Sequence[Placement] | Plan | Source | None = None,
    step_s: float | None = None,
    on_switch: Callable[[str], object] | None = None,
    **search: Any,
) -> Advice:
    """Which changes of tables, optimizer, communication or cluster make a job faster, and what each may cost.

    Args:
        workload: nouns, a name such as 'dlrm-v2', or a file.
        cluster: a noun, a name such as 'h100:8x4', or a file.
        running: the plan that the job runs today; None: the plan that is made now.
        step_s: seconds of a whole step of the job as it runs, measured; None: gains are of the embeddings' part alone.
        on_switch: hears the name of each switch before it is planned.
        search: what `plan` takes beside, for every plan.

    Raises:
        UsageError: a name, value or file breaks a rule, or step_s is less than the embeddings alone take.
        Infeasible, NoPlanFound: the tables as they are do not fit.
    """
    tables, where = load_workload(workload), load_cluster(cluster)
    base = _running(tables, where, running, search)
    rest = _rest(base, step_s)
    anew = len(tables.tables) * where.world_size <= SEARCHED
    found = {
        each.switch.name: replace(each, planned=each.planned or anew)
        for each in switches_of(tables, where, running=running is not None)
    }

    plans: dict[tuple[str, ...], Plan] = {(): base}

    def price_of(switches: Sequence[Switch]) -> JobPrice:
        edits = [found[switch.name] for switch in switches]
        names = tuple(each.switch.name for each in edits if each.planned)
        if names not in plans:
            plans[names] = plan(*_edited(tables, where, edits, planned=True), **search).plan
        made = plans[names]
        work, _ = _edited(made.workload, made.cluster, edits, planned=False)
        if work != made.workload:
            made = replace(made, workload=work, digest="")
            made = replace(made, cost=price_plan(made))
        return _priced(made, rest, tables.batch_size)

    about = [*_about(base, step_s, running), *([] if anew else [KEPT])]
    return advise_by(price_of, [each.switch for each in found.values()], about, on_switch)


def _edited(work: Workload, where: Cluster, edits: Sequence[TableSwitch], *, planned: bool) -> tuple[Workload, Cluster]:
    """Tables and cluster after those edits that need other placements, or after those that do not."""
    for each in edits:
        if each.planned == planned:
            work, where = each.edit(work, where)
    return work, where


def _running(
    tables: Workload, cluster: Cluster, running: Sequence[Placement] | Plan | Source | None, search: dict[str, Any]
) -> Plan:
    if running is None:
        return plan(tables, cluster, **search).plan
    return price(tables, cluster, running, cost_model=search.get("cost_model"))


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


def _priced(made: Plan, rest: float, batch_size: int) -> JobPrice:
    """The step of a plan with the rest of the job, which grows with the batch."""
    samples = made.workload.batch_size
    rest *= samples / batch_size
    step_s, known = made.cost.step_s + rest, error_of(made)
    share = made.cost.step_s / step_s if step_s else 0.0
    return JobPrice(
        step_s=step_s, samples=samples, memory_bytes=max(each.hbm_bytes for each in made.cost.per_device),
        error=known.share * share, apart=known.spread * share,
    )  # fmt: skip


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


def switches_of(tables: Workload, cluster: Cluster, *, running: bool = False) -> list[TableSwitch]:
    """What could be switched on for tables on a cluster, as far as it is not on already."""
    found: list[TableSwitch] = []
    if running:
        made = Switch(
            name="a new plan",
            change="recsmith plan TABLES --cluster CLUSTER -o plan.json",
            quality="exact",
            page="planning.md",
        )
        found.append(TableSwitch(made, lambda work, where: (work, where), planned=True))
    if cluster.world_size > 1 and tables.bytes_per_value == (None, None):
        made = Switch(
            name="fp16 and bf16 between devices",
            change="comm_dtype: fp16 and backward_comm_dtype: bf16 (TorchRec's QCommsConfig; comms: {forward: fp16, "
            "backward: bf16} of a run)",
            quality="not measured", page="workloads.md",
        )  # fmt: skip
        found.append(TableSwitch(made, _short_messages))
    if tables.index_dedup == "off" and not all(table.pooled for table in tables.tables):
        made = Switch(
            name="equal ids once", change="index_dedup: on (TorchRec's use_index_dedup of sequence tables)",
            quality="exact but for the order in which gradients of a row are summed", page="workloads.md",
        )  # fmt: skip
        found.append(TableSwitch(made, lambda work, where: (replace(work, index_dedup="on"), where)))
    if any(table.data_type == "fp32" for table in tables.tables):
        made = Switch(
            name="tables in fp16", change="data_type: fp16 of every table",
            quality="fp16 was not measured; weights of bf16 alone lose up to 2.4 points of AUC at small learning rates",
            page="precision.md",
        )  # fmt: skip
        found.append(TableSwitch(made, _half_tables))
    if other := ROW_WISE.get(tables.optimizer):
        made = Switch(name=f"optimizer {other}", change=f"optimizer: {other}", quality="not measured", page="memory.md")
        found.append(TableSwitch(made, _with_optimizer(other)))
    if cluster.replication is None and cluster.hosts > 1 and not isinstance(cluster.hbm_bytes, tuple):
        found.append(_groups(cluster.world_size // 2))
    double = 2 * tables.batch_size
    made = Switch(
        name="twice the batch", change=f"batch_size: {double}",
        quality="not measured; learning rates have to follow, and an epoch has half as many steps", page="sweep.md",
    )  # fmt: skip
    found.append(TableSwitch(made, lambda work, where: (work.with_batch_size(2 * work.batch_size), where)))
    return found


def _with_optimizer(name: OptimizerName) -> Edit:
    return lambda work, where: (replace(work, optimizer=name), where)


def _short_messages(work: Workload, where: Cluster) -> tuple[Workload, Cluster]:
    return replace(work, comm_dtype="fp16", backward_comm_dtype="bf16"), where


def _half_tables(work: Workload, where: Cluster) -> tuple[Workload, Cluster]:
    halves = tuple(replace(each, data_type="fp16") if each.data_type == "fp32" else each for each in work.tables)
    return replace(work, tables=halves), where


def _groups(size: int) -> TableSwitch:
    made = Switch(
        name=f"2D groups of {size} devices", change=f"--group-size {size} (TorchRec's DMPCollection)",
        quality="exact where groups synchronise after every step", page="planning.md",
    )  # fmt: skip
    return TableSwitch(made, lambda work, where: (work, sharding_group(where, size)), planned=True)
