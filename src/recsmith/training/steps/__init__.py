"""Steps: what makes one training step of batches (protocol.py). TorchRec's pipelines are in pipelines.py."""

from collections.abc import Callable
from typing import Any

from recsmith._components import find, make, parsed, register

KIND = "step"

register(KIND, "base", "recsmith.training.steps.pipelines:BasePipeline")
register(KIND, "sparse_dist", "recsmith.training.steps.pipelines:SparseDistPipeline")
register(KIND, "prefetch_sparse_dist", "recsmith.training.steps.pipelines:PrefetchPipeline")
register(KIND, "progressive_lbfgs", "recsmith.training.steps.second_order:ProgressiveLbfgsStep")
register(KIND, "dance", "recsmith.training.steps.second_order:DanceStep")
register(KIND, "search", "recsmith.training.steps.searching:SearchStep")
SECOND_ORDER = ("progressive_lbfgs", "dance")  # which take the place of the dense layers' optimizer


def tables_rest(pipeline: object) -> bool:
    """Whether tables learn nothing under a run's `pipeline`."""
    name, settings = parsed(pipeline, "pipeline")
    return name == "dance" or (name in SECOND_ORDER and settings.get("tables") == "rest")


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
        return make(KIND, wanted, job, where="pipeline")
    if job.device.type != "cuda":
        return make(KIND, "base", job)
    reason = find(KIND, "sparse_dist").refuses(job.model.module)  # type: ignore[attr-defined]
    if reason is None:
        return make(KIND, "sparse_dist", job)
    say(f"the ids of a batch do not cross ranks ahead of it (pipeline: base): {reason}")
    return make(KIND, "base", job)
