"""Plans, their prices, and what differs between two of them: as text for people, and as plain data."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith._types import record
from recsmith.analyses.hot_rows import row_blocks_of
from recsmith.analyses.step_memory import step_memory
from recsmith.analyses.towers import imbalance
from recsmith.costs import DEFAULT_COST_MODEL
from recsmith.costs.best import kernels_of
from recsmith.costs.collectives import synchronisation_of
from recsmith.costs.protocol import parts_of, rule_of
from recsmith.costs.published import PublishedError, error_of
from recsmith.files import Raw, encode
from recsmith.planning import Result
from recsmith.planning.stashing import exposed_copies_s, stash_of
from recsmith.plans import (
    PARTS,
    DeviceCost,
    Placement,
    Plan,
    PlanDiff,
    StepCost,
    describe_kernel,
    inexact_tables,
    plan_to_raw,
    wide_tables,
)
from recsmith.plans.diff import Change
from recsmith.problems.cached_lookups import CachedTable, cached_tables_of, hit_share
from recsmith.problems.drawn import QUANTILE
from recsmith.problems.plain_reserve import kept_estimate
from recsmith.problems.space import space_words
from recsmith.reports.dynamic_tables import dynamic_words
from recsmith.reports.layout import Grid, add_first, grid, line
from recsmith.reports.step_memory import stash_words
from recsmith.sharding import DEVICE_KERNELS, KEY_VALUE, NOTED_ON_CUDA
from recsmith.units import counted, format_gap, format_size, format_time

RESULT_SCHEMA = "recsmith/result/1"
MOST_DEVICES = 16  # more ranks than this, which is two hosts of eight, are summed up by the busiest and the idlest
TABLE_WISE, COLUMN_WISE = "table_wise", "column_wise"  # tables that column_wise does not split lie as under table_wise
SHOWN = 6  # rows of the busiest ranks, and of the idlest; fewer lines than MOST_DEVICES in all
MOST_CHANGES = 40  # rows: about a screen; the tables that move most come first
FULL_BATCH = f"the fullest of {round(1 / (1 - QUANTILE)):,} batches"
MOST_NAMED = 8  # ranks, and widths, of a placement: a row stays on one line


def plan_report(plan: Plan, run: str | None = None) -> RenderableType:
    """What a plan does, costs and weighs, with the bound beside the cost and the part that dominates it.

    run: the search in words, if there was one.
    """
    lines = [
        line("plan", tables_words(plan)),
        line("cluster", plan.cluster.describe()),
        *reserve_line(plan),
        line(
            "step",
            f"{with_copies_words(plan, plan.cost.step_s)} (cost model {model_words(plan.cost_model, plan)}, predicted)",
        ),
        *error_line(error_of(plan)),
        line("slowest", slowest_words(slowest_of(plan.cost, plan.cost_model))),
        line("bound", bound_words(plan)),
    ]
    remarks = (
        ("towers", towers_words(plan)), ("sync", sync_words(plan)), ("rows", sequences_words(plan)),
        ("memory", drawn_words(plan)), ("search", run),
        ("stash", rest_words(plan)), ("dynamic", dynamic_words(plan)), (beneath_label(plan), beneath_words(plan)),
        ("note", inexact_words(plan)), ("note", wide_text(plan)), *(("note", text) for text in hot_rows_words(plan)),
    )  # fmt: skip
    lines += [line(label, text) for label, text in remarks if text]
    lines.append(line("digest", plan.digest[:16]))
    return Group(*lines, device_grid(plan.cost))


def rest_words(plan: Plan) -> str | None:
    """What rests in host memory while dense layers work, or that nothing has to; None where nobody asked."""
    rests = stash_of(plan)
    if rests is None and "stash" in plan.constraints and not plan.cluster.fully_sharded:
        return "nothing rests in host memory, for tables and activations fit beside each other"
    return rests and stash_words(rests, plan)


def with_copies_words(plan: Plan, step_s: float) -> str:
    """A plan's step with the copies that dense layers do not hide, as one sum; step_s: without these."""
    exposed = exposed_copies_s(plan)
    if not exposed:
        return format_time(step_s)
    return (
        f"{format_time(step_s + exposed)}: {format_time(step_s)} and up to {format_time(exposed)} of copies of tables "
        "that rest"
    )


def reserve_line(plan: Plan) -> list[line]:
    """What is kept free of tables by an estimate; none where somebody stated it."""
    found = kept_estimate(plan.workload, plan.cluster)
    return [line("reserve", str(found))] if found else []


def error_line(found: PublishedError | None) -> list[line]:
    """The line that stands below a predicted step."""
    return [] if found is None else [line("error", str(found))]


def towers_words(plan: Plan) -> str | None:
    """How many tables each tower has, and how equally its hosts work; None where the plan has no towers."""
    if not plan.towers:
        return None
    counts = ", ".join(f"{len(tower)}" for tower in plan.towers[:MOST_NAMED])
    more = ", ..." if len(plan.towers) > MOST_NAMED else ""
    return f"{len(plan.towers)}, of {counts}{more} tables; the busiest host is {imbalance(plan):.1%} above the mean"


def sync_words(plan: Plan) -> str | None:
    """What the replicas of a sharding group synchronise, and what it adds to a step; None without replicas."""
    sync = synchronisation_of(plan)
    if sync is None:
        return None
    counted = "not counted by cost model torchrec" if plan.cost_model == "torchrec" else "in bwd comm"
    return (
        f"{format_size(sync.size)} on the rank with most, {format_time(sync.seconds)} of a step, {counted}; "
        "ranks are those of one sharding group"
    )


def sequences_words(plan: Plan) -> str | None:
    """What rows of sequence tables take under any plan, and how equal ids are looked up; None if nothing."""
    if plan.cost.sequences_s == 0:
        return None
    tables = counted(sum(not table.pooled for table in plan.workload.tables), "sequence table")
    once = "each rank looks its equal ids up once (index_dedup: on)"
    how = once if plan.workload.index_dedup == "on" else "equal ids are looked up one by one (index_dedup: off)"
    beside = format_time(plan.cost.sequences_s)
    return f"{beside} of every rank's step go to rows of {tables} under any plan; {how}"


def is_beneath(placement: Placement) -> bool:
    """Whether a table's weights are outside device memory."""
    return placement.compute_kernel not in DEVICE_KERNELS


def beneath_label(plan: Plan) -> str:
    """Where tables outside device memory are: 'host' or 'disk'."""
    return "disk" if any(each.compute_kernel == KEY_VALUE.name for each in plan.placements) else "host"


def beneath_words(plan: Plan) -> str | None:
    """What lives outside device memory, by kernel and share that is cached on the device; None where nothing does.

    Of cached tables, the share of lookups that find their row in the cache, as the access profiles let it expect.
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
    """The share of the lookups of cached tables that find their row in the cache; '' without such tables."""
    if not cached:
        return ""
    share = hit_share(plan.workload, cached, plan.cluster.world_size)
    return f"; {share:.1%} of their lookups hit a cache, predicted"


def inexact_words(plan: Plan) -> str | None:
    """Which tables train differently from the unsharded model, and why; None where none does."""
    tables = inexact_tables(plan)
    if not tables:
        return None
    count = f"{len(tables)} tables are" if len(tables) > 1 else f"table {tables[0]} is"
    return (
        f"{count} split by columns under {plan.workload.optimizer}: each shard keeps row statistics of its own, "
        "so training differs from the unsharded model; --keep-exact forbids it"
    )


def wide_text(plan: Plan) -> str | None:
    """Which tables have pieces so wide that not all of FBGEMM's CUDA kernels take them; None where none has."""
    tables = wide_tables(plan)
    if not tables:
        return None
    count = f"{len(tables)} tables have" if len(tables) > 1 else f"table {tables[0]} has"
    return (
        f"{count} pieces of more than {NOTED_ON_CUDA:,} columns, for which releases of FBGEMM returned zeros "
        "(meta-pytorch/torchrec#3673): check yours, or limit `widths` in constraints"
    )


def hot_rows_words(plan: Plan) -> list[str]:
    """Where hot rows of tables that are split by rows are known or taken to lie, in sentences; none without such."""
    split, made = row_blocks_of(plan), list[str]()
    assumed = [each for each in split if each.known == "scattered"]
    if assumed:
        how = "as stated" if all(each.stated for each in assumed) else "assumed"
        count = "for " + counted(len(assumed), "table") + " split by rows"
        made.append(
            f"hot rows scattered ({how}, {count}): equally busy blocks, as of hashed ids; count them (observe, "
            "`recsmith data workload`), or state `hot_rows: in_front` for ids by frequency"
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
    """Which batches the memory of tables split by rows has room for; None without such, or in TorchRec's accounting."""
    split = sum(each.kind.blocks(plan.cluster) > 1 for each in plan.placements)
    if not split or plan.constraints.get("memory", "real") != "real":
        return None
    kept = f"; {format_size(plan.cluster.reserve_bytes)} of reserve beside" if plan.cluster.reserve_bytes else ""
    return f"room for ids, outputs and temporaries of {counted(split, 'table')} split by rows as in {FULL_BATCH}{kept}"


def tables_words(plan: Plan) -> str:
    """How many tables lie how on how many devices, in words."""
    types = ", ".join(f"{count} {how}" for how, count in Counter(map(_type_words, plan.placements)).most_common())
    tables, weights = counted(len(plan.placements), "table"), format_size(plan.workload.weight_bytes)
    group = " of a sharding group" if plan.cluster.replication else ""
    return f"{tables}, {weights} of weights on {counted(plan.cluster.world_size, 'device')}{group}: {types}"


def _type_words(placement: Placement) -> str:
    """How a table lies: whole, as table_wise is and column_wise without a split, or by which type it is split."""
    if placement.sharding_type == COLUMN_WISE:
        return "split by columns" if placement.widths else "whole"
    return "whole" if placement.sharding_type == TABLE_WISE else placement.sharding_type


def bound_words(plan: Plan) -> str:
    """What is proved of a plan's step, and in a second line for which plans."""
    bound, least_s = plan.bound, plan.bound.of_step(plan.cost)
    if not least_s:
        return f"none ({bound.kind})"
    gap = "the plan lies outside this space" if plan.gap is None else f"at most {format_gap(plan.gap)} above the best"
    if exposed_copies_s(plan):
        gap = f"{gap}, copies of tables that rest counted in neither"
    return f"{format_time(least_s)} proven under this cost model, {gap}\nvalid for: {space_words(bound.space)}"


def model_words(cost_model: str, plan: Plan) -> str:
    """A cost model by name; of the mixed one also which prices the kernels of a plan's device and optimizer."""
    of_kernels = kernel_model(cost_model, plan)
    return cost_model if of_kernels == cost_model else f"{cost_model}, here {of_kernels}"


def kernel_model(cost_model: str, plan: Plan) -> str:
    """The cost model that prices the kernels of a plan: of the mixed one, that of the plan's device and optimizer."""
    return (
        kernels_of(plan.cluster.device, *plan.workload.optimizers) if cost_model == DEFAULT_COST_MODEL else cost_model
    )


def overfull_phase_words(plan: Plan) -> str | None:
    """Which phase of a plan's step finds no room though all tables do, where dense layers are known; None if all do."""
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


def overfull_words(cost: StepCost) -> str | None:
    """Which ranks need more memory than there is, None where none does."""
    if not cost.overfull:
        return None
    first, others = cost.overfull[0], len(cost.overfull) - 1
    more = f" and {others} more" if others else ""
    return (
        f"rank {first.rank}{more} would need more memory than there is: {format_size(first.hbm_bytes)} where tables "
        f"may take {format_size(first.hbm_capacity_bytes)}; plan again for this cluster, or keep less free (--reserve)"
    )


@record
class Slowest:
    """What binds a step: the slowest rank of its longest phase.

    step_share: of the step, which the phase takes; None where the step has one phase.
    part: of the step, which takes most of the rank's time in that phase; part_share: how much of it.
    over_mean: how much longer the rank takes than the mean rank.
    """

    rank: int
    step_share: float | None
    part: str
    part_share: float
    over_mean: float


def slowest_of(cost: StepCost, cost_model: str) -> Slowest:
    """The slowest rank of the longest phase; terminal, page and report say the same of it."""
    parts, rule = parts_of(cost), rule_of(cost, cost_model)
    seconds = rule.phase_seconds(parts)  # (F, W)
    phase = int(seconds.max(axis=1).argmax())
    rank = int(seconds[phase].argmax())
    whole, mean = float(seconds[phase, rank]), float(seconds[phase].mean())
    column = max(rule.phases[phase], key=lambda column: float(parts[rank, column]))
    return Slowest(
        rank=rank, step_share=whole / cost.step_s if rule.several_phases and cost.step_s else None,
        part=PARTS[column], part_share=float(parts[rank, column]) / whole if whole else 0.0,
        over_mean=whole / mean - 1 if mean else 0.0,
    )  # fmt: skip


def slowest_words(slowest: Slowest) -> str:
    """The slowest rank in a sentence."""
    of_step = "" if slowest.step_share is None else f"for {slowest.step_share:.0%} of the step: "
    mostly = f"mostly {part_words(slowest.part)} ({slowest.part_share:.0%})"
    return f"{of_step}rank {slowest.rank}, {mostly}; {slowest.over_mean:.1%} over the mean rank"


def part_words(part: str) -> str:
    """A part of a step in words: `backward compute` of backward_compute_s."""
    return part.removesuffix("_s").replace("_", " ")


def device_grid(cost: StepCost) -> Grid:
    """Seconds and memory per device; of many devices the busiest and the idlest."""
    names = ("rank", "fwd compute", "bwd compute", "fwd comm", "bwd comm", "wait", "memory", "capacity", "used")
    made = grid(right=names, optional=("capacity", "wait", "memory"))
    devices = list(cost.per_device)
    if len(devices) <= MOST_DEVICES:
        for device in devices:
            made.add_row(*_device_row(device))
        return made
    devices.sort(key=lambda device: (-device.busy_s, device.rank))
    for device in devices[:SHOWN]:
        made.add_row(*_device_row(device))
    made.add_row(f"… {len(devices) - 2 * SHOWN} more")
    for device in devices[-SHOWN:]:
        made.add_row(*_device_row(device))
    return made


def _device_row(device: DeviceCost) -> Sequence[str]:
    times = (device.forward_compute_s, device.backward_compute_s, device.forward_comm_s, device.backward_comm_s)
    return (
        str(device.rank),
        *(format_time(seconds) for seconds in (*times, device.wait_s)),
        format_size(device.hbm_bytes),
        format_size(device.hbm_capacity_bytes),
        f"{device.hbm_bytes / device.hbm_capacity_bytes:.0%}",
    )


def result_to_raw(result: Result) -> Raw:
    """Plain data of a result: schema recsmith/result/1."""
    return {
        "schema": RESULT_SCHEMA,
        "elapsed_s": result.elapsed_s,
        "iterations": result.iterations,
        "truncated": result.truncated,
        **({"members": list(result.members)} if result.members else {}),
        **({"left_out": list(result.left_out)} if result.left_out else {}),
        **price_to_raw(result.plan),
        "plan": plan_to_raw(result.plan),
    }


def price_to_raw(plan: Plan) -> Raw:
    """Cost, bound and gap of a plan, and where a learned cost model extrapolates."""
    return {
        "cost_model": plan.cost_model,
        "cost": encode(plan.cost),
        "bound": encode(plan.bound) | {"value_s": plan.bound.value_s},
        "gap": plan.gap,
        **({"extrapolated": plan.extrapolated} if plan.extrapolated else {}),
        "published_error": encode(error_of(plan)),
    }


def diff_report(change: PlanDiff, before: str, after: str) -> RenderableType:
    """Which tables two plans place differently, what must move, and what the step costs in each.

    before, after: how the plans are called, such as their files.
    """
    ratio = change.after_s / change.before_s - 1 if change.before_s else 0.0
    lines = [
        *(line("note", f"{reason}; the two steps do not compare") for reason in change.other_problem[:1]),
        *(line("", reason) for reason in change.other_problem[1:]),
        line("before", f"{before}: {format_time(change.before_s)}"),
        line("after", f"{after}: {format_time(change.after_s)} ({ratio:+.2%})"),
        line("tables", f"{len(change.changes)} differ, {change.unchanged} are placed alike"),
        line("moves", f"{format_size(change.moved_bytes)} of weights to other devices"),
    ]
    if not change.changes:
        return Group(*lines)
    made = grid(left=("table", "before", "after"), right=("moves",))
    ordered = sorted(change.changes, key=lambda item: (-item.moved_bytes, item.table))
    add_first(made, [_change_row(item) for item in ordered], MOST_CHANGES)
    return Group(*lines, made)


def _change_row(item: Change) -> Sequence[str]:
    return item.table, placement_words(item.before), placement_words(item.after), format_size(item.moved_bytes)


def placement_words(placement: Placement | None) -> str:
    """Where a table is: sharding type, the kernel if it is outside device memory, the first ranks, and widths."""
    if placement is None:
        return "-"
    more = " …" if len(placement.ranks) > MOST_NAMED else ""
    ranks = ", ".join(str(rank) for rank in placement.ranks[:MOST_NAMED]) + more
    widths = f" widths {'+'.join(map(str, placement.widths[:MOST_NAMED]))}" if placement.widths else ""
    kernel = f" {describe_kernel(placement.compute_kernel, placement.cache)}" if is_beneath(placement) else ""
    return f"{placement.sharding_type}{kernel} on {ranks}{widths}"


def diff_to_raw(change: PlanDiff) -> Raw:
    """Plain data of a difference between plans."""
    return encode(change)
