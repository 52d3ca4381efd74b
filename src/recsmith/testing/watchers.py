"""The contract of watchers: for your own (write `make`), and for RecSmith's."""

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import torch

from recsmith.data import Batch, JaggedIds
from recsmith.training.batches import Place
from recsmith.training.job.agreement import What, Wish
from recsmith.training.steps.protocol import StepOutcome
from recsmith.training.watchers.protocol import Seen


class _Job(SimpleNamespace):
    """A job that weak references can point to."""


def seen(step: int, folder: Path, loss: float = 0.5) -> Seen:
    """A step of two samples, in a job with a folder and little else."""
    ids = JaggedIds(values=np.array([1, 2]), lengths=np.array([1, 1], np.int32))
    batch = Batch(
        dense=np.zeros((2, 1), np.float32), ids={"f": ids}, labels=np.array([[0.0], [1.0]], np.float32),
        label_names=("label",), sample_ids=np.arange(2),
    )  # fmt: skip
    labels = torch.from_numpy(batch.labels)
    outcome = StepOutcome(torch.tensor(loss), torch.zeros(2, 1), labels, (Place(batch, 2),))
    log = SimpleNamespace(warn=print, say=print)
    job: Any = _Job(output=folder, total_steps=None, log=log)
    return Seen(step, outcome, job)


class WatcherContract:
    """The contract of watchers. Subclass it as a test class, and write `make`."""

    def make(self, folder: Path) -> Any:
        """The watcher. folder: for its files."""
        raise NotImplementedError

    def test_what_it_asks_for_is_known_and_has_a_reason(self, tmp_path: Path) -> None:
        """Each wish of the watcher is a known one and has a reason."""
        watcher = self.make(tmp_path)
        assert watcher.every >= 1
        for step in range(watcher.every, 30 * watcher.every, watcher.every):
            wish = watcher.look(seen(step, tmp_path))
            assert _is_known(wish)
        assert _is_known(_end(watcher, 29 * watcher.every, tmp_path))
        watcher.close(None)

    def test_its_state_is_json_and_another_goes_on_from_it(self, tmp_path: Path) -> None:
        """Its state can be written as JSON, and another watcher can continue from it."""
        watcher, other = self.make(tmp_path), self.make(tmp_path / "other")
        for step in range(watcher.every, 5 * watcher.every, watcher.every):
            watcher.look(seen(step, tmp_path))
        raw = watcher.to_raw()
        if raw is not None:
            other.from_raw(json.loads(json.dumps(raw)))
            assert other.to_raw() == raw
        for each in (watcher, other):
            each.close(ValueError("the job failed"))

    def test_the_next_day_begins_with_what_it_kept(self, tmp_path: Path) -> None:
        """A watcher of the next day can begin with the state that it kept."""
        day, other = self.make(tmp_path), self.make(tmp_path / "other")
        for step in range(day.every, 5 * day.every, day.every):
            day.look(seen(step, tmp_path))
        _end(day, 4 * day.every, tmp_path)
        raw = day.to_raw()
        if raw is not None and hasattr(other, "begin_after"):
            other.begin_after(json.loads(json.dumps(raw)), "monday")
        other.look(seen(other.every, tmp_path / "other"))
        assert _is_known(_end(other, other.every, tmp_path / "other"))
        for each in (day, other):
            each.close(None)

    def test_it_forgets_a_job_that_it_leaves(self, tmp_path: Path) -> None:
        """Once its job is left, it holds no reference to it, so that the model can leave memory."""
        watcher = self.make(tmp_path)
        job = seen(1, tmp_path).job
        for step in range(watcher.every, 30 * watcher.every, watcher.every):
            watcher.look(replace(seen(step, tmp_path), job=job))
        if hasattr(watcher, "leave"):
            watcher.leave()
        left = weakref.ref(job)
        del job
        gc.collect()
        assert left() is None
        watcher.close(None)


def _end(watcher: Any, step: int, folder: Path) -> object:
    """The watcher's wish at the end of a job, when it sees the last step again."""
    return watcher.look_at_end(seen(step, folder)) if hasattr(watcher, "look_at_end") else None


def _is_known(wish: object) -> bool:
    return wish is None or (isinstance(wish, Wish) and wish.what in get_args(What) and bool(wish.because))
