"""Checkpoints of a job: complete or absent, the newest are kept, optionally written while training goes on.

    checkpoints/step-00001000/
      state/             torch.distributed.checkpoint: weights as `model.*`, optimizers as `optimizer.<part>.state.*`
      progress.json      step, position of the data, last scores
      random-<rank>.json states of random number generators
      run.json plan.json what was trained, and under which plan

A checkpoint is first written as step-00001000.partial, and renamed once every rank has written its part. If the run has
`checkpoint.publish`, it is uploaded to a store before that (publishing.py, which is imported only then).
"""

import json
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from recsmith._components import load
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw, by_number
from recsmith.plans import Plan, save_plan
from recsmith.training.job.agreement import Agreement
from recsmith.training.job.resuming import (
    PLAN_FILE,
    PROGRESS,
    RUN_FILE,
    STATE,
    checkpoint_folders,
    kept_by_hook,
    kept_by_systems,
    step_name,
)
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.random_states import random_states
from recsmith.training.run import Checkpointing, Run, save_run
from recsmith.training.stores.checkpoint import first_cause
from recsmith.training.stores.copies import Copies, state_bytes
from recsmith.units import format_size

PARTIAL = ".partial"
PUBLISHER = "recsmith.training.job.publishing:Publisher"
NO_ROOM = ("No space left", "File too large", "Disk quota exceeded", "PytorchStreamWriter", "inline_container")


class Checkpoints:
    """The checkpoints of a run's folder.

    alone: whether old checkpoints are removed as each new one is written. In an array, whose checkpoint is one of each
    member, they are not: callers of `prune` and `drop` decide when.
    """

    def __init__(self, folder: Path, settings: Checkpointing, agreement: Agreement, *, alone: bool = True) -> None:
        self.folder, self.settings, self.agreement, self.alone = folder, settings, agreement, alone
        self._pending: tuple[Future[Any], Path, int] | None = None
        self._writers: Any = dist.new_group(backend="gloo") if settings.background else None  # of the writing thread
        self._publisher: Any = None
        self._late_problem: str | None = None  # what happened to a checkpoint after training went on
        self._after = ThreadPoolExecutor(1)  # runs what follows a background checkpoint
        if dist.get_rank() == 0:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"the run's output '{folder.parent}' cannot be written: {error.strerror or error}; give another "
                    "output"
                ) from None
            for left in folder.glob(f"*{PARTIAL}"):
                shutil.rmtree(left, ignore_errors=True)
        dist.barrier()
        if settings.publish is not None:
            self._publisher = load(PUBLISHER)(settings.publish, settings.keep, agreement.group)
            self._publisher.bring(folder, agreement.group)

    def save(self, job: ShardedJob, run: Run, plan: Plan, progress: Raw) -> str | None:
        """Save the state after a step, on every rank; returns what went wrong, in words, if the disk refuses it.

        In the background, only failures before training goes on can be returned here, and the rest by `finish`.
        """
        if failed := self.finish():
            self._late_problem = f"the checkpoint before that of step {progress['step']:,} failed: {failed}"
        target = self.folder / step_name(progress["step"])
        partial = target.with_name(target.name + PARTIAL)
        job.rows.flush()
        state = {**job.rows.state_dict(), **kept_by_hook(job), **kept_by_systems(job, run)}
        size = state_bytes(state)
        problem = self._without_room(size) or self._small_files(partial, run, plan, progress)
        if not self.agreement.everywhere(problem is None):
            return self._give_up(partial, problem or "another rank could not write")
        if self.settings.background:
            stager: Any = Copies()
            future: Any = async_save(
                state, checkpoint_id=partial / STATE, process_group=self._writers, async_stager=stager
            )
            self._pending = self._after.submit(self._publish_after, future, partial), partial, size
            return None
        try:
            save(state, checkpoint_id=partial / STATE)
        except (CheckpointException, OSError, RuntimeError) as error:
            return self._give_up(partial, self._refused(error, size))
        self._publish(partial, self.agreement.group)
        self._complete(partial)
        return None

    def publish_model(self, folder: Path) -> str | None:
        """Upload the trained model to the store, if the run asks for it; returns what went wrong, in words."""
        return self._publisher and self._publisher.publish(folder, folder.name, self.agreement.group)

    def late_problem(self) -> str | None:
        """A line, once, if a checkpoint was not published although it is complete here, or failed in the background."""
        said, self._late_problem = self._late_problem, None
        return said

    def _publish(self, partial: Path, group: Any) -> None:
        """Upload a checkpoint to the store, if the run asks for it."""
        if self._publisher is None:
            return
        name = partial.name.removesuffix(PARTIAL)
        if problem := self._publisher.publish(partial, name, group):
            step = int(name.removeprefix("step-"))
            self._late_problem = (
                f"the checkpoint of step {step:,} was not published: it is in '{self.folder}' alone, for {problem}"
            )

    def _publish_after(self, written: Future[Any], partial: Path) -> None:
        """Upload a checkpoint once it is written, in a thread of its own."""
        written.result()
        self._publish(partial, self._writers)

    def poll(self) -> None:
        """Complete a background checkpoint once it is written; only rank 0 has to."""
        pending = self._pending
        if pending is not None and pending[0].done() and not pending[0].exception():
            self._complete(pending[1])
            self._pending = None

    def finish(self) -> str | None:
        """Wait for a background checkpoint; returns what went wrong with it, in words."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        future, partial, size = pending
        error = future.exception()
        if error is not None:
            return self._give_up(partial, self._refused(error, size))
        self._complete(partial)
        return None

    def random_states(self) -> dict[int, Raw]:
        """The states of random number generators that this rank writes, by rank."""
        return {dist.get_rank(): random_states()}

    def _without_room(self, size: int) -> str | None:
        """Why a checkpoint of `size` bytes does not fit on the disk; None if it does."""
        free = shutil.disk_usage(self.folder).free
        if free >= size:
            return None
        return (
            f"it takes {format_size(size)}, and the disk of '{self.folder}' has {format_size(free)} free; make room, "
            "keep fewer (checkpoint.keep), or give an output on another disk"
        )

    def _refused(self, error: BaseException, size: int) -> str:
        """Why a checkpoint could not be written: an own message if the disk is full, otherwise PyTorch's cause."""
        cause = first_cause(error)
        if any(words in cause for words in NO_ROOM):
            free = format_size(shutil.disk_usage(self.folder).free)
            return (
                f"the disk of '{self.folder}' took only a part of {format_size(size)}, and has {free} free; make room, "
                "or give an output on another disk"
            )
        return cause

    def _small_files(self, partial: Path, run: Run, plan: Plan, progress: Raw) -> str | None:
        """Write everything but the tensors; returns what went wrong, in words."""
        try:
            partial.mkdir(parents=True, exist_ok=True)
            for rank, states in self.random_states().items():
                (partial / f"random-{rank}.json").write_text(json.dumps(states))
            if dist.get_rank() == 0:
                (partial / PROGRESS).write_text(json.dumps(progress, allow_nan=False, indent=1))
                save_plan(plan, partial / PLAN_FILE)
                save_run(run, partial / RUN_FILE)
        except (OSError, RecSmithError) as error:
            return str(error)
        return None

    def _give_up(self, partial: Path, problem: str) -> str:
        dist.barrier(group=self.agreement.group)  # wait until no rank writes
        if dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)
        dist.barrier(group=self.agreement.group)
        return problem

    def _complete(self, partial: Path) -> None:
        """Rename a checkpoint that every rank has written, and remove old checkpoints."""
        if dist.get_rank() != 0:
            return
        os.sync()
        partial.rename(partial.with_name(partial.name.removesuffix(PARTIAL)))
        if self.alone:
            self.prune()

    def prune(self) -> None:
        """Remove checkpoints beyond the newest `keep`; only rank 0 has to."""
        for old in self.all()[: -self.settings.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def drop(self, after: int) -> bool:
        """Remove checkpoints of later steps, which are trained again; whether there were any. Only rank 0 has to."""
        found = [each for each in self.all() if by_number(each.name) > by_number(step_name(after))]
        for each in found:
            shutil.rmtree(each, ignore_errors=True)
        return bool(found)

    def all(self) -> list[Path]:
        """Folders of the complete checkpoints, the newest last."""
        return checkpoint_folders(self.folder)
