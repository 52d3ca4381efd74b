"""Checkpoints of a job: complete or absent, the newest ones kept, written while training goes on where the run says so.

    checkpoints/step-00001000/
      state/             torch.distributed.checkpoint: weights as `model.*`, optimizers as `optimizer.<part>.state.*`
      progress.json      step, position of the data, last scores
      random-<rank>.json states of random number generators
      run.json plan.json what was trained, and under which plan

A checkpoint is written beside, as step-00001000.partial, and renamed when every rank has written its part.
"""

import base64
import json
import os
import random
import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.shard import Shard
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import Raw, parse_json, read_text
from recsmith.plans import Plan, load_plan, save_plan
from recsmith.training.agreement import Agreement
from recsmith.training.run import Checkpointing, Run, save_run
from recsmith.training.sharded import ShardedJob
from recsmith.training.stores.checkpoint import CheckpointRows

STATE, PROGRESS, PLAN_FILE, RUN_FILE, PARTIAL = "state", "progress.json", "plan.json", "run.json", ".partial"


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint on disk."""

    folder: Path

    @property
    def progress(self) -> Raw:
        """What progress.json holds: step, ranks, position, scores."""
        raw = parse_json(read_text(str(self.folder / PROGRESS)), str(self.folder / PROGRESS))
        if not isinstance(raw, dict):
            raise CorruptFile(f"'{self.folder / PROGRESS}' holds no object; remove this checkpoint's folder")
        return raw

    @property
    def plan(self) -> Plan:
        """The plan that it was trained under."""
        return load_plan(self.folder / PLAN_FILE)

    def load(self, job: ShardedJob) -> None:
        """Weights and state of optimizers into this rank's shards; called on every rank.

        Raises:
            CorruptFile: the checkpoint is of another model, or damaged.
        """
        state = job.rows.state_to_load()
        self._check_same(state)
        try:
            load(state, checkpoint_id=self.folder / STATE)
        except CheckpointException as error:
            raise CorruptFile(f"checkpoint '{self.folder}' cannot be read: {_first_cause(error)}; remove it") from None
        job.rows.load_state_dict(state)

    def restore_random(self) -> None:
        """States of random number generators, where this rank had one."""
        file = self.folder / f"random-{dist.get_rank()}.json"
        if file.exists():
            restore_random_states(json.loads(file.read_text()))

    def _check_same(self, state: dict[str, Any]) -> None:
        """Refuse a checkpoint whose weights or optimizer state are not those of this job."""
        saved = {key: each.shape for key, each in CheckpointRows(self.folder / STATE).whole().items()}
        ours = {f"model.{key}": tuple(value.size()) for key, value in state["model"].items() if hasattr(value, "size")}
        for key in sorted(ours):
            if key not in saved:
                raise CorruptFile(f"checkpoint '{self.folder}' is of another model: it has no '{key}'; {_ADVICE}")
            if saved[key] != ours[key]:
                raise CorruptFile(
                    f"checkpoint '{self.folder}' is of another model: '{key}' is {saved[key]} there and {ours[key]} "
                    f"here; {_ADVICE}"
                )


_ADVICE = "give another output folder, or train the model that it was saved from"


class Checkpoints:
    """The checkpoints of a run's folder."""

    def __init__(self, folder: Path, settings: Checkpointing, agreement: Agreement) -> None:
        self.folder, self.settings, self.agreement = folder, settings, agreement
        self._pending: tuple[Future[Any], Path] | None = None
        self._writers: Any = (
            dist.new_group(backend="gloo") if settings.background else None
        )  # of its own: it is a thread's
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

    def newest(self) -> Saved | None:
        """The newest complete checkpoint."""
        found = sorted(self.folder.glob("step-*[0-9]"))
        return Saved(found[-1]) if found else None

    def save(self, job: ShardedJob, run: Run, plan: Plan, progress: Raw) -> str | None:
        """Save the state after a step, on every rank; what went wrong, in words, where the disk refuses it.

        In the background, only what is written before training goes on can be told here, and the rest by `finish`.
        """
        problem = self.finish()
        if problem is not None:
            return problem
        target = self.folder / f"step-{progress['step']:08d}"
        partial = target.with_name(target.name + PARTIAL)
        problem = self._small_files(partial, run, plan, progress)
        if not self.agreement.everywhere(problem is None):
            return self._give_up(partial, problem or "another rank could not write")
        job.rows.flush()
        state = job.rows.state_dict()
        if self.settings.background:
            stager: Any = Copies()
            future: Any = async_save(
                state, checkpoint_id=partial / STATE, process_group=self._writers, async_stager=stager
            )
            self._pending = future, partial
            return None
        try:
            save(state, checkpoint_id=partial / STATE)
        except (CheckpointException, OSError, RuntimeError) as error:
            return self._give_up(partial, _first_cause(error))
        self._complete(partial)
        return None

    def poll(self) -> None:
        """Complete a checkpoint that was written in the background, once it is; only rank 0 has to."""
        if self._pending is not None and self._pending[0].done() and self._pending[0].exception() is None:
            self._complete(self._pending[1])
            self._pending = None

    def finish(self) -> str | None:
        """Wait for a checkpoint in the background; what went wrong with it, in words."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        future, partial = pending
        error = future.exception()
        if error is not None:
            return self._give_up(partial, _first_cause(error))
        self._complete(partial)
        return None

    def _small_files(self, partial: Path, run: Run, plan: Plan, progress: Raw) -> str | None:
        """Everything but the tensors; what went wrong, in words."""
        try:
            partial.mkdir(parents=True, exist_ok=True)
            (partial / f"random-{dist.get_rank()}.json").write_text(json.dumps(random_states()))
            if dist.get_rank() == 0:
                (partial / PROGRESS).write_text(json.dumps(progress, allow_nan=False, indent=1))
                save_plan(plan, partial / PLAN_FILE)
                save_run(run, partial / RUN_FILE)
        except (OSError, RecSmithError) as error:
            return str(error)
        return None

    def _give_up(self, partial: Path, problem: str) -> str:
        dist.barrier(group=self.agreement.group)  # nobody still writes
        if dist.get_rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)
        dist.barrier(group=self.agreement.group)
        return problem

    def _complete(self, partial: Path) -> None:
        """Rename what every rank has written, and remove checkpoints beyond those kept."""
        if dist.get_rank() != 0:
            return
        os.sync()
        partial.rename(partial.with_name(partial.name.removesuffix(PARTIAL)))
        for old in sorted(self.folder.glob("step-*[0-9]"))[: -self.settings.keep]:
            shutil.rmtree(old, ignore_errors=True)


def _first_cause(error: BaseException) -> str:
    """The cause of DCP's failure in a line: of the rank that failed first."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (cause, _) = min(error.failures.items())
        return f"{type(cause).__name__} on rank {rank}: {cause}"
    return f"{type(error).__name__}: {error}".splitlines()[0]


class Copies:
    """A stager of `async_save` that copies the job's state to host memory, and that nobody waits for afterwards.

    The stager of PyTorch 2.13 cannot copy ShardedTensors (it asks them for a data pointer).
    """

    should_synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The same state, its tensors copied to host memory."""
        return copied(state_dict)

    def synchronize_staging(self) -> None:
        """The copy is complete when `stage` returns."""

    def close(self) -> None:
        """There is nothing to give back."""


def copied(value: Any) -> Any:
    """A nested state with copies of its tensors in host memory; other values as they are."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, ShardedTensor):
        shards = [Shard(_copy(shard.tensor), shard.metadata) for shard in value.local_shards()]
        return ShardedTensor._init_from_local_shards_and_global_metadata(
            shards,
            sharded_tensor_metadata=value.metadata(),
            process_group=value._process_group,
        )
    return _copy(value) if isinstance(value, torch.Tensor) else value


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def random_states() -> dict[str, Any]:
    """States of Python's, NumPy's and PyTorch's generators (JSON data)."""
    version, state, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    cuda = [_text(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else []
    return {
        "python": [version, list(state), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), place, has_gauss, cached],
        "torch": _text(torch.get_rng_state()),
        "cuda": cuda,
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Put the generators of this process back into these states."""
    version, state, gauss = states["python"]
    random.setstate((version, tuple(state), gauss))
    kind, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    torch.set_rng_state(_tensor(states["torch"]))
    if torch.cuda.is_available() and states["cuda"]:
        torch.cuda.set_rng_state_all([_tensor(state) for state in states["cuda"]])


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
