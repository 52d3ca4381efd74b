"""What storing tables smaller brings, in words."""

from collections.abc import Sequence

from recsmith.embeddings import CompressionRule
from recsmith.embeddings.compression import METHODS_OF
from recsmith.embeddings.workloads import Compressed
from recsmith.planning import Result
from recsmith.units import format_size, format_time
from recsmith.workloads import Workload

SHOWN = ("method", "tables", "above_rows", "factor", "temperature", "operation")  # fields of a rule, for a run


def compression_lines(before: Workload, made: Compressed) -> list[str]:
    """Tables, parameters and bytes before and after, and the rules for a run."""
    after = made.workload
    return [
        f"tables    {len(made.stored)} of {len(before.tables)} stored otherwise, {len(after.tables)} physical ones",
        f"numbers   {made.parameters_before:,} -> {made.parameters_after:,}, {made.factor:.2f} times fewer"
        + (f" ({made.dense:,} of them in projections)" if made.dense else ""),
        f"weights   {format_size(before.weight_bytes)} -> {format_size(after.weight_bytes)}",
        f"in a run  model: {{compression: [{', '.join(map(_rule, made.rules))}]}}",
    ]


def planned_lines(results: Sequence[Result]) -> list[str]:
    """Step, bound and memory of the tables as they are, and smaller."""
    lines = [f"{'':10}{'step':>12}{'bound':>12}{'most memory':>14}{'of all devices':>16}"]
    for name, result in zip(("as is", "smaller"), results, strict=True):
        cost, bound = result.plan.cost, result.plan.bound.value_s
        memory = [device.hbm_bytes for device in cost.per_device]
        lines.append(
            f"{name:10}{format_time(cost.total_s):>12}{'none' if bound is None else format_time(bound):>12}"
            f"{format_size(max(memory)):>14}{format_size(sum(memory)):>16}"
        )
    return lines


def _rule(rule: CompressionRule) -> str:
    method = rule.method
    kept = {name: getattr(rule, name) for name in SHOWN if method in METHODS_OF.get(name, (method,))}
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in kept.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f'"{value}"' if value == "*" else str(value)
