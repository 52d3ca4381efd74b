"""Step times of each rank, the rank's own share of them, and the bytes that are sent between ranks."""

from collections import deque
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchrec.distributed.types import ShardedModule

from recsmith.files import Raw
from recsmith.jobs.log_lines import RANKS
from recsmith.training.job.job import TrainingJob
from recsmith.training.seams import systems
from recsmith.training.step_clock import STEPS

KEPT = 1000  # number of newest steps whose median is reported
FEW = 20  # fewest steps for a report


class RankTimes:
    """Times of this rank's newest steps: total, and the rank's own work.

    Own work is time that is known not to wait for another rank: waiting for data, forward passes of dense layers,
    watchers.
    """

    def __init__(self, job: TrainingJob) -> None:
        self._timer, self._last = DenseTimer(job.sharded.model, job.sharded.device), STEPS.now()
        self._steps = deque[tuple[float, float]](maxlen=KEPT)

    def step(self, waited_s: float, looked_s: float) -> None:
        """Record a step. waited_s: seconds of waiting for its data. looked_s: seconds of watchers."""
        now, own = STEPS.now(), self._timer.seconds + waited_s + looked_s
        self._steps.append((now - self._last, own))
        self._last, self._timer.seconds = now, 0.0

    def usual_s(self) -> float | None:
        """Median seconds of this rank's steps; None if there were few steps."""
        return None if len(self._steps) < FEW else median(step for step, _ in self._steps)

    def tell(self, job: TrainingJob) -> Raw:
        """Log the times of all ranks, and what systems derive from them. Every rank must call it."""
        if dist.get_world_size() == 1 or len(self._steps) < FEW or job.sharded.device.type == "cuda":
            return {}
        found: list[Any] = [None] * dist.get_world_size()
        mine = [median(part) for part in zip(*self._steps, strict=True)]
        dist.all_gather_object(found, mine, group=job.agreement.group)
        job.progress.own_s = tuple(own for _, own in found)
        values: Raw = {"step_s": max(step for step, _ in found), "own_s": [own for _, own in found]}
        values |= {name: seconds for each in systems() for name, seconds in each.rank_times(job, len(found)).items()}
        job.log.write(RANKS, {"step": job.progress.step, **values})
        for system in systems():
            if (line := system.at_the_end(job, values)) is not None:
                job.log.say({"note": line})
        return {RANKS: values}


class DenseTimer:
    """Seconds of the dense layers' forward passes on this rank: its own work, which waits for no other rank.

    On a GPU these would be launch times, which say nothing about the device, so nothing is timed there.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.seconds, self._begun = 0.0, 0.0
        if device.type == "cuda":
            return
        waiting = [
            each for each in model.modules() if isinstance(each, ShardedModule) or getattr(each, "on_servers", False)
        ]
        left_out = {id(inner) for each in waiting for inner in each.modules()}
        for module in model.modules():
            if id(module) not in left_out and not any(True for _ in module.children()):
                module.register_forward_pre_hook(self._begin)
                module.register_forward_hook(self._end)

    def _begin(self, *_: object) -> None:
        self._begun = STEPS.now()

    def _end(self, *_: object) -> None:
        self.seconds += STEPS.now() - self._begun


class BytesSent(TorchDispatchMode):
    """Counts the bytes of the tensors that are given to c10d's collectives in this context, by collective.

    What a collective really sends depends on its algorithm and the number of ranks; the bytes that it is given do not.
    The backward pass is counted on every device, because autograd applies the mode in its threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a collective, and run it."""
        name = str(getattr(func, "name", lambda: "")())
        if name.startswith("c10d::"):
            word = name.removeprefix("c10d::").partition(".")[0].rstrip("_")
            given = args[1] if word in _INPUT_SECOND else args[0]
            self.bytes[word] = self.bytes.get(word, 0) + _size(given)
        return func(*args, **(kwargs or {}))


_INPUT_SECOND = ("alltoall_base", "alltoall", "allgather", "_allgather_base", "reduce_scatter", "_reduce_scatter_base")


def _size(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(map(_size, tensors)) if isinstance(tensors, list | tuple) else 0
