"""Whether to send a share of gradients if a run says `auto`, and what is predicted of a share."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import gain_of, pays, said_of
from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.systems.thresholds.sent import kept_of
from recsmith.training.systems.thresholds.settings import AUTO_SHARE, CPU_S_PER_STEP, GAP_BYTES, Thresholded
from recsmith.units import format_time
from recsmith.workloads.data_types import ELEMENT_BYTES

ALONE = (
    "comms: thresholded has no effect here, since one rank trains and nothing crosses: it trains as without; give the "
    "run ranks: 2 or more"
)
# Measured by `python benchmarks/thresholding.py warm_up` and `auc` (docs/thresholding.md): by share of gradients,
# points of AUC by which the first 50 steps and the next 100 are behind; and the cost of sending fewer bytes of pooled
# embeddings.
BEHIND = {0.02: (1.1, 0.2), 0.005: (2.7, 0.6)}
POOLED_COST = (
    "quality: 2, 4, 8 and 20 times fewer bytes of pooled embeddings cost 0.06, 0.53, 1.67 and 3.74 points of AUC, and "
    "up to twice as many where one is served with all columns (five seeds on generated clicks; docs/thresholding.md)"
)


def decided(
    comms: object, plan: Plan, numbers: int, steps: int | None = None, step_gain: Callable[[Any], float] | None = None
) -> tuple[Any, list[str]]:
    """The comms of a run under a plan, and lines that say why, and what they cost in quality.

    numbers: of the gradients that cross ranks. steps: of the run, or None if unknown. step_gain: returns the share of a
    step that given comms save. If it is None, steps are not predicted, and the seconds of gradients are compared.
    """
    made: Any = collectives_of(comms)
    if not isinstance(made, Thresholded):
        return comms, []
    if plan.cluster.world_size == 1:
        return comms, [ALONE]
    pooled = [] if made.pooled is None else [*_columns(made, plan), POOLED_COST]
    if made.dense is None:
        return comms, pooled
    if made.dense != "auto" and made.dense * numbers < 1:
        raise UsageError(
            f"comms.dense is {made.dense:g}, which is less than one of the {numbers:,} numbers whose gradients cross; "
            f"give {1 / max(numbers, 1):.2g} or more, or leave it out"
        )
    settled = replace(made, dense=AUTO_SHARE) if made.dense == "auto" else made
    before, after, work = settled.step_seconds(plan.cluster, numbers)
    share = f"{settled.dense:.2%}"
    calls = f", of which {format_time(CPU_S_PER_STEP)} are calls, however few the numbers"
    text = (
        f"gradients of {numbers:,} dense numbers: {format_time(before)} of a step on the plan's links; where {share} "
        f"of them cross {format_time(after + work)}: {format_time(after)} on the links and {format_time(work)} to "
        f"choose and sum them{calls if plan.cluster.device.kind == 'cpu' else ''}"
    )
    gain = settled.gain_s(plan.cluster, numbers)
    if made.dense == "auto":
        saved = gain_of(before, after + work) if step_gain is None else step_gain(_named(settled))
        if not pays(saved):
            said = said_of(saved, "their time" if step_gain is None else NAMED["step"])
            why = f"{text}, which {said}; so comms.dense, which is auto, sends all of them"
            return (made.columns if made.pooled is None else _named(replace(made, dense=None))), [why, *pooled]
    auto = f"comms.dense, which is auto, sends {share}, and " if made.dense == "auto" else ""
    text += f"; so {auto}each step gets {changed_by(gain)}"
    if gain <= 0:
        text += ", and dense: auto would send all"
    return _named(settled), [text, *_early(settled, steps), *pooled]


def _columns(made: Thresholded, plan: Plan) -> list[str]:
    """The number of columns that a share amounts to on the ranks of a plan, and their share of the bytes."""
    tables, placed = {each.name: each for each in plan.workload.tables}, {each.table: each for each in plan.placements}
    widths = Counter[tuple[str, int]]()
    for shard in plan.shards():
        table, kind = tables[shard.table], placed[shard.table].sharding_type
        if table.pooled and kind != "data_parallel":  # every rank has a copy of these
            widths[kind, shard.rank] += (shard.columns[1] - shard.columns[0]) * len(table.features)
    if not widths:
        return []
    kept = [(kept_of(width, made.pooled or 1.0), width) for width in widths.values()]
    columns, of = (sum(each) for each in zip(*kept, strict=True))
    placed = (True, made.gradients == "largest")  # forward and backward
    sent = sum(made.message_bytes(width, placed=each) for width in widths.values() for each in placed)
    return [
        f"pooled embeddings: {columns:,} of {of:,} columns cross, since {made.pooled:g} of a rank's are rounded up to "
        f"whole ones: {sent / (2 * ELEMENT_BYTES['fp32'] * of):.1%} of all bytes, places included; the time to choose "
        "them is in no price"
    ]


def changed_by(gain_s: float) -> str:
    """How much shorter or longer a step gets, as text."""
    return f"{format_time(abs(gain_s))} {'shorter' if gain_s > 0 else 'longer'}"


def _early(settled: Thresholded, steps: int | None) -> list[str]:
    """What a share costs in quality in the first steps, or what a warm-up sends then."""
    share = settled.dense
    if share in (None, "auto"):
        return []
    if not settled.saves_places:
        return [
            f"comms.dense is {share:g}: so many values with their places are longer than all values, so messages hold "
            f"all, and choosing saves no bytes; give {_most(settled):.2f} or less, or null, which sends all gradients "
            "as any job does"
        ]
    near = min(BEHIND, key=lambda each: abs(math.log(each / share)))
    first, next_ = BEHIND[near]
    nearest = "" if share == near else ", the nearest share that was measured"
    measured = "five seeds on MovieLens; docs/thresholding.md"
    if settled.warm_up is None:
        return [
            f"quality: where {near:.1%} of gradients crossed{nearest}, steps 1 to 50 were {first} points of AUC "
            f"behind, steps 51 to 150 {next_}, and four epochs ended level ({measured}); comms.warm_up: loss brings "
            "these points back"
        ]
    text = (
        f"quality: all gradients cross in a warm-up of {settled.warm_steps:,} steps or more, and fewer as the loss "
        f"levels off, so that no AUC was lost that showed ({measured})"
    )
    if steps is not None and steps <= settled.warm_steps:
        text += f"; this run has {steps:,} steps, so the warm-up fills it and saves little or nothing"
    return [text]


def _most(settled: Thresholded) -> float:
    """The largest share, in hundredths, whose values and places take fewer bytes than all values."""
    return math.ceil(100 * settled.value_bytes / (settled.value_bytes + GAP_BYTES) - 1) / 100


def _named(comms: Thresholded) -> dict[str, Any]:
    """The settings as a run names them."""
    return {"name": "thresholded", **encode(comms)}
