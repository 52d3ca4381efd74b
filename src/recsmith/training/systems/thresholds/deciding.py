"""Whether a share of the gradients crosses ranks, where a run leaves that open, and lines that say why."""

from dataclasses import replace
from typing import Any

from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.systems.thresholds.settings import AUTO_SHARE, Thresholded
from recsmith.units import format_time


def decided(comms: object, plan: Plan, numbers: int) -> tuple[Any, list[str]]:
    """What a run's comms are under a plan, and lines that say why, where they leave it to us (dense: auto).

    numbers: of the gradients that cross ranks.
    """
    made: Any = collectives_of(comms)
    if not isinstance(made, Thresholded) or made.dense is None:
        return comms, []
    if made.dense != "auto" and made.dense * numbers < 1:
        raise UsageError(
            f"comms.dense is {made.dense:g}, which is less than one of the {numbers:,} numbers whose gradients cross; "
            f"give {1 / max(numbers, 1):.2g} or more, or leave it out"
        )
    settled = replace(made, dense=AUTO_SHARE) if made.dense == "auto" else made
    before, after, work = settled.step_seconds(plan.cluster, numbers)
    told = (
        f"gradients of {numbers:,} dense numbers: {format_time(before)} of a step on the plan's links, "
        f"{format_time(after + work)} where {settled.dense:.2%} of them cross, choosing them included"
    )
    if settled.warm_up is not None:
        told += (
            f", after {settled.warm_steps:,} steps or more of a warm-up, in which all cross at first and fewer as the "
            "loss levels off"
        )
    if made.dense != "auto" or after + work < before:
        return _named(settled), [told]
    why = f"{told}; so comms.dense, which is auto, sends all of them"
    return (made.columns if made.pooled is None else _named(replace(made, dense=None))), [why]


def _named(comms: Thresholded) -> dict[str, Any]:
    """As a run names it."""
    return {"name": "thresholded", **encode(comms)}
