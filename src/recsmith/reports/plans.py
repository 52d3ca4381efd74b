"""Plans and their costs: as text for people, and as plain data."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith._types import record
from recsmith.costs import DEFAULT_COST_MODEL
from recsmith.costs.best import kernels_of
from recsmith.costs.protocol import parts_of, rule_of
from recsmith.costs.published import PublishedError, error_of
from recsmith.files import Raw, encode
from recsmith.planning import Result
from recsmith.planning.stashing import exposed_copies_s
from recsmith.plans import PARTS, DeviceCost, Placement, Plan, StepCost, plan_to_raw
from recsmith.problems.plain_reserve import kept_estimate
from recsmith.problems.space import space_words
from recsmith.reports.dynamic_tables import dynamic_words
from recsmith.reports.layout import Grid, grid, line
from recsmith.reports.plan_words import (
    beneath_label,
    beneath_words,
    drawn_words,
    hot_rows_words,
    inexact_words,
    rest_words,
    sequences_words,
    sync_words,
    towers_words,
    wide_text,
    with_copies_words,
)
from recsmith.units import counted, format_gap, format_size, format_time

RESULT_SCHEMA = "recsmith/result/1"
MOST_DEVICES = 16  # ranks listed one by one (two hosts of eight); of more, only the busiest and the idlest
TABLE_WISE, COLUMN_WISE = "table_wise", "column_wise"  # equal placements for tables that column_wise does not split
SHOWN = 6  # rows of the busiest ranks, and of the idlest: together fewer than MOST_DEVICES


def plan_report(plan: Plan, run: str | None = None) -> RenderableType:
    """A plan's placements, cost and memory, with the bound next to the cost and the part that dominates the cost.

    run: a description of the search, if there was one.
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


def reserve_line(plan: Plan) -> list[line]:
    """The estimated reserve as a line; none if the reserve was stated."""
    found = kept_estimate(plan.workload, plan.cluster)
    return [line("reserve", str(found))] if found else []


def error_line(found: PublishedError | None) -> list[line]:
    """The line on the prediction error, printed below a predicted step."""
    return [] if found is None else [line("error", str(found))]


def tables_words(plan: Plan) -> str:
    """How many tables are on how many devices, and how they are sharded, in words."""
    types = ", ".join(f"{count:,} {how}" for how, count in Counter(map(_type_words, plan.placements)).most_common())
    tables, weights = counted(len(plan.placements), "table"), format_size(plan.workload.weight_bytes)
    group = " of a sharding group" if plan.cluster.replication else ""
    return f"{tables}, {weights} of weights on {counted(plan.cluster.world_size, 'device')}{group}: {types}"


def _type_words(placement: Placement) -> str:
    """How a table is sharded: 'whole' for table_wise and column_wise without a split, else how it is split."""
    if placement.sharding_type == COLUMN_WISE:
        return "split by columns" if len(placement.widths) > 1 else "whole"
    return "whole" if placement.sharding_type == TABLE_WISE else placement.sharding_type


def bound_words(plan: Plan) -> str:
    """The proven bound of a plan's step and its gap; on a second line, the plans that the bound is valid for."""
    bound, least_s = plan.bound, plan.bound.of_step(plan.cost)
    if not least_s:
        return f"none ({bound.kind})"
    gap = "the plan lies outside this space" if plan.gap is None else f"at most {format_gap(plan.gap)} above the best"
    if exposed_copies_s(plan):
        gap = f"{gap}, copies of tables that rest counted in neither"
    return f"{format_time(least_s)} proven under this cost model, {gap}\nvalid for: {space_words(bound.space)}"


def model_words(cost_model: str, plan: Plan) -> str:
    """A cost model by name; for the mixed one, also the model that prices kernels on the plan's device."""
    of_kernels = kernel_model(cost_model, plan)
    return cost_model if of_kernels == cost_model else f"{cost_model}, here {of_kernels}"


def kernel_model(cost_model: str, plan: Plan) -> str:
    """The cost model that prices a plan's kernels; for the mixed one, it depends on device and optimizers."""
    return (
        kernels_of(plan.cluster.device, *plan.workload.optimizers) if cost_model == DEFAULT_COST_MODEL else cost_model
    )


@record
class Slowest:
    """The slowest rank of a step's longest phase: it sets the step time.

    step_share: the phase's share of the step; None if the step has only one phase.
    part: the part of the step that takes most of the rank's time in that phase; part_share: that part's share.
    over_mean: relative time of the rank over the mean rank's.
    """

    rank: int
    step_share: float | None
    part: str
    part_share: float
    over_mean: float


def slowest_of(cost: StepCost, cost_model: str) -> Slowest:
    """The slowest rank of the longest phase, as terminal, page and report all state it."""
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
    """A sentence on the slowest rank."""
    of_step = "" if slowest.step_share is None else f"for {slowest.step_share:.0%} of the step: "
    mostly = f"mostly {part_words(slowest.part)} ({slowest.part_share:.0%})"
    return f"{of_step}rank {slowest.rank}, {mostly}; {slowest.over_mean:.1%} over the mean rank"


def part_words(part: str) -> str:
    """A part of a step in words, such as `backward compute` for backward_compute_s."""
    return part.removesuffix("_s").replace("_", " ")


def device_grid(cost: StepCost) -> Grid:
    """Seconds and memory per device; with many devices, only the busiest and the idlest."""
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
    made.add_row(f"… {len(devices) - 2 * SHOWN:,} more")
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
    """A result as plain data, with schema recsmith/result/1."""
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
    """Cost, bound and gap of a plan as plain data, and where a learned cost model extrapolates."""
    return {
        "cost_model": plan.cost_model,
        "cost": encode(plan.cost),
        "bound": encode(plan.bound) | {"value_s": plan.bound.value_s},
        "gap": plan.gap,
        **({"extrapolated": plan.extrapolated} if plan.extrapolated else {}),
        "published_error": encode(error_of(plan)),
    }
