"""A step of several batches: dense layers are updated by the mean of their gradients, tables after each batch.

FBGEMM updates tables within the backward pass, where a gradient is used at once and not stored. So the gradients of
tables cannot be accumulated over batches, and tables are updated as often as there are batches.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen

from recsmith.errors import UsageError, check_rules, outside
from recsmith.training.batches import Place, TrainingBatch
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.run.run import ACCUMULATED
from recsmith.training.steps.protocol import StepOutcome, UnpipelinedStep
from recsmith.training.stores.kernels import kernels_in

MOST = 2**16
UNCOUNTED = (EmbOptimType.EXACT_SGD, EmbOptimType.EXACT_ADAGRAD, EmbOptimType.EXACT_ROWWISE_ADAGRAD)


class AccumulatedStep(UnpipelinedStep):
    """Updates dense layers once for several batches, by the mean of their gradients, and tables for each batch.

    batches: batches of a step; the last step of a run may have fewer.

    Raises:
        UsageError: `batches` is out of range, or tables have an optimizer that counts its steps.
    """

    def __init__(self, job: ShardedJob, *, batches: int = ACCUMULATED) -> None:
        self.check_settings(batches=batches)
        self.job, self.batches = job, batches
        tables = kernels_in(job.model, SplitTableBatchedEmbeddingBagsCodegen)
        odd = next((each.optimizer for each in tables if each.optimizer not in UNCOUNTED), None)
        if odd is not None:
            raise UsageError(
                f"pipeline is accumulated, in which tables learn from each batch, and {odd.name.lower()} counts steps; "
                "write optimizers.sparse.name: sgd, adagrad or rowwise_adagrad"
            )

    @classmethod
    def check_settings(cls, *, batches: int = ACCUMULATED) -> None:
        """UsageError if the number of batches is out of range."""
        check_rules(outside("pipeline.batches", batches, 1, MOST))

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train on the next batches."""
        job, optimizer = self.job, self.job.optimizer
        optimizer.zero_grad()
        found: list[tuple[Any, ...]] = []
        for batch in islice(batches, self.batches):
            loss, outcome = job.model(batch.to(job.device))
            loss.backward()
            found.append(outcome)
        if not found:
            raise StopIteration
        for name, part in optimizer.optimizers:
            if name != "sparse":
                self._mean(part, len(found))
        optimizer.step()
        losses, logits, labels, places = zip(*found, strict=True)
        together: tuple[Place, ...] = tuple(places)
        return StepOutcome(torch.stack(losses).mean(), torch.cat(logits), torch.cat(labels), together)

    def _mean(self, optimizer: Any, count: int) -> None:
        """Divide accumulated gradients by the number of batches."""
        for parameter in optimizer.params.values():
            if parameter.grad is not None:
                parameter.grad.div_(count)
