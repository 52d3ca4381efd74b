"""Predicted number and duration of the second-order steps of a whole run; without torch.

DANCE doubles its samples regardless of the data. The samples of progressive L-BFGS grow with their noise, so the number
of its steps is between two counts: if samples grow in each step as far as allowed, and if they never grow.

W ranks
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from recsmith._types import record
from recsmith.training.seams.predicting import RunFacts
from recsmith.training.systems.second_order.cost import passes_step, settings_of, step_work
from recsmith.units import counted, format_time

if TYPE_CHECKING:
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.run.run import Run


@record
class StageBatches:
    """Batches of a rank in a step. new: batches read. kept: batches that it passes over, including the new ones."""

    new: int
    kept: int


def batches_of_run(run: "Run", source: Any, ranks: int) -> int | None:
    """Batches of a rank in a whole run that ends with its data; None if unknown, or if `steps` ends the run."""
    return None if run.steps is not None else source.steps(run.data.batch_sizes(ranks), ranks)


def whole_runs(run: "Run", batches: int | None, ranks: int) -> list[list[StageBatches]]:
    """The steps of a run, for the fewest and the most steps that it can have; empty if the data's size is unknown."""
    if batches is None and run.steps is None:
        return []
    name, words = settings_of(run.pipeline)
    batch = run.data.local_batch_size(ranks)
    first, most = step_work(run.pipeline, batch, ranks).batches, words["most"]
    if name == "dance":
        made = _of_dance(words, first, batch * ranks, batches)
        return [list(islice(made, run.steps))]
    return [list(islice(_growing(first, growth, most, batches), run.steps)) for growth in (words["growth"], 1.0)]


def whole_line(run: "Run", facts: RunFacts) -> str:
    """A line on how many steps the run has and how long all of them take; '' if unknown."""
    found = whole_runs(run, facts.batches, facts.ranks)
    if not found:
        return ""
    name, epochs = run.step_named[0], run.data.epochs
    made = f"{counted(epochs, 'epoch')} {'makes' if epochs == 1 else 'make'}"
    whose = "the run has" if run.steps is not None else made
    largest = (
        max(each.kept for stages in found for each in stages) * run.data.local_batch_size(facts.ranks) * facts.ranks
    )
    at_most = "" if len(found) == 1 else "at most "
    line = f"pipeline {name}: {whose} {_between(found)}, the largest of {at_most}{largest:,} samples"
    if facts.step is None:
        return line
    times = sorted(sum(_seconds(run, facts, facts.step, each) for each in stages) for stages in found)
    several = format_time(times[0]) != format_time(times[-1])
    between = f"{format_time(times[0])} to {format_time(times[-1])}" if several else format_time(times[0])
    return f"{line}; all of them take about {between}"


def rare_line(run: "Run", batches: int | None, ranks: int) -> str:
    """A line if a run has too few steps to log scores or save a checkpoint before its end; '' if it has enough."""
    found = whole_runs(run, batches, ranks)
    if not found:
        return ""
    keys = {"metrics.every": run.metrics.every} | (
        {} if run.checkpoint is None else {"checkpoint.every": run.checkpoint.every}
    )
    rare = {key: every for key, every in keys.items() if every > len(found[0])}
    if not rare:
        return ""
    lacks = {"metrics.every": "no scores are logged", "checkpoint.every": "no checkpoint is saved"}
    what, lacking = (" and ".join(each) for each in ([f"{key} is {every:,}" for key, every in rare.items()],
                                                     [lacks[key] for key in rare]))  # fmt: skip
    perhaps = "perhaps " if min(rare.values()) <= len(found[-1]) else ""
    fewer = " and ".join(f"{key}: 1" for key in rare)
    return f"{what}, and the run has {_between(found)}: {perhaps}{lacking} before its end; write {fewer}"


def _between(found: list[list[StageBatches]]) -> str:
    fewest, most = len(found[0]), counted(len(found[-1]), "step")
    return f"{fewest:,} to {most}" if fewest < len(found[-1]) else most


def _of_dance(words: Any, first: int, samples: int, batches: int | None) -> Iterator[StageBatches]:
    """Yield the stages, with batches as DanceStep takes them. samples: of all ranks in a batch."""
    kept, left = 0, math.inf if batches is None else batches
    while left > 0:
        share = words["growth"] - 1 if kept < words["most"] else 0.5
        wanted = max(1, math.ceil(round(kept * samples * share) / samples)) if kept else first
        new = int(min(wanted, words["most"], left))
        kept, left = min(kept + new, words["most"]), left - new
        yield StageBatches(new=new, kept=kept)


def _growing(first: int, growth: float, most: int, batches: int | None) -> Iterator[StageBatches]:
    """Yield steps whose samples grow by a factor from each to the next."""
    size, left = first, math.inf if batches is None else batches
    while left > 0:
        new = int(min(size, left))
        yield StageBatches(new=new, kept=new)
        size, left = min(most, math.ceil(size * growth)), left - new


def _seconds(run: "Run", facts: RunFacts, step: "JobStep", stage: StageBatches) -> float:
    work = step_work(run.pipeline, facts.plan.workload.batch_size, facts.ranks)
    return passes_step(run.pipeline, step, new=stage.new, kept=stage.kept, passes=work.usual).step_s
