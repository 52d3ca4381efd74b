"""TorchRec's pipelines: they overlap a step with sending the ids of the next batch between ranks."""

from collections.abc import Iterator
from typing import Any, cast

import torch.fx
from torch import nn
from torchrec.distributed.train_pipeline import (
    PrefetchTrainPipelineSparseDist,
    TrainPipelineBase,
    TrainPipelineSparseDist,
)
from torchrec.distributed.types import ShardedModule

from recsmith.errors import UsageError
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.steps.protocol import StepOutcome, UnpipelinedStep
from recsmith.training.tables import plain as tables


class BasePipeline(UnpipelinedStep):
    """Forward pass, backward pass and update of one batch at a time."""

    def __init__(self, job: ShardedJob) -> None:
        self.pipeline: Any = TrainPipelineBase(job.model, job.optimizer, job.device)

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train on the next batch."""
        loss, logits, labels, place = self.pipeline.progress(batches)
        return StepOutcome(loss, logits, labels, (place,))


class SparseDistPipeline(BasePipeline):
    """Sends the ids of the next batch between ranks while this one trains.

    Raises:
        UsageError: the model does not support it.
    """

    batches_ahead = 1
    name = "sparse_dist"
    _made: type[TrainPipelineSparseDist[Any, Any]] = TrainPipelineSparseDist

    def __init__(self, job: ShardedJob) -> None:
        reason = self.refuses(job.model.module)
        if reason is not None:
            raise UsageError(f"pipeline is {self.name}, which this model cannot have: {reason}; write pipeline: base")
        self.pipeline = self._made(job.model, job.optimizer, job.device)
        self.pipeline._dmp_collection_sync_interval_batches = None  # the loop averages replicas (job/replicas.py)

    @staticmethod
    def refuses(model: nn.Module) -> str | None:
        """Why the ids of a sharded model cannot be sent between ranks ahead of its forward pass; None if they can.

        TorchRec finds the input of a table by tracing the code of modules with tables symbolically (torch.fx), where
        Python can neither branch on a batch nor iterate over it.
        """
        reason = tables.why_not_ahead(model)
        if reason is not None:
            return reason
        try:
            _ToTables().trace(model)
        except Exception as error:  # whatever the model's own code raises when it gets a symbol instead of a batch
            return f"its code around the tables cannot be followed by torch.fx ({str(error).partition(chr(10))[0]})"
        return None

    def pause(self) -> None:
        """Restore the original forward passes of tables, which the pipeline has replaced."""
        self.pipeline.detach()

    def resume(self) -> None:
        """Replace them again; batches whose ids were already sent are trained next."""
        self.pipeline.attach()


class _PrefetchAnywhere(PrefetchTrainPipelineSparseDist[Any, Any]):
    """TorchRec's pipeline, made to prefetch on CPU, too, where TorchRec's own fails (utils.prefetch_embeddings)."""

    def _prefetch(self, context: Any) -> None:
        if self._device.type != "cpu":
            super()._prefetch(context)
            return
        context.module_input_post_prefetch.clear()
        context.module_contexts_post_prefetch.clear()
        for module in cast(list[Any], self._pipelined_modules):
            name = module.forward._name
            ids, of_module = context.input_dist_tensors_requests.pop(name).wait(), context.module_contexts.pop(name)
            module.prefetch(ctx=of_module, dist_input=ids)
            context.module_input_post_prefetch[name] = ids
            context.module_contexts_post_prefetch[name] = of_module


class PrefetchPipeline(SparseDistPipeline):
    """In addition, cached tables fetch the rows of the next batch during the backward pass of this one."""

    batches_ahead = 2
    name = "prefetch_sparse_dist"
    _made = _PrefetchAnywhere

    def resume(self) -> None:
        """Replace them again; the ids of the next batch were already sent, and are not sent again."""
        self.pipeline.attach(sparse_dist=False)


class _ToTables(torch.fx.Tracer):
    """Traces modules that contain tables, as TorchRec's own tracer does."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is not traced into: sharded tables, and modules without any."""
        return isinstance(m, ShardedModule) or not any(isinstance(each, ShardedModule) for each in m.modules())
