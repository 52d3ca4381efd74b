"""Training on one rank, from top to bottom: batch -> model -> loss -> backward -> optimizers -> metrics -> checkpoint.

Every rank of a job runs `train_on_rank`. What happens in a step stands in `_train`.
"""

import itertools
import math
import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from recsmith._process import proc_bytes
from recsmith.data import Batch, Dataset, Position
from recsmith.errors import RecSmithError
from recsmith.files import Raw, decode, encode
from recsmith.plans import Plan, save_plan
from recsmith.training.agreement import Agreement, Ending, heeding_sigterm
from recsmith.training.batches import Place, TrainingBatch, training_batches
from recsmith.training.broken_loss import save_batch
from recsmith.training.bytes_sent import BytesSent
from recsmith.training.checkpoints import Checkpoints, Saved
from recsmith.training.datasets import open_data
from recsmith.training.evaluating import score
from recsmith.training.exporting import MODEL, export
from recsmith.training.metrics import Window
from recsmith.training.models import Outcome, build_task, features_of, find_function
from recsmith.training.reading import run_from_raw, save_run
from recsmith.training.resharding import check_loadable
from recsmith.training.run import Checkpointing, Run
from recsmith.training.scores import Scores
from recsmith.training.sharded import ShardedJob, draw_weights, pipeline_of, rank_device, settle, shard
from recsmith.training.starting import agreed_plan, starting_words
from recsmith.training.telling import Diary, StepTimes, tell_pid

Watcher = Callable[[int, float, Batch], object]  # step, loss, samples of this rank; what a run's watchers are
CHECKPOINTS = "checkpoints"


@dataclass
class Reached:
    """How far training is."""

    step: int = 0
    position: Position | None = None
    scores: Scores | None = None
    saved: int = 0  # step of the newest checkpoint
    sent_bytes: int = 0  # that a rank gives to collectives in a step: the most of any rank, in the first one


def train_on_rank(run: Raw) -> Raw:
    """Train a run on this rank of a job, from its newest checkpoint if it has one; what came of it (JSON data)."""
    with heeding_sigterm() as ending:
        tell_pid()
        return _train_on_rank(run_from_raw(run, "the run"), ending)


def _train_on_rank(run: Run, ending: Ending) -> Raw:
    begun, rank, ranks = time.perf_counter(), dist.get_rank(), dist.get_world_size()
    output, agreement = Path(run.output), Agreement()
    dataset = open_data(run.data.train, "data.train")
    task = build_task(run.model, dataset.schema, run.seed)  # its tables on meta: they take no memory yet
    features = features_of(task)
    checkpoints = Checkpoints(output / CHECKPOINTS, run.checkpoint or Checkpointing(), agreement)
    saved = checkpoints.newest() if run.checkpoint else None
    plan = agreed_plan(run, task, dataset, _kept_plan(run, saved, ranks), _ranks_per_host())
    if saved is not None:
        check_loadable(saved.plan, plan)
    said = starting_words(run, task, plan, dataset)
    job = shard(run, plan, task, rank_device())
    reached = _reached(saved)

    source = training_batches(
        dataset, run.data, features, rank=rank, ranks=ranks, seed=run.seed, position=reached.position,
        endless=run.steps is not None,
    )  # fmt: skip
    first = next(source, None)
    if first is not None:
        settle(job, first)
        source = itertools.chain([first], source)
    if saved is None:
        draw_weights(job, run.seed)
        torch.manual_seed(run.seed * ranks + rank)  # of dropout and the like: every rank draws its own
    else:
        saved.load(job)
        job.optimizer.set_optimizer_step(reached.step)
        saved.restore_random()

    diary = Diary(output, rank, tensorboard=run.metrics.tensorboard, step=reached.step)
    if rank == 0:
        save_run(run, output / "run.json")
        save_plan(plan, output / "plan.json")
    for line in [*said, *([f"going on after step {reached.step:,} of '{saved.folder}'"] if saved else [])]:
        diary.say({"note": line})
    diary.write("start", {"step": reached.step, "seconds": time.perf_counter() - begun, "plan": plan.digest})
    ended = _train(run, plan, job, source, reached, checkpoints, agreement, ending, diary, dataset, features)
    return _finish(run, plan, job, dataset, reached, checkpoints, diary, features, ended=ended)


def _train(
    run: Run, plan: Plan, job: ShardedJob, source: Iterator[TrainingBatch], reached: Reached, checkpoints: Checkpoints,
    agreement: Agreement, ending: Ending, diary: Diary, dataset: Dataset, features: list[str],
) -> bool:  # fmt: skip
    """Train until steps or samples are used up, or a signal asks to end, which is True."""
    times, window = StepTimes(), Window()
    pipeline = pipeline_of(job)
    watchers: list[Watcher] = [find_function(name) for name in run.watchers]
    guard = LossGuard(job.device)
    batches = _timed(source, times)
    _time_forward(job, times)
    stop, total = False, _total_steps(run, dataset)
    while not stop and (run.steps is None or reached.step < run.steps):
        try:
            loss, logits, labels, place = _step(pipeline, batches, reached)
        except StopIteration:
            break
        reached.step, reached.position = reached.step + 1, place.position
        times.steps += 1
        window.add(logits, labels)
        for watch in watchers:
            watch(reached.step, float(loss), place.samples)

        stop, broken = agreement.heard()  # of the step before: nobody waits
        agreement.tell(stop=ending.asked, broken=guard.notices(reached.step, loss, place))
        saving = run.checkpoint is not None and (stop or reached.step % run.checkpoint.every == 0)
        if saving and not broken:  # never a state whose loss nobody has looked at
            asked, broken = agreement.heard()
            stop = stop or asked
        if broken:
            guard.refuse(Path(run.output))

        if reached.step % run.metrics.every == 0:
            reached.scores = window.scores()
            _tell_progress(diary, reached, times, total, run.data.local_batch_size(dist.get_world_size()))
        if run.metrics.evaluate_every and reached.step % run.metrics.evaluate_every == 0:
            _evaluate(run, job, reached, diary, features, pipeline)
        if saving:
            _save(checkpoints, job, run, plan, reached, diary)
        checkpoints.poll()
    if agreement.heard()[1]:
        guard.refuse(Path(run.output))
    return stop


def _step(pipeline: Any, batches: Iterator[TrainingBatch], reached: Reached) -> Outcome:
    """A step of the pipeline; of the first one the bytes that it sends are counted."""
    if reached.sent_bytes:
        return pipeline.progress(batches)
    with BytesSent() as sent:
        outcome = pipeline.progress(batches)
    counted = torch.tensor(sum(sent.bytes.values()), dtype=torch.int64, device=outcome[0].device)
    dist.all_reduce(counted, dist.ReduceOp.MAX)
    reached.sent_bytes = max(1, int(counted))
    return outcome


class LossGuard:
    """Notices a loss that is not finite: on a GPU a step late, so that no step waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self.late = device.type == "cuda"
        self._before: tuple[int, torch.Tensor, Place] | None = None
        self.culprit: tuple[int, Place] | None = None

    def notices(self, step: int, loss: torch.Tensor, place: Place) -> bool:
        """Whether the loss of this step (of the one before, on a GPU) is not finite."""
        looked_at = self._before if self.late else (step, loss, place)
        self._before = step, loss, place
        if looked_at is None or math.isfinite(float(looked_at[1])):
            return False
        self.culprit = looked_at[0], looked_at[2]
        return True

    def refuse(self, output: Path) -> None:
        """Save this rank's batch if it was the cause, and end training.

        Raises:
            RecSmithError: always.
        """
        if self.culprit is None:
            time.sleep(1.0)  # the rank that knows more speaks first
            raise RecSmithError("the loss of another rank is not finite")
        step, place = self.culprit
        file = output / f"broken-batch-step-{step}-rank-{dist.get_rank()}.npz"
        save_batch(place.samples, file)
        raise RecSmithError(
            f"the loss of step {step} is not finite; its batch is in '{file}', and checkpoints are from before it: "
            "lower optimizers.dense.learning_rate or optimizers.sparse.learning_rate, set "
            "optimizers.dense.clip_norm, or look at the batch"
        )


def _kept_plan(run: Run, saved: Saved | None, ranks: int) -> Plan | None:
    """The checkpoint's plan, where the run asks for no other and it is for as many ranks."""
    if saved is None or run.plan != "auto":
        return None
    plan = saved.plan
    return plan if plan.cluster.world_size == ranks else None


def _reached(saved: Saved | None) -> Reached:
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


def _save(checkpoints: Checkpoints, job: ShardedJob, run: Run, plan: Plan, reached: Reached, diary: Diary) -> None:
    """Save the state; where the disk refuses it, say so and train on."""
    begun = time.perf_counter()
    progress = {
        "step": reached.step,
        "ranks": dist.get_world_size(),
        "position": None if reached.position is None else encode(reached.position),
        "scores": None if reached.scores is None else encode(reached.scores),
    }
    problem = checkpoints.save(job, run, plan, progress)
    seconds = time.perf_counter() - begun
    diary.write("checkpoint", {"step": reached.step, "seconds": seconds, **({"problem": problem} if problem else {})})
    reached.saved = reached.saved if problem else reached.step
    if problem:
        diary.say({"note": f"no checkpoint of step {reached.step:,}: {problem}; training goes on, older ones stay"})


def _tell_progress(diary: Diary, reached: Reached, times: StepTimes, total: int | None, batch_size: int) -> None:
    steps = times.steps
    seconds, parts = times.take()
    assert reached.scores is not None
    words = {
        "step": reached.step,
        **encode(reached.scores),
        "samples_per_s": steps * batch_size * dist.get_world_size() / seconds,
        "step_s": seconds / max(steps, 1),
        **{f"{part}_s": spent for part, spent in parts.items()},
    }
    diary.write("train", words)
    left = None if total is None else (total - reached.step) * seconds / max(steps, 1)
    told = {name: words[name] for name in ("step", "samples_per_s", "step_s")}
    diary.say({**told, "steps": total, "scores": encode(reached.scores), "parts_s": parts, "left_s": left})


def _evaluate(run: Run, job: ShardedJob, reached: Reached, diary: Diary, features: list[str], pipeline: Any) -> Scores:
    """Scores on data.test; a pipeline that has rewritten the model's forward gives it back meanwhile."""
    if hasattr(pipeline, "detach"):
        pipeline.detach()
    dataset = open_data(run.data.test, "data.test")
    scores = score(job, dataset, features, run.data.local_batch_size(dist.get_world_size()))
    if hasattr(pipeline, "attach"):
        pipeline.attach()
    diary.write("test", {"step": reached.step, **encode(scores)})
    diary.say({"note": f"test, step {reached.step:,}: {scores_words(scores)}"})
    return scores


def scores_words(scores: Scores) -> str:
    """Scores in a line."""
    return (
        f"log loss {scores.logloss:.5f}, NE {scores.ne:.4f}, AUC {scores.auc:.5f}, calibration "
        f"{scores.calibration:.4f} of {scores.samples:,} samples"
    )


def _finish(
    run: Run, plan: Plan, job: ShardedJob, dataset: Dataset, reached: Reached, checkpoints: Checkpoints, diary: Diary,
    features: list[str], *, ended: bool,
) -> Raw:  # fmt: skip
    """A last checkpoint, scores and the exported model; of a job that a signal ended, which has saved already, none."""
    if run.checkpoint is not None and not ended and reached.step > reached.saved:
        _save(checkpoints, job, run, plan, reached, diary)
    problem = checkpoints.finish()
    if problem:
        diary.say({"note": f"the last checkpoint failed: {problem}"})
    result: Raw = {
        "step": reached.step, "complete": not ended, "sent_bytes": reached.sent_bytes, "peak_bytes": peak_bytes(),
    }  # fmt: skip
    if ended:
        kept = f"saved after step {reached.step:,}; the same command goes on from there"
        lost = f"ended after step {reached.step:,} with nothing saved, since the run has no checkpoint"
        diary.say({"note": f"asked to end: {lost if run.checkpoint is None else kept}"})
        return result
    if run.data.test is not None:
        result["test"] = encode(_evaluate(run, job, reached, diary, features, None))
    export(job, run, dataset.schema, Path(run.output) / MODEL, {"step": reached.step, "test": result.get("test")})
    diary.say({"note": f"trained {reached.step:,} steps; the model is in '{Path(run.output) / MODEL}'"})
    return result


def peak_bytes() -> int:
    """The most memory that a rank has held: of its GPU, or resident; the most of any rank."""
    on_gpu = torch.cuda.is_available()
    mine = torch.cuda.max_memory_allocated() if on_gpu else proc_bytes("self/status", "VmHWM")
    found = torch.tensor(mine, dtype=torch.int64, device=rank_device())
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def _total_steps(run: Run, dataset: Dataset) -> int | None:
    """Steps of the whole run, where the number of samples is known."""
    if run.steps is not None or dataset.num_samples is None:
        return run.steps
    ranks = dist.get_world_size()
    return run.data.epochs * (dataset.num_samples // (run.data.local_batch_size(ranks) * ranks))


def _timed(source: Iterator[TrainingBatch], times: StepTimes) -> Generator[TrainingBatch]:
    """The batches, and how long the loop waited for them."""
    while True:
        begun = time.perf_counter()
        batch = next(source, None)
        times.add("data", time.perf_counter() - begun)
        if batch is None:
            return
        yield batch


def _time_forward(job: ShardedJob, times: StepTimes) -> None:
    """Count the seconds of forward passes (of their launch, on a GPU)."""
    begun = [0.0]

    def before(*_: object) -> None:
        begun[0] = time.perf_counter()

    def after(*_: object) -> None:
        times.add("forward", time.perf_counter() - begun[0])

    job.model.register_forward_pre_hook(before)
    job.model.register_forward_hook(after)


def _ranks_per_host() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
