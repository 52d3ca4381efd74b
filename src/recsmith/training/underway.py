"""A rank's training while it is under way: what it consists of, how far it is, and what is done beside the steps."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recsmith._process import proc_bytes
from recsmith.data import Dataset, Position
from recsmith.files import Raw, decode, encode
from recsmith.plans import Plan
from recsmith.training.agreement import Agreement
from recsmith.training.checkpoints import Checkpoints, Saved
from recsmith.training.datasets import open_data
from recsmith.training.evaluating import score
from recsmith.training.export import MODEL, export
from recsmith.training.run import Run
from recsmith.training.scores import Scores
from recsmith.training.sharded import ShardedJob, rank_device
from recsmith.training.tables.features import Features
from recsmith.training.telling import Diary, StepTimes


@dataclass
class Reached:
    """How far training is."""

    step: int = 0
    position: Position | None = None
    scores: Scores | None = None
    saved: int = 0  # step of the newest checkpoint
    corrupt: int = 0  # samples that this rank has left out since the job started
    sent_bytes: int = 0  # that a rank gives to collectives in a step: the most of any rank, in the first usual one


@dataclass(frozen=True)
class Underway:
    """All that a rank's training consists of; only `reached` changes."""

    run: Run
    plan: Plan
    dataset: Dataset
    features: Features
    job: ShardedJob
    agreement: Agreement
    checkpoints: Checkpoints
    diary: Diary
    reached: Reached

    @property
    def output(self) -> Path:
        """The run's folder."""
        return Path(self.run.output)

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole run, where the number of samples is known."""
        run, known = self.run, self.dataset.num_samples
        if run.steps is not None or known is None:
            return run.steps
        ranks = dist.get_world_size()
        return run.data.batch_sizes(ranks).steps(known, run.data.epochs, ranks)

    @property
    def batch_size(self) -> int:
        """Samples of this rank in the largest step."""
        return self.run.data.local_batch_size(dist.get_world_size())


def reached_by(saved: Saved | None) -> Reached:
    """How far a checkpoint is."""
    if saved is None:
        return Reached()
    progress = saved.progress
    position = progress["position"]
    return Reached(
        step=progress["step"],
        saved=progress["step"],
        position=None if position is None else decode(Position, position, str(saved.folder)),
        scores=None if progress["scores"] is None else decode(Scores, progress["scores"], str(saved.folder)),
    )


def save(training: Underway) -> None:
    """Save the state; where the disk refuses it, say so and train on."""
    begun, reached, diary = time.perf_counter(), training.reached, training.diary
    progress = {
        "step": reached.step,
        "ranks": dist.get_world_size(),
        "position": None if reached.position is None else encode(reached.position),
        "scores": None if reached.scores is None else encode(reached.scores),
    }
    problem = training.checkpoints.save(training.job, training.run, training.plan, progress)
    seconds = time.perf_counter() - begun
    diary.write("checkpoint", {"step": reached.step, "seconds": seconds, **({"problem": problem} if problem else {})})
    reached.saved = reached.saved if problem else reached.step
    if problem:
        diary.say({"note": f"no checkpoint of step {reached.step:,}: {problem}; training goes on, older ones stay"})


def tell_progress(training: Underway, times: StepTimes, total: int | None) -> None:
    """Scores and times since the last line, for the log and for people."""
    reached, diary = training.reached, training.diary
    steps, asked = times.steps, times.samples * dist.get_world_size()
    seconds, parts = times.take()
    assert reached.scores is not None
    corrupt = asked - reached.scores.samples
    words = {
        "step": reached.step,
        **encode(reached.scores),
        **({"corrupt": corrupt} if corrupt else {}),
        "samples_per_s": reached.scores.samples / seconds,
        "step_s": seconds / max(steps, 1),
        **{f"{part}_s": spent for part, spent in parts.items()},
    }
    diary.write("train", words)
    left = None if total is None else (total - reached.step) * seconds / max(steps, 1)
    told = {name: words[name] for name in ("step", "samples_per_s", "step_s")}
    diary.say({**told, "steps": total, "scores": encode(reached.scores), "parts_s": parts, "left_s": left})


def evaluate_underway(training: Underway) -> Scores:
    """Scores on data.test."""
    dataset = open_data(training.run.data.test, "data.test")
    scores = score(training.job, dataset, training.features, training.batch_size)
    training.diary.write("test", {"step": training.reached.step, **encode(scores)})
    training.diary.say({"note": f"test, step {training.reached.step:,}: {scores_words(scores)}"})
    return scores


def scores_words(scores: Scores) -> str:
    """Scores in a line."""
    return (
        f"log loss {scores.logloss:.5f}, NE {scores.ne:.4f}, AUC {scores.auc:.5f}, calibration "
        f"{scores.calibration:.4f} of {scores.samples:,} samples"
    )


def finish(training: Underway, *, ended: bool) -> Raw:
    """A last checkpoint, scores and the exported model; of a job that a signal ended, which has saved already, none."""
    run, reached, diary = training.run, training.reached, training.diary
    if run.checkpoint is not None and not ended and reached.step > reached.saved:
        save(training)
    problem = training.checkpoints.finish()
    if problem:
        diary.say({"note": f"the last checkpoint failed: {problem}"})
    corrupt = _over_ranks(reached.corrupt, dist.ReduceOp.SUM)
    result: Raw = {
        "step": reached.step, "complete": not ended, "sent_bytes": reached.sent_bytes, "peak_bytes": peak_bytes(),
        "corrupt": corrupt,
    }  # fmt: skip
    if corrupt:
        diary.say({"note": f"{corrupt:,} corrupt samples were left out; `recsmith data check` says which"})
    if ended:
        kept = f"saved after step {reached.step:,}; the same command goes on from there"
        lost = f"ended after step {reached.step:,} with nothing saved, since the run has no checkpoint"
        diary.say({"note": f"asked to end: {lost if run.checkpoint is None else kept}"})
        return result
    if run.data.test is not None:
        result["test"] = encode(evaluate_underway(training))
    folder = training.output / MODEL
    export(training.job, run, training.dataset.schema, folder, {"step": reached.step, "test": result.get("test")})
    diary.say({"note": f"trained {reached.step:,} steps; the model is in '{folder}'"})
    return result


def peak_bytes() -> int:
    """The most memory that a rank has held: of its GPU, or resident; the most of any rank."""
    on_gpu = torch.cuda.is_available()
    mine = torch.cuda.max_memory_allocated() if on_gpu else proc_bytes("self/status", "VmHWM")
    return _over_ranks(mine, dist.ReduceOp.MAX)


def _over_ranks(number: int, how: Any) -> int:
    """The sum, or the most, of every rank's number."""
    found = torch.tensor(number, dtype=torch.int64, device=rank_device())
    dist.all_reduce(found, how)
    return int(found)
