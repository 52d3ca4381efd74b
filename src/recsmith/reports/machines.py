"""What a machine of predictions was measured on, and how far its models are off, in lines."""

from recsmith.prediction.machine import MachineCard
from recsmith.prediction.overheads import ALL, WHAT
from recsmith.reports.layout import plain_grid
from recsmith.units import format_size, format_speed, format_time


def machine_lines(card: MachineCard) -> list[str]:
    """The scores of kernels, the curves of collectives, and the overheads of all operators."""
    kernels = [("kernels", "trained", "held out", "error", "roofline alone")]
    for kind in card.kernels:
        off = (f"{kind.error:.1%}", f"{kind.roofline_error:.1%}")
        kernels.append((kind.kind, f"{kind.trained:,}", f"{kind.held_out:,}", *off))
    curves = [("collectives", "ranks", "latency", "up to", "bandwidth", "error")]
    for each in card.curves:
        first = (format_time(each.latency_s), format_size(each.small), format_speed(each.bytes_per_s))
        curves.append((each.name, str(each.ranks), *first, f"{each.error:.1%}"))
    overheads = [("overheads", "mean", "spread", "seen")]
    for each in card.overheads.overheads:
        if each.operator == ALL:
            times = (format_time(each.mean_s), format_time(each.spread_s))
            overheads.append((f"{each.term} {WHAT[each.term]}", *times, f"{each.count:,}"))
    title = [f"{card.device}; {card.versions}", "errors are geometric means over held-out kernels and sizes"]
    return [*title, "", *plain_grid(kernels), "", *plain_grid(curves), "", *plain_grid(overheads)]
