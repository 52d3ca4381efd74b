"""One rank's training in progress: its parts, its progress, and what is done between steps."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from recsmith.files import Raw, encode
from recsmith.plans import Plan
from recsmith.scoring.scores import Scores, scores_text
from recsmith.training.batches import TrainingBatch, batches_here
from recsmith.training.job.agreement import Agreement, Wish
from recsmith.training.job.evaluating import score
from recsmith.training.job.log import RunLog, StepTimes
from recsmith.training.job.sharded import ShardedJob, rank_device
from recsmith.training.random_states import random_kept
from recsmith.training.run import Run
from recsmith.training.seams.in_jobs import Attached
from recsmith.training.seams.registry import systems
from recsmith.training.sources import BatchSource, open_data, total_steps
from recsmith.training.sources.protocol import State
from recsmith.training.step_clock import STEPS
from recsmith.training.tables.features import Features

if TYPE_CHECKING:
    from recsmith.training.job.checkpoints import Checkpoints

Keeps = Callable[[], Raw | None]


@dataclass
class Progress:
    """How far training is."""

    step: int = 0
    position: State | None = None  # state of the data's source
    scores: Scores | None = None
    begun: int = 0  # step after which this job began
    saved: int = 0  # step of the newest checkpoint
    kept: dict[str, Raw] = field(default_factory=dict[str, Raw])  # what parts of the job stored in that checkpoint
    corrupt: int = 0  # unreadable samples that this rank has skipped since the job started
    sent_bytes: int = 0  # given to collectives in the first usual step: the largest number of any rank
    told_s: float | None = None  # predicted seconds of a step; on rank 0
    own_s: tuple[float, ...] = ()  # seconds of the usual step by rank, without waiting for other ranks; at the end
    step_s: float | None = None  # seconds of this rank's usual step; at the end, if there were enough steps
    tested: tuple[int, Scores] | None = None  # (step, scores) of the last evaluation on data.test

    @property
    def test_now(self) -> Scores | None:
        """Scores on data.test of the current model; None if it was not scored since it changed."""
        return self.tested[1] if self.tested is not None and self.tested[0] == self.step else None


@dataclass(frozen=True)
class TrainingJob:
    """Everything that a rank's training consists of; only `progress` changes.

    attached: objects of systems in the job, by their keys in progress.json, or by keys of the run if they keep nothing
    there. keeps: by key of progress.json, a function that returns what a part of the job stores in a checkpoint now;
    None for nothing. `progress.kept` has what was stored in the checkpoint that training continues from.
    """

    run: Run
    plan: Plan
    source: BatchSource
    features: Features
    sharded: ShardedJob
    agreement: Agreement
    checkpoints: "Checkpoints"
    log: RunLog
    progress: Progress
    attached: dict[str, Attached] = field(default_factory=dict[str, Attached])
    keeps: dict[str, Keeps] = field(default_factory=dict[str, Keeps])

    @property
    def output(self) -> Path:
        """The run's folder."""
        return Path(self.run.output)

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole run: done and left on these ranks; None if the number of samples is unknown."""
        return total_steps(self.run, self.source, dist.get_world_size(), self.progress.step, self.progress.position)

    def batches_of(self, source: BatchSource, state: State | None = None) -> Iterator[TrainingBatch]:
        """This rank's batches of a source for the next steps. state: where they start; None: at the beginning."""
        return batches_here(self.run, source, self.features, step=self.progress.step, state=state)

    @property
    def batch_size(self) -> int:
        """Samples of this rank in the largest step."""
        return self.run.data.local_batch_size(dist.get_world_size())


def save(job: TrainingJob) -> None:
    """Save the state; if the disk refuses it, report that and train on."""
    begun, progress, log = time.perf_counter(), job.progress, job.log
    with STEPS.standing(), random_kept():
        job.sharded.replicas.meet()
        problem = job.checkpoints.save(job.sharded, job.run, job.plan, kept_progress(job))
    seconds, late = time.perf_counter() - begun, job.checkpoints.late_problem()
    wrong = {"problem": problem or late} if problem or late else {}
    log.write("checkpoint", {"step": progress.step, "seconds": seconds, **wrong})
    progress.saved = progress.saved if problem else progress.step
    if problem:
        log.say({"note": f"no checkpoint of step {progress.step:,}: {problem}; training goes on, older ones stay"})
    if late:
        log.say({"note": late})


def kept_progress(job: TrainingJob) -> Raw:
    """What a checkpoint stores about the progress of a job."""
    progress = job.progress
    return {
        "step": progress.step,
        "ranks": dist.get_world_size(),
        "position": progress.position,
        "scores": None if progress.scores is None else encode(progress.scores),
        **{key: kept for key, keeps in job.keeps.items() if (kept := keeps()) is not None},
    }


@dataclass(frozen=True)
class AmongOthers:
    """Progress of a job whose trainers each take a share of its batches and do not wait for each other.

    step: of the job. trained: batches of this trainer. batches: batches of all trainers. since: batches of all trainers
    since the line before. width: batches of a step. lag: steps by which the rows of the newest batch were outdated.
    """

    step: int
    trained: int
    batches: int
    since: int
    width: int
    lag: int


def log_progress(job: TrainingJob, times: StepTimes, total: int | None, among: AmongOthers | None = None) -> None:
    """Log scores and times since the last line, for files and for people. among: for asynchronous trainers."""
    progress, log = job.progress, job.log
    steps, asked = times.steps, over_ranks(times.samples, dist.ReduceOp.SUM)
    seconds, parts = times.take()
    assert progress.scores is not None
    corrupt = asked - progress.scores.samples
    of_systems = [system.line(job, max(steps, 1)) for system in systems()]
    facts = {name: fact for more, _ in of_systems for name, fact in more.items()}
    own, speed, reached, trained = {}, progress.scores.samples / seconds, progress.step, float(steps)
    if among is not None:  # times are of this trainer's batches; progress and speed are of all trainers
        own = {"own_batches": among.trained, "batches": among.batches, "lag": among.lag}
        speed, reached, trained = speed * among.since / max(steps, 1), among.step, among.since / among.width
    values = {
        "step": reached,
        **encode(progress.scores),
        **({"corrupt": corrupt} if corrupt else {}),
        "samples_per_s": speed,
        "step_s": seconds / max(steps, 1),
        **{f"{part}_s": spent for part, spent in parts.items()},
        **own,
        **facts,
    }
    log.write("train", values)
    left = None if total is None else max(total - reached, 0) * seconds / (trained or 1)
    shown = {**{name: values[name] for name in ("step", "samples_per_s", "step_s")}, **own, **facts}
    said = [words for _, words in of_systems if words]
    log.say(
        {**shown, "steps": total, "scores": encode(progress.scores), "parts_s": parts, "said": said, "left_s": left}
    )


def evaluate_now(job: TrainingJob, scores: Scores | None = None) -> Scores:
    """Log and return scores on data.test. scores: the scores, if they are known already."""
    progress = job.progress
    if scores is None:
        dataset = open_data(job.run.data.test, "data.test")
        scores = score(job.sharded, dataset, job.features, job.batch_size, job.run)
    write_once(job, "test", {"step": progress.step, **encode(scores)})
    job.log.say({"note": f"test, step {progress.step:,}: {scores_text(scores)}"})
    progress.tested = progress.step, scores
    return scores


def write_once(job: TrainingJob, event: str, values: Raw) -> None:
    """Write a line of log.jsonl for the current step, replacing one that was written before this job began."""
    if job.progress.step == job.progress.begun:
        job.log.forget(lambda line: (line.get("event"), line.get("step")) == (event, values["step"]))
    job.log.write(event, values)


def log_wish(job: TrainingJob, wish: Wish, done: str, *, say: bool = True) -> None:
    """Log what a watcher requested, why, and what was done. say: also show it on the terminal."""
    step = job.progress.step
    job.log.write("watcher", {"step": step, "what": wish.what, "because": wish.because, "done": done})
    job.log.show(step, f"watcher/{wish.what}", f"{wish.because}: {done}")
    if say:
        job.log.say({"note": f"step {step:,}: {wish.because} ({wish.what}): {done}"})


def over_ranks(number: int, how: Any) -> int:
    """The sum or maximum of every rank's number."""
    found = torch.tensor(number, dtype=torch.int64, device=rank_device())
    dist.all_reduce(found, how)
    return int(found)
