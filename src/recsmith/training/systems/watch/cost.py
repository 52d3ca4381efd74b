"""Predicted seconds that a watch adds to a step, on the thread that trains. Imports no torch.

F features, B samples of a rank in a step
"""

import math
from dataclasses import replace

from recsmith.plans import Plan
from recsmith.streaming.column_sums import COUNTED
from recsmith.training.systems.watch.settings import WatchSettings
from recsmith.units import format_time

STEP_S = 1.0e-5  # seconds of any step: its times, and sample numbers
LOOK_S, LOOK_FEATURE_S = 2.9e-3, 2.4e-4  # seconds of a look: judging signals; ids and levels of a feature
SKETCH_S = 1.75e-4  # seconds of a feature in a look, if sketches are written
SUM_S, SUM_FEATURE_S, SUM_BAG_S = 8.0e-5, 1.0e-6, 2.0e-8  # seconds of a counted step, of a feature in it, of a bag


def watch_s(settings: WatchSettings, features: int, samples: int, ranks: int) -> float:
    """Average seconds per step in which a rank watches a job. samples: of a rank in a step.

    Measured in jobs of one rank (`python benchmarks/watching_costs.py looks`).
    """
    counted = min(settings.every, math.ceil(COUNTED / max(samples * ranks, 1)))
    sums = SUM_S + features * (SUM_FEATURE_S + SUM_BAG_S * samples)
    sketched = SKETCH_S if settings.sketch_every else 0.0
    look = LOOK_S + features * (LOOK_FEATURE_S + sketched)
    return STEP_S + (counted * sums + look) / settings.every


def watch_s_of(settings: WatchSettings, plan: Plan, ranks: int) -> float:
    """Average seconds per step in which a rank watches the job of a plan."""
    workload = plan.workload
    return watch_s(settings, len({each.name for table in workload.tables for each in table.features}),
                   workload.batch_size, ranks)  # fmt: skip


def cost_line(settings: WatchSettings, plan: Plan, ranks: int, step_s: float) -> str:
    """A line on the seconds of a watch, and on settings that would take less. step_s: seconds of a step without it."""
    taken = watch_s_of(settings, plan, ranks)
    less = {f"every: {2 * settings.every}": replace(settings, every=2 * settings.every)}
    if settings.sketch_every:
        less["sketch_every: 0"] = replace(settings, sketch_every=0)
    known = " and ".join(
        f"{name} would take {format_time(watch_s_of(each, plan, ranks))}" for name, each in less.items()
    )
    return f"watch: takes {format_time(taken)} of a step, {taken / step_s:.0%} of one without it; {known}"
