"""The one loop, from top to bottom: batch -> step -> metrics -> watchers -> checkpoint.

Every rank of a job that rank.py has prepared runs `train_prepared`. What happens in a step is in `train_steps`; what
happens between steps is in job/. One of steps/ makes a step, and all ranks carry out requests of watchers/ at the same
step.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace

import torch
import torch.distributed as dist

from recsmith.errors import RecSmithError
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.scoring.predictions import Window
from recsmith.scoring.scores import Scores
from recsmith.training.batches import TrainingBatch, pinned
from recsmith.training.job.agreement import END, FAILURES, Ending
from recsmith.training.job.evaluating import scored_labels
from recsmith.training.job.job import Progress, TrainingJob, evaluate_now, log_progress, log_wish, save
from recsmith.training.job.log import StepTimes, time_forward, timed
from recsmith.training.job.rank_times import BytesSent, RankTimes
from recsmith.training.seams.registry import first_of, systems
from recsmith.training.step_clock import STEPS
from recsmith.training.steps import step_of
from recsmith.training.steps.protocol import StepOutcome, TrainingStep
from recsmith.training.stores import fetched_ahead
from recsmith.training.watchers import Watchers
from recsmith.training.watchers.protocol import Seen, SeenScores, Wish

AGREED_EVERY = 8  # steps between agreements; trade-off: more steps cost less, but delay signals and wishes
ANEW = ("replan", "roll_back")  # wishes after which a job is prepared again
SAVES = {END, "save", "stop"}  # requests that are carried out after the state is saved
ROLL_BACKS = 3  # most roll-backs to one checkpoint; more would repeat the same steps for ever


class TrainedModels:
    """What a job's steps train: its model. A system may train several models, each as an additional job.

    The loop calls these methods on every rank, in the same order, and counts the steps of `job`.
    """

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self._window = Window(job.sharded.device, scored_labels(job.run, job.source.schema))

    def took(self, outcome: StepOutcome) -> None:
        """Record a trained step: its predictions, and the progress of each model."""
        self._window.add(outcome.logits, outcome.labels, outcome.samples)

    def agree(self) -> None:
        """Let all ranks compare what they have seen, at intervals and after the last step; nothing for one model."""

    def tell(self, times: StepTimes, total: int | None) -> None:
        """Log scores and times since the last line of the log. total: steps of the whole run."""
        self.job.progress.scores = self._window.scores()
        log_progress(self.job, times, total)

    def evaluate(self) -> Scores | None:
        """Log and return scores on data.test; None for several models, which watchers do not check."""
        return evaluate_now(self.job)

    def save(self) -> None:
        """Save the state."""
        save(self.job)

    def plan_anew(self, wish: Wish) -> tuple[Plan | None, str]:
        """(another plan to continue under from the current state, or None if no other plan is better; the reason)."""
        raise NotImplementedError  # rank.py implements it: the loop imports nothing that plans

    def refreshed(self) -> None:
        """Forget the scores on data.test, because parts of the job were rebuilt."""
        self.job.progress.tested = None

    def poll(self) -> None:
        """Check, after each step, whether a checkpoint that is written in the background is complete."""
        self.job.checkpoints.poll()

    def finish(self, *, ended: bool) -> Raw:
        """Save, score and export at the end; returns the run's result. ended: by a signal, so no model is exported."""
        raise NotImplementedError  # rank.py implements it: the loop imports nothing that exports


def train_prepared(
    models: TrainedModels, batches: Generator[TrainingBatch], watchers: Watchers, ending: Ending,
    after: Wish | None = None,
) -> Raw | Wish:  # fmt: skip
    """Train the models of a prepared job on its batches, and return the run's result.

    after: the wish for which it was prepared. If the job must be prepared again, the wish for that is returned instead.
    """
    job = models.job
    with closing(job.log), closing(batches):
        watchers.watch(job)
        if after is not None:
            log_wish(job, after, f"training goes on after step {job.progress.step:,}, plan {job.plan.digest[:12]}")
        left_by, times = None, StepTimes()
        time_forward(job.sharded.model, times)
        watchers.times = RankTimes(job)
        parted = first_of(each.stretches(job, batches, watchers) for each in systems())
        with closing(_at_once(batches) if parted is None else parted) as left:
            for stretch in left:
                left_by = train_steps(models, stretch, watchers, ending, times)
                if left_by is not None or not _steps_left(job):
                    break
        if isinstance(left_by, Wish) and left_by.what in ANEW:
            return left_by
        if left_by != END or job.progress.step == job.total_steps:  # after a signal: only if nothing is left to train
            watchers.look_at_end(job)
        _agreed_at_the_end(job, watchers)
        if times.steps and job.progress.scores is None and left_by != END:  # fewer steps than metrics.every
            models.tell(times, job.total_steps)
        job.progress.step_s, rank_times = watchers.times.usual_s(), watchers.times.tell(job)
        return {**models.finish(ended=left_by == END), **rank_times}


def _at_once(batches: Iterator[TrainingBatch]) -> Generator[Iterator[TrainingBatch]]:
    """All batches in one part."""
    yield batches


def _steps_left(job: TrainingJob) -> bool:
    return job.run.steps is None or job.progress.step < job.run.steps


def train_steps(
    models: TrainedModels, batches: Iterator[TrainingBatch], watchers: Watchers, ending: Ending, times: StepTimes
) -> Wish | str | None:
    """Train until steps or batches are used up, or all ranks leave the loop because of a wish or a signal (END).

    times: times of the steps since the last line of the log, which may have begun in an earlier part of the batches.
    """
    job = models.job
    run, progress, device = job.run, job.progress, job.sharded.device
    step: TrainingStep = step_of(job.sharded, run.pipeline, lambda text: job.log.say({"note": text}))
    source = timed(fetched_ahead(pinned(batches, device), job.sharded.rows), times)
    usual_step = progress.step + 1 + step.batches_ahead
    left_by, total = None, job.total_steps
    while left_by is None and _steps_left(job):
        for each in job.attached.values():
            each.before_step(job)
        try:
            counting = not progress.sent_bytes and progress.step + 1 >= usual_step
            outcome = _counted(step, source, progress) if counting else step(source)
        except StopIteration:
            break
        progress.step, progress.position = progress.step + 1, outcome.places[-1].state
        times.steps, times.samples = times.steps + 1, times.samples + outcome.asked
        progress.corrupt += outcome.corrupt
        job.sharded.replicas.trained(progress.step)
        models.took(outcome)

        if outcome.said is not None:
            job.log.write("stage", {"step": progress.step, **outcome.said[0]})
            job.log.say({"note": f"step {progress.step:,}: {outcome.said[1]}"})

        watchers.look(Seen(progress.step, outcome, job, times.waited()))
        due, line = _is_due(job), progress.step % run.metrics.every == 0
        agree = due or outcome.ended or progress.step % AGREED_EVERY == 0
        if agree or line:
            models.agree()
        asked = _agreed(job, watchers, ending, due, now=outcome.ended) if agree else {}
        if "roll_back" in asked and (left_by := _back(job, watchers, asked.pop("roll_back"))):
            break

        if line:
            models.tell(times, total)
        every = run.metrics.evaluate_every
        if (every and progress.step % every == 0) or ("evaluate" in asked and run.data.test is not None):
            step.pause()
            if (scores := models.evaluate()) is not None:
                watchers.look_at_scores(SeenScores(progress.step, scores, job))
            step.resume()
        if due or (run.checkpoint is not None and SAVES & asked.keys()):
            models.save()
        if asked:
            left_by = _done(models, watchers, step, asked)
        models.poll()
    step.pause()
    models.agree()
    return left_by


def _is_due(job: TrainingJob) -> bool:
    """Whether a checkpoint is due after this step."""
    return job.run.checkpoint is not None and job.progress.step % job.run.checkpoint.every == 0


def _agreed(
    job: TrainingJob, watchers: Watchers, ending: Ending, due: bool, *, now: bool = False
) -> dict[str, Wish | None]:  # fmt: skip
    """What all ranks do at this step, each with its wish, or None for a signal; RecSmithError if a wish asks for that.

    due: whether a checkpoint is due. now: whether what is sent here must also be received here, on every rank.
    """
    agreement, mine = job.agreement, watchers.wishes
    heard = agreement.heard()  # what was sent the time before, so nobody waits
    saves = job.run.checkpoint is not None and (due or SAVES & heard)
    if saves:
        watchers.look_before_saving()
    agreement.tell({*mine, *([END] if ending.asked else [])} - (heard - {END}))
    # never save a state whose loss has not been checked
    if (saves or now or "replan" in heard) and not FAILURES.keys() & heard:
        heard |= agreement.heard()
    return _with_reasons(job, watchers, heard)


def _agreed_at_the_end(job: TrainingJob, watchers: Watchers) -> None:
    """RecSmithError if a watcher of some rank refuses what was trained; log the wishes that come too late."""
    job.agreement.heard()
    job.agreement.tell(watchers.wishes)
    for wish in _with_reasons(job, watchers, job.agreement.heard()).values():
        if wish is not None:
            log_wish(job, wish, "training is over")


def _with_reasons(job: TrainingJob, watchers: Watchers, heard: set[str]) -> dict[str, Wish | None]:
    """The wishes of all ranks, each with the reason of the first rank that has it, and this rank's plan."""
    wishes = heard - {END}
    made: dict[str, Wish | None] = {END: None} if END in heard else {}
    if not wishes:
        return made
    reasons = job.agreement.reasons({what: wish.because for what, wish in watchers.wishes.items()})
    for what, error in FAILURES.items():
        if what in wishes:
            log_wish(job, Wish(what, reasons[what]), "training ends with this error", say=False)  # type: ignore[arg-type]
            raise error(reasons[what])
    for what in sorted(wishes):
        mine = watchers.wishes.pop(what, None)
        made[what] = Wish(what, reasons[what], mine and mine.plan)  # type: ignore[arg-type]
    return made


def _done(
    models: TrainedModels, watchers: Watchers, step: TrainingStep, asked: dict[str, Wish | None]
) -> Wish | str | None:
    """Carry out the wishes other than saving and evaluating, and log that; returns why the loop is left, or None."""
    job = models.job
    saved = "saved" if job.progress.saved == job.progress.step else "the run has no checkpoint"
    left_by: Wish | str | None = END if END in asked else asked.get("stop")
    for what, wish in asked.items():
        if wish is None:
            continue
        if what == "replan" and left_by is None:
            plan, done = models.plan_anew(wish)
            if plan is not None:
                left_by = replace(wish, plan=plan)
                continue  # logged once the job is prepared again
        elif what == "stop":
            left_by, done = left_by or wish, "training ends"
        elif what == "refresh":
            with STEPS.standing():
                done = watchers.refresh(step, job.sharded.rows)
            models.refreshed()
        elif what == "evaluate":
            done = "evaluated" if job.run.data.test is not None else "the run names no data.test"
        else:
            done = saved if what == "save" else "training ends"
        log_wish(job, wish, done)
    return left_by


def _back(job: TrainingJob, watchers: Watchers, wish: Wish | None) -> Wish | None:
    """The wish to roll back to the newest checkpoint; None if there is none. RecSmithError after too many of them."""
    assert wish is not None
    step = job.progress.saved
    if not step:
        log_wish(job, wish, "there is no checkpoint to go back to; training goes on")
        return None
    watchers.rolled_back[step] += 1
    if watchers.rolled_back[step] > ROLL_BACKS:
        raise RecSmithError(
            f"training went back to step {step} {ROLL_BACKS} times, and again a watcher asks for it: {wish.because}; "
            "change what leads there, such as the learning rate, or leave the watcher out"
        )
    job.agreement.heard()
    watchers.wishes.clear()  # they belong to steps that are trained again
    if problem := job.checkpoints.finish():
        job.log.say({"note": f"the last checkpoint failed: {problem}"})
    return replace(wish, plan=job.plan)


def _counted(step: TrainingStep, batches: Iterator[TrainingBatch], progress: Progress) -> StepOutcome:
    """Train a step, and count the bytes that it gives to collectives: the largest number of any rank."""
    with BytesSent() as sent:
        outcome = step(batches)
    most = torch.tensor(sum(sent.bytes.values()), dtype=torch.int64, device=outcome.loss.device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    progress.sent_bytes = max(1, int(most))
    return outcome
