"""TorchRec's pipelines: how the steps of a run overlap with the exchange of the ids of the next one (imports torch)."""

from collections.abc import Callable
from typing import Any

import torch.fx
from torch import nn
from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist
from torchrec.distributed.types import ShardedModule

from recsmith.errors import UsageError
from recsmith.training.deduplicated import DeduplicatedTables
from recsmith.training.run import PipelineName
from recsmith.training.sharded import ShardedJob


def pipeline_of(
    job: ShardedJob, name: PipelineName, say: Callable[[str], object] = lambda _: None
) -> TrainPipelineBase[Any, Any]:
    """The pipeline of a name. With sparse_dist the ids of the next batch cross ranks while this one trains.

    auto: sparse_dist on a GPU, for models that can have it, and base elsewhere. say: hears why a model cannot have it.

    Raises:
        UsageError: sparse_dist is asked for by name, and the model cannot have it.
    """
    wanted = name == "sparse_dist" or (name == "auto" and job.device.type == "cuda")
    reason = why_not_ahead(job.model.module) if wanted else None
    if wanted and reason is None:
        return TrainPipelineSparseDist(job.model, job.optimizer, job.device)  # type: ignore[return-value]
    if name == "sparse_dist":
        raise UsageError(f"pipeline is sparse_dist, which this model cannot have: {reason}; write pipeline: base")
    if wanted:
        say(f"the ids of a batch do not cross ranks ahead of it (pipeline: base): {reason}")
    return TrainPipelineBase(job.model, job.optimizer, job.device)


def why_not_ahead(model: nn.Module) -> str | None:
    """Why the ids of a sharded model cannot cross ranks ahead of its forward pass; None where they can.

    TorchRec finds what a table is given by following the code of modules with tables symbolically (torch.fx), where
    Python can neither branch on a batch nor iterate over it.
    """
    if any(isinstance(module, DeduplicatedTables) for module in model.modules()):
        return "deduplicated features are padded to equal numbers of rows on all ranks when their batch trains"
    try:
        _ToTables().trace(model)
    except Exception as error:  # whatever the model's own code raises when it meets a symbol in place of a batch
        return f"its code around the tables cannot be followed by torch.fx ({str(error).partition(chr(10))[0]})"
    return None


def batches_ahead(pipeline: TrainPipelineBase[Any, Any]) -> int:
    """Batches whose ids cross ranks in the first step beside its own: that step sends more than all others."""
    return int(isinstance(pipeline, TrainPipelineSparseDist))


def detach(pipeline: TrainPipelineBase[Any, Any]) -> None:
    """Let the model be called without its pipeline, which has rewritten the forward passes of tables."""
    if isinstance(pipeline, TrainPipelineSparseDist):
        pipeline.detach()


def attach(pipeline: TrainPipelineBase[Any, Any]) -> None:
    """Rewrite the forward passes of tables once more; batches whose ids have crossed ranks are trained next."""
    if isinstance(pipeline, TrainPipelineSparseDist):
        pipeline.attach()


class _ToTables(torch.fx.Tracer):
    """Follows modules that have tables within, as TorchRec's own tracer does."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is taken whole: tables, and what has none."""
        return isinstance(m, ShardedModule) or not any(isinstance(each, ShardedModule) for each in m.modules())
