"""Estimates a rank's memory for everything except its embedding shards, from the model, before training.

Parameters outside of the planned collections are trained by DistributedDataParallel on every rank, as
DefaultDataParallelWrapper of torchrec/distributed/model_parallel.py wraps them: gradients are views of DDP's buckets
(gradient_as_bucket_view=True), so they are stored once. Activations and the CUDA context are not counted, because they
cannot be derived from the parameters.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from recsmith._types import noun
from recsmith.adapters.embedding_collections import Collection
from recsmith.adapters.field_policies import remaps_ids
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.problems.memory import batch_bytes
from recsmith.units import format_size
from recsmith.workloads import Workload


@noun
class OptimizerMemory:
    """Memory of an optimizer of torch.optim, permanent and during its step, as multiples of the parameters' bytes.

    states: permanent state of each parameter, in its type. On CPU the step updates parameters one by one
    (_single_tensor_* of torch/optim, 2.13): it holds `temporaries` copies of this parameter and `leftovers` copies of
    the previous one. On CUDA it updates all at once (_multi_tensor_*) and holds `together` copies of all parameters.
    """

    states: int
    temporaries: int
    leftovers: int
    together: int


DENSE_OPTIMIZERS = {
    "sgd": OptimizerMemory(states=0, temporaries=0, leftovers=0, together=0),
    "sgd_momentum": OptimizerMemory(states=1, temporaries=0, leftovers=0, together=0),
    "adagrad": OptimizerMemory(states=1, temporaries=1, leftovers=1, together=2),
    "rmsprop": OptimizerMemory(states=1, temporaries=1, leftovers=1, together=1),
    "adam": OptimizerMemory(states=2, temporaries=2, leftovers=1, together=1),
    "adamw": OptimizerMemory(states=2, temporaries=2, leftovers=1, together=1),
}
ASSUMED_OPTIMIZER = "adam"  # none of DENSE_OPTIMIZERS has more state; for another optimizer the estimate is too large


@noun
class DenseMemory:
    """Bytes of each rank in addition to its embedding shards.

    parameters: weights and buffers. gradients: DDP's buckets. state: the dense optimizer's state. batch: ids of the
    local batches in flight, the embeddings received for one, and their gradients, as the all-to-all orders them. extra:
    temporary memory beyond the other parts: that of the optimizer's step, or in backward that of the largest gradient
    before it is copied into its bucket.
    """

    optimizer: str
    parameters: int
    gradients: int
    state: int
    batch: int
    extra: int

    @property
    def total(self) -> int:
        """The sum of all parts, in bytes."""
        return self.parameters + self.gradients + self.state + self.batch + self.extra

    def describe(self) -> str:
        """A text that lists the parts with their sizes."""
        named = (
            (self.parameters, "dense parameters and buffers"),
            (self.gradients, "gradients"),
            (self.state, f"state of {self.optimizer}"),
            (self.batch, "the local batch and its embeddings"),
            (self.extra, "temporaries of a step"),
        )
        return ", ".join(f"{format_size(size)} for {what}" for size, what in named)


def check_dense_optimizer(name: str) -> None:
    """Raise UsageError for an optimizer whose memory is not known."""
    if name not in DENSE_OPTIMIZERS:
        raise UsageError(
            f"dense_optimizer is '{name}'{did_you_mean(name, list(DENSE_OPTIMIZERS))}; known: "
            f"{', '.join(DENSE_OPTIMIZERS)}; for another, name the one that keeps as much per weight, or state "
            "reserve_bytes="
        )


def dense_memory(
    model: nn.Module, found: Sequence[Collection], workload: Workload, *, optimizer: str, world_size: int, on_cpu: bool
) -> DenseMemory:
    """The estimated memory of a model, on any device (also meta), except for its planned collections.

    Args:
        model: the whole model.
        found: its collections that are planned.
        workload: the batch size, features and tables of the job.
        optimizer: the dense optimizer, a key of DENSE_OPTIMIZERS.
        world_size: number of ranks.
        on_cpu: whether the optimizer steps on CPU, parameter by parameter.

    Raises:
        UsageError: a lazy module has no shape yet.
    """
    modules = [each.outer if remaps_ids(each.outer) else each.module for each in found]
    planned = {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}
    rest = [tensor for tensor in model.parameters() if id(tensor) not in planned]
    buffers = [tensor for tensor in model.buffers() if id(tensor) not in planned]
    _check_shapes(model)
    trained = [_bytes(tensor) for tensor in rest if tensor.requires_grad]
    kept = DENSE_OPTIMIZERS[optimizer]
    batch = batch_bytes(workload, world_size)
    in_backward = batch + max(trained, default=0)  # a gradient is computed, then copied into its bucket
    return DenseMemory(
        optimizer=optimizer, parameters=_sum(rest) + _sum(buffers), gradients=sum(trained),
        state=kept.states * sum(trained), batch=batch, extra=max(in_backward, _step(kept, trained, on_cpu)) - batch,
    )  # fmt: skip


def _check_shapes(model: nn.Module) -> None:
    lazy = [name for name, tensor in model.named_parameters() if isinstance(tensor, UninitializedParameter)]
    if lazy:
        raise UsageError(
            f"parameter '{lazy[0]}' has no shape yet, so the memory of the dense model cannot be estimated; run the "
            "model once before planning, or state reserve_bytes="
        )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _sum(tensors: Iterable[Tensor]) -> int:
    return sum(_bytes(tensor) for tensor in tensors)


def _step(optimizer: OptimizerMemory, sizes: Sequence[int], on_cpu: bool) -> int:
    """The most bytes that the optimizer's step takes in addition to parameters, gradients and state."""
    if not on_cpu:
        return optimizer.together * sum(sizes)
    return max(
        (optimizer.leftovers * last + optimizer.temporaries * now for last, now in pairwise((0, *sizes))), default=0
    )
