"""Steps: what makes one training step of batches (protocol.py). TorchRec's pipelines are in pipelines.py."""

from collections.abc import Callable
from typing import Any

from recsmith._components import find, make
from recsmith.training.seams import STEP


def step_of(job: Any, wanted: object, say: Callable[[str], object] = lambda _: None) -> Any:
    """The step of a run's `pipeline`: a name, or 'module:Class', with settings where it is a mapping.

    Args:
        job: the ShardedJob that is trained.
        wanted: what the run says; auto is sparse_dist on a GPU, for models that can have it, and base elsewhere.
        say: hears why a model cannot have sparse_dist on a GPU.

    Raises:
        UsageError: nothing is called so, or the model cannot have it.
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
