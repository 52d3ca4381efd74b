"""Plans, prices and differences as text for people."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from recsmith.plans import PARTS, DeviceCost, Plan, PlanDiff, StepCost, kernel_words
from recsmith.plans.diff import Change
from recsmith.plans.plan import Placement
from recsmith.sharding import HOST_KERNELS
from recsmith.units import format_gap, format_size, format_time
from recsmith.workloads.optimizers import OPTIMIZERS

MOST_DEVICES = 16  # more ranks than this are summed up by the busiest and the idlest
SHOWN = 6
MOST_CHANGES = 40


def show(renderable: RenderableType) -> None:
    """Print to standard output, names as they are; full lines when it is not a terminal."""
    words: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    console = Console(**words)
    if not console.is_terminal:
        console = Console(width=140, **words)
    with console.capture() as captured:
        console.print(renderable)
    click.echo(captured.get(), nl=False)  # rich itself would end the program when the reader goes away


def plan_report(plan: Plan, run: str | None = None) -> RenderableType:
    """What a plan does, costs and weighs, with the bound beside the cost and the term that dominates it."""
    lines = [
        _line("plan", _summary(plan)),
        _line("cluster", plan.cluster.describe()),
        _line(
            "step",
            f"{format_time(plan.cost.total_s)} (cost model {plan.cost_model}, predicted; {_dominant(plan.cost)})",
        ),
        _line("bound", _bound_words(plan)),
    ]
    if run:
        lines.append(_line("search", run))
    hosted = [placement for placement in plan.placements if _is_hosted(placement)]
    if hosted:
        lines.append(_line("host", _hosted_words(plan, hosted)))
    split = inexact_tables(plan)
    if split:
        lines.append(_line("note", _inexact_words(plan, split)))
    lines.append(_line("digest", plan.digest[:16]))
    return Group(*lines, device_grid(plan.cost))


def _is_hosted(placement: Placement) -> bool:
    return placement.compute_kernel in HOST_KERNELS


def _hosted_words(plan: Plan, hosted: Sequence[Placement]) -> str:
    """What lives in host memory, by kernel and share that is cached on the device."""
    weight = {table.name: table.weight_bytes for table in plan.workload.tables}
    counts = Counter(kernel_words(placement.compute_kernel, placement.cache) for placement in hosted)
    kernels = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    size = format_size(sum(weight[placement.table] for placement in hosted))
    return f"{len(hosted)} tables, {size} of weights in host memory: {kernels}"


def inexact_tables(plan: Plan) -> list[str]:
    """Tables that train differently from the unsharded model: split by columns under a row-wise optimizer."""
    if not OPTIMIZERS[plan.workload.optimizer].is_row_wise:
        return []
    return [placement.table for placement in plan.placements if len(placement.widths) > 1]


def _inexact_words(plan: Plan, tables: list[str]) -> str:
    count = f"{len(tables)} tables are" if len(tables) > 1 else f"table {tables[0]} is"
    return (
        f"{count} split by columns under {plan.workload.optimizer}: each shard keeps row statistics of its own, "
        "so training\n         differs from the unsharded model; --keep-exact forbids it"
    )


def _line(word: str, text: str) -> Text:
    return Text.assemble((f"{word:<9}", "bold"), text)


def _summary(plan: Plan) -> str:
    counts = Counter(placement.sharding_type for placement in plan.placements)
    types = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    weights = format_size(plan.workload.weight_bytes)
    return f"{len(plan.placements)} tables, {weights} of weights on {plan.cluster.world_size} devices: {types}"


def _bound_words(plan: Plan) -> str:
    bound = plan.bound
    if not bound.value_s:
        return f"none ({bound.kind})"
    gap = "the plan lies outside this space" if plan.gap is None else f"at most {format_gap(plan.gap)} above the best"
    return f"{format_time(bound.value_s)} proven, {gap}\n{'':<9}space: {bound.space}"


def _dominant(cost: StepCost) -> str:
    worst = max(cost.per_device, key=lambda device: (device.busy_s, -device.rank))
    part = max(PARTS, key=lambda name: getattr(worst, name))
    share = getattr(worst, part) / worst.busy_s if worst.busy_s else 0.0
    imbalance = cost.total_s / cost.mean_s - 1 if cost.mean_s else 0.0
    words = part.removesuffix("_s").replace("_", " ")
    return f"rank {worst.rank} decides: {share:.0%} {words}; {imbalance:.1%} over the mean"


def device_grid(cost: StepCost) -> Grid:
    """Seconds and memory per device; of many devices the busiest and the idlest."""
    grid = Grid(box=SIMPLE, pad_edge=False)
    for name in ("rank", "fwd compute", "bwd compute", "fwd comm", "bwd comm", "wait", "memory", "capacity", "used"):
        grid.add_column(name, justify="right")
    devices = list(cost.per_device)
    if len(devices) <= MOST_DEVICES:
        for device in devices:
            grid.add_row(*_device_row(device))
        return grid
    devices.sort(key=lambda device: (-device.busy_s, device.rank))
    for device in devices[:SHOWN]:
        grid.add_row(*_device_row(device))
    grid.add_row(f"… {len(devices) - 2 * SHOWN} more", *[""] * 8)
    for device in devices[-SHOWN:]:
        grid.add_row(*_device_row(device))
    return grid


def _device_row(device: DeviceCost) -> Sequence[str]:
    times = (device.forward_compute_s, device.backward_compute_s, device.forward_comm_s, device.backward_comm_s)
    return (
        str(device.rank),
        *(format_time(seconds) for seconds in (*times, device.wait_s)),
        format_size(device.hbm_bytes),
        format_size(device.hbm_capacity_bytes),
        f"{device.hbm_bytes / device.hbm_capacity_bytes:.0%}",
    )


def diff_report(change: PlanDiff, before: str, after: str) -> RenderableType:
    """Which tables two plans place differently, what must move, and what the step costs in each."""
    ratio = change.after_s / change.before_s - 1 if change.before_s else 0.0
    lines = [
        _line("before", f"{before}: {format_time(change.before_s)}"),
        _line("after", f"{after}: {format_time(change.after_s)} ({ratio:+.2%})"),
        _line("tables", f"{len(change.changes)} differ, {change.unchanged} are placed alike"),
        _line("moves", f"{format_size(change.moved_bytes)} of weights to other devices"),
    ]
    if not change.changes:
        return Group(*lines)
    grid = Grid(box=SIMPLE, pad_edge=False)
    for name in ("table", "before", "after"):
        grid.add_column(name)
    grid.add_column("moves", justify="right")
    ordered = sorted(change.changes, key=lambda item: (-item.moved_bytes, item.table))
    for item in ordered[:MOST_CHANGES]:
        grid.add_row(*_change_row(item))
    if len(ordered) > MOST_CHANGES:
        grid.add_row(f"… {len(ordered) - MOST_CHANGES} more", "", "", "")
    return Group(*lines, grid)


def _change_row(item: Change) -> Sequence[str]:
    return item.table, _placement_words(item.before), _placement_words(item.after), format_size(item.moved_bytes)


def _placement_words(placement: Placement | None) -> str:
    if placement is None:
        return "-"
    ranks = ", ".join(str(rank) for rank in placement.ranks[:8]) + (" …" if len(placement.ranks) > 8 else "")
    widths = f" widths {'+'.join(map(str, placement.widths[:8]))}" if placement.widths else ""
    kernel = f" {kernel_words(placement.compute_kernel, placement.cache)}" if _is_hosted(placement) else ""
    return f"{placement.sharding_type}{kernel} on {ranks}{widths}"
