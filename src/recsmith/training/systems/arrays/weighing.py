"""Decides whether the members of an array are trained together, from the predicted step of one of them."""

from collections.abc import Callable
from typing import Any

import torch

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.clusters import cluster_to_raw
from recsmith.clusters.files import cluster_from_raw
from recsmith.files import decode, spell_out
from recsmith.prediction.job_step import JobStep
from recsmith.training.job.preparing import predicted_step, prepare
from recsmith.training.run import Run
from recsmith.training.sources.protocol import BatchSource
from recsmith.training.systems.arrays.gains import AloneStep, ArrayGain, predicted_gain
from recsmith.training.systems.arrays.members import members_of
from recsmith.training.systems.arrays.model import unsharded_array

StepMaker = Callable[[Run, int], AloneStep | None]
RANK_0 = "rank 0's step"


def weighed(
    run: Run, source: BatchSource, ranks: int, device: torch.device, step_by: StepMaker
) -> tuple[ArrayGain, list[str]]:
    """The predicted gain of training the members of a run's array together, and lines that report it.

    Args:
        run: the run, with an array.
        source: its data.
        ranks: number of ranks.
        device: on which ranks train.
        step_by: predicts the step of a run, or has another process do so.

    Raises what predicting the step, building the models and LayerMemory.plan raise.
    """
    assert run.array is not None
    limit = run.array.memory_bytes
    alone = None if device.type == "cuda" else step_by(next(iter(members_of(run).values())), ranks)
    gain = predicted_gain(run, source.schema, alone)
    if limit is None:
        return gain, [gain.line()]
    schedule = unsharded_array(run, source).schedule(ranks, device) if gain.together else None
    if schedule is not None:
        gain = predicted_gain(run, source.schema, alone, again=schedule.again_share)
        if gain.together:
            return gain, [gain.line(), schedule.line(limit)]
    return gain, [gain.line(), "array.layer_memory limits no member that is trained in turn, since it keeps all"]


def step_here(run: Run, ranks: int) -> AloneStep | None:
    """The step of a run as its dry run predicts it."""
    made = prepare(run, ranks)
    step = predicted_step(made)
    return None if step is None else AloneStep(step, made.plan.cluster)


def step_by_rank_0(run: Run, ranks: int) -> AloneStep | None:
    """The step of a run, predicted by rank 0 for all ranks."""

    def make() -> dict[str, Any]:
        found = step_here(run, ranks)
        return {} if found is None else {"step": spell_out(found.step), "cluster": cluster_to_raw(found.cluster)}

    sent = from_rank_0(make)
    if not sent:
        return None
    return AloneStep(decode(JobStep, sent["step"], RANK_0), cluster_from_raw(sent["cluster"], RANK_0))
