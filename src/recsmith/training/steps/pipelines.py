"""TorchRec's pipelines: how the steps of a run overlap with the exchange of the ids of the next one."""

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
    """Forward, backward and update of one batch after the other."""

    def __init__(self, job: ShardedJob) -> None:
        self.pipeline: Any = TrainPipelineBase(job.model, job.optimizer, job.device)

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train on the next batch."""
        loss, logits, labels, place = self.pipeline.progress(batches)
        return StepOutcome(loss, logits, labels, (place,))


class SparseDistPipeline(BasePipeline):
    """The ids of the next batch cross ranks while this one trains.

    Raises:
        UsageError: the model cannot have it.
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
        """Why the ids of a sharded model cannot cross ranks ahead of its forward pass; None where they can.

        TorchRec finds what a table is given by following the code of modules with tables symbolically (torch.fx), where
        Python can neither branch on a batch nor iterate over it.
        """
        reason = tables.why_not_ahead(model)
        if reason is not None:
            return reason
        try:
            _ToTables().trace(model)
        except Exception as error:  # whatever the model's own code raises when it meets a symbol in place of a batch
            return f"its code around the tables cannot be followed by torch.fx ({str(error).partition(chr(10))[0]})"
        return None

    def pause(self) -> None:
        """The forward passes of tables, which the pipeline has rewritten, as they were."""
        self.pipeline.detach()

    def resume(self) -> None:
        """Rewrite them once more; batches whose ids have crossed ranks are trained next."""
        self.pipeline.attach()


class _PrefetchAnywhere(PrefetchTrainPipelineSparseDist[Any, Any]):
    """TorchRec's, which prefetches nothing, and then fails, where there are no streams (utils.prefetch_embeddings)."""

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
    """Besides, tables that are cached fetch the rows of the next batch while this one goes backward."""

    batches_ahead = 2
    name = "prefetch_sparse_dist"
    _made = _PrefetchAnywhere

    def resume(self) -> None:
        """Rewrite them once more; the ids of the next batch have crossed ranks, and do not again."""
        self.pipeline.attach(sparse_dist=False)


class _ToTables(torch.fx.Tracer):
    """Follows modules that have tables within, as TorchRec's own tracer does."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is taken whole: tables, and what has none."""
        return isinstance(m, ShardedModule) or not any(isinstance(each, ShardedModule) for each in m.modules())
