"""Between two periods, a job scores the next ones, calls watchers, and asks the update how to learn the next one."""

import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from recsmith.files import Raw, encode
from recsmith.scoring.scores import scores_text
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.evaluating import score
from recsmith.training.job.job import TrainingJob
from recsmith.training.sources import with_distinct
from recsmith.training.step_clock import STEPS
from recsmith.training.systems.periods.source import PeriodSource
from recsmith.training.watchers import Watchers
from recsmith.training.watchers.protocol import SeenPeriod


def stretches(
    job: TrainingJob, batches: Generator[TrainingBatch], watchers: Watchers
) -> Generator[Iterator[TrainingBatch]]:
    """Yield the remaining batches period by period; each period is scored before its batches are yielded.

    batches: the remaining batches as read without an update; they are closed and not used.
    """
    assert isinstance(job.source, PeriodSource)
    batches.close()  # periods are read one by one instead
    update: Any = job.attached["update"].update  # type: ignore[attr-defined]
    first, begun = job.source.within(job.progress.position)
    job.log.forget(lambda line: _comes_again(line, job.progress.step, first, begun))
    for period in range(first, job.source.periods):
        if not begun:
            score_ahead(job, job.source, period, watchers)
        cpu_s, seconds = time.process_time(), time.perf_counter()
        weights = update.weights(job, period)
        yield _batches_of(job, job.source, period, weights, begun)
        spent = {"cpu_s": time.process_time() - cpu_s, "seconds": time.perf_counter() - seconds}
        job.log.write("trained", {"step": job.progress.step, "period": period, **spent, "weights": list(weights)})
        begun = False


def _comes_again(line: Raw, step: int, first: int, begun: bool) -> bool:
    """Whether a log line was written between two periods, after the checkpoint of this step, and will come again.

    first: the period in which the job continues. begun: whether this period was scored before.
    """
    period, ahead = line.get("period"), line.get("ahead", 1)
    if line.get("step") != step or not isinstance(period, int) or not isinstance(ahead, int):
        return False
    before = period - ahead + 1  # the period whose training the scores preceded
    return {"trained": period >= first, "period": before > first - (not begun)}.get(line.get("event", ""), False)


def _batches_of(
    job: TrainingJob, source: PeriodSource, period: int, weights: tuple[float, ...], begun: bool
) -> Iterator[TrainingBatch]:
    """The remaining batches of a period on this rank."""
    made = with_distinct(source, job.features.groups)
    assert isinstance(made, PeriodSource)
    left = replace(made, only=period, weights=weights)
    return job.batches_of(left, job.progress.position if begun else None)


def score_ahead(job: TrainingJob, source: PeriodSource, period: int, watchers: Watchers) -> None:
    """Score the periods that data.periods.score_ahead asks for; `period` is the next, not yet trained on."""
    assert job.run.data.periods is not None
    for ahead in job.run.data.periods.score_ahead:
        scored = period + ahead - 1
        if scored >= source.periods:
            continue
        with STEPS.standing():
            scores = score(job.sharded, source.at(scored), job.features, job.batch_size, job.run)
            values = {"step": job.progress.step, "period": scored, "ahead": ahead}
            job.log.write("period", {**values, **encode(scores)})
            if ahead == 1:
                job.log.say({"note": f"period {scored}, before it is trained: {scores_text(scores)}"})
            watchers.look_at_period(SeenPeriod(scored, ahead, scores, job))
