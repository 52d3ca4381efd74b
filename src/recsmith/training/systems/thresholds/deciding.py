"""Whether a share of the gradients crosses ranks, where a run leaves that open, and what is told of a share before."""

from dataclasses import replace
from typing import Any

from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.systems.thresholds.settings import AUTO_SHARE, Thresholded
from recsmith.units import format_time

ALONE = (
    "comms: thresholded has no effect here, since one rank trains and nothing crosses: it trains as without; give the "
    "run ranks: 2 or more"
)
# What `python benchmarks/thresholding.py warm_up` and `auc` measured (docs/thresholding.md): by share of the gradients,
# points of AUC that the first 50 steps and the next 100 are behind; and what fewer bytes of pooled embeddings cost.
BEHIND = {0.02: (1.1, 0.2), 0.005: (2.7, 0.6)}
POOLED_COST = (
    "quality: 2, 4, 8 and 20 times fewer bytes of pooled embeddings cost 0.06, 0.53, 1.67 and 3.74 points of AUC, and "
    "up to twice as many where one is served with all columns (five seeds on generated clicks; docs/thresholding.md)"
)


def decided(comms: object, plan: Plan, numbers: int, steps: int | None = None) -> tuple[Any, list[str]]:
    """What a run's comms are under a plan, and lines that say why, and what they cost in quality.

    numbers: of the gradients that cross ranks. steps: of the run, where they are known.
    """
    made: Any = collectives_of(comms)
    if not isinstance(made, Thresholded):
        return comms, []
    if plan.cluster.world_size == 1:
        return comms, [ALONE]
    pooled = [] if made.pooled is None else [POOLED_COST]
    if made.dense is None:
        return comms, pooled
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
    if made.dense == "auto" and after + work >= before:
        why = f"{told}; so comms.dense, which is auto, sends all of them"
        return (made.columns if made.pooled is None else _named(replace(made, dense=None))), [why, *pooled]
    if after + work >= before:
        told += f"; so each step gets longer by {format_time(after + work - before)}, and dense: auto would send all"
    return _named(settled), [told, *_early(settled, steps), *pooled]


def _early(settled: Thresholded, steps: int | None) -> list[str]:
    """What a share of the gradients costs in the first steps, or what a warm-up has cross there."""
    share = settled.dense
    if share in (None, "auto") or share >= 1:
        return []
    near = max((each for each in BEHIND if each <= share), default=min(BEHIND))
    first, next_ = BEHIND[near]
    measured = "five seeds on MovieLens; docs/thresholding.md"
    if settled.warm_up is None:
        return [
            f"quality: where {near:.1%} of gradients crossed, steps 1 to 50 were {first} points of AUC behind, steps "
            f"51 to 150 {next_}, and four epochs ended level ({measured}); comms.warm_up: loss brings these points back"
        ]
    told = (
        f"quality: all gradients cross in a warm-up of {settled.warm_steps:,} steps or more, and fewer as the loss "
        f"levels off, so that no AUC was lost that showed ({measured})"
    )
    if steps is not None and steps <= settled.warm_steps:
        told += f"; this run has {steps:,} steps, so the warm-up fills it and saves little or nothing"
    return [told]


def _named(comms: Thresholded) -> dict[str, Any]:
    """As a run names it."""
    return {"name": "thresholded", **encode(comms)}
