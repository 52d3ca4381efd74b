"""The differences between two plans: as text for people, and as plain data."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith.files import Raw, encode
from recsmith.plans import Placement, PlanDiff, describe_kernel
from recsmith.plans.diff import Change
from recsmith.reports.layout import add_first, grid, line
from recsmith.reports.plan_words import is_beneath
from recsmith.units import format_size, format_time

MOST_CHANGES = 40  # rows shown: about a screen, tables that move most bytes first
MOST_NAMED = 8  # ranks, and widths, that a placement lists, so that it fits on one line


def diff_report(change: PlanDiff, before: str, after: str) -> RenderableType:
    """Which tables two plans place differently, how many bytes must move, and the step time under each plan.

    before, after: names of the plans, such as their files.
    """
    ratio = change.after_s / change.before_s - 1 if change.before_s else 0.0
    lines = [
        *(line("note", f"{reason}; the two steps do not compare") for reason in change.other_problem[:1]),
        *(line("", reason) for reason in change.other_problem[1:]),
        line("before", f"{before}: {format_time(change.before_s)}"),
        line("after", f"{after}: {format_time(change.after_s)} ({ratio:+z.2%})"),
        line("tables", f"{len(change.changes):,} differ, {change.unchanged:,} are placed alike"),
        line("moves", f"{format_size(change.moved_bytes)} of weights to other devices"),
    ]
    if not change.changes:
        return Group(*lines)
    made = grid(left=("table", "before", "after"), right=("moves",))
    add_first(made, [_change_row(item) for item in change.largest_first], MOST_CHANGES)
    return Group(*lines, made)


def _change_row(item: Change) -> Sequence[str]:
    return item.table, placement_words(item.before), placement_words(item.after), format_size(item.moved_bytes)


def placement_words(placement: Placement | None) -> str:
    """A placement in words: sharding type, kernel if outside device memory, first ranks, and widths; '-' for None."""
    if placement is None:
        return "-"
    more = " …" if len(placement.ranks) > MOST_NAMED else ""
    ranks = ", ".join(str(rank) for rank in placement.ranks[:MOST_NAMED]) + more
    widths = f" widths {'+'.join(map(str, placement.widths[:MOST_NAMED]))}" if placement.widths else ""
    kernel = f" {describe_kernel(placement.compute_kernel, placement.cache)}" if is_beneath(placement) else ""
    return f"{placement.sharding_type}{kernel} on {ranks}{widths}"


def diff_to_raw(change: PlanDiff) -> Raw:
    """A difference between plans as plain data."""
    return encode(change)
