"""Explanations of plans: what binds each phase of a step, or all about one table; as text, and as plain data."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from recsmith.analyses.explain import Explanation, PartShare, Phase
from recsmith.files import Raw, encode
from recsmith.reports.layout import add_first, grid, line
from recsmith.reports.plans import part_words
from recsmith.reports.table_accounts import account_report
from recsmith.units import counted, format_time

EXPLANATION_SCHEMA = "recsmith/explanation/1"
MOST_TABLES = 8  # rows of a phase: the dearest tables; two phases fit a screen


def explanation_report(explanation: Explanation) -> RenderableType:
    """What binds each phase of the step; or all about one table."""
    plan = explanation.plan
    lines = [
        line(
            "plan", f"{counted(len(plan.placements), 'table')} on {plan.cluster.describe()}, digest {plan.digest[:16]}"
        ),
        line("step", _step_words(explanation)),
    ]
    if explanation.account is not None:
        return Group(*lines, *account_report(explanation.account))
    return Group(
        *lines, *(each for i, phase in enumerate(explanation.phases) for each in _phase_report(phase, i, explanation))
    )


def _step_words(explanation: Explanation) -> str:
    bound = explanation.plan.bound.value_s if explanation.cost_model == explanation.plan.cost_model else None
    proven = f"; {format_time(bound)} proven as the least" if bound else ""
    return f"{format_time(explanation.total_s)} (cost model {explanation.cost_model}, predicted{proven})"


def _phase_report(phase: Phase, number: int, explanation: Explanation) -> Iterator[RenderableType]:
    """The slowest rank, its parts, and its dearest tables."""
    several = len(explanation.phases) > 1
    part_of = f", {phase.seconds / explanation.total_s:.0%} of the step" if several and explanation.total_s else ""
    over = f"{phase.seconds / phase.mean_s - 1:.1%} above the mean rank" if phase.mean_s else "as all ranks"
    parts = " + ".join(part_words(each.part) for each in phase.parts)
    yield Text()
    yield line(f"phase {number + 1}" if several else "", f"{parts}{part_of}")
    yield line("slowest", f"rank {phase.rank}: {format_time(phase.seconds)}, {over} ({format_time(phase.mean_s)})")
    for part in sorted(phase.parts, key=lambda part: -part.seconds):
        yield line("", _share_words(part, phase))
    made = grid(left=("table", "sharding"), right=("without it", ""))
    add_first(made, _table_rows(phase), MOST_TABLES)
    yield made


def _share_words(part: PartShare, phase: Phase) -> str:
    fixed = [
        f"{format_time(seconds)} {what}"
        for seconds, what in ((part.launch_s, "launches"), (part.latency_s, "latency"))
        if seconds
    ]
    share = f"{part.seconds / phase.seconds:.0%}" if phase.seconds else "-"
    words = f"{share:>4} {part_words(part.part)}, {format_time(part.seconds)}"
    return f"{words} (of it {' and '.join(fixed)})" if fixed else words


def _table_rows(phase: Phase) -> list[tuple[str, ...]]:
    """What the phase's slowest rank would save without each table, the dearest first; tables that cost nothing not."""
    rows: list[tuple[str, ...]] = []
    for share in phase.tables:
        if share.seconds > 0:
            ratio = f"{-share.seconds / phase.seconds:+.1%}" if phase.seconds else ""
            rows.append((share.table, share.sharding_type, f"-{format_time(share.seconds)}", ratio))
    return rows


def explanation_to_raw(explanation: Explanation) -> Raw:
    """Plain data of an explanation: schema recsmith/explanation/1. Bound and gap are null under another cost model."""
    plan = explanation.plan
    same = explanation.cost_model == plan.cost_model
    return {
        "schema": EXPLANATION_SCHEMA,
        "digest": plan.digest,
        "cost_model": explanation.cost_model,
        "total_s": explanation.total_s,
        "bound_s": plan.bound.value_s if same else None,
        "gap": plan.gap if same else None,
        "phases": [encode(phase) for phase in explanation.phases],
        "account": None if explanation.account is None else encode(explanation.account),
    }
