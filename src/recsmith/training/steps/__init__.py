"""Steps: components that make a training step from batches (protocol.py). TorchRec's pipelines are in pipelines.py."""

from collections.abc import Callable
from typing import Any

from recsmith._components import find, make
from recsmith.training.seams import STEP


def step_of(job: Any, wanted: object, say: Callable[[str], object] = lambda _: None) -> Any:
    """The step of a run's `pipeline`: a name, or 'module:Class', with settings if it is a mapping.

    Args:
        job: the ShardedJob that is trained.
        wanted: the run's value; auto is sparse_dist on a GPU if the model supports it, otherwise base.
        say: called with the reason if a model does not support sparse_dist on a GPU.

    Raises:
        UsageError: no step has this name, or the model does not support it.
    """
    if wanted != "auto":
        return make(STEP, wanted, job, where="pipeline")
    if job.device.type != "cuda":
        return make(STEP, "base", job)
    reason = find(STEP, "sparse_dist").refuses(job.model.module)  # type: ignore[attr-defined]
    if reason is None:
        return make(STEP, "sparse_dist", job)
    say(f"the ids of a batch do not cross ranks ahead of it (pipeline: base): {reason}")
    return make(STEP, "base", job)
