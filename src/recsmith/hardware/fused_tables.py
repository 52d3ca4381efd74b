# pyright: basic
"""FBGEMM's fused tables in memory that was allocated before (imports torch and FBGEMM).

Weights, optimizer states and gradients of all cases have one allocation each, or weights and states share one. Tables
are stored one after the other from its start, so no two tables of a case share memory, and no case includes the time of
an allocation. Cases that run in one step have separate parts of it. The learning rate is 0: kernels do all their work,
and weights do not change.
"""

import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recsmith.hardware.case import Case, CaseScale, starts_of
from recsmith.workloads.optimizers import CPU_OPTIMIZERS, OPTIMIZERS, OptimizerName

logging.disable(logging.WARNING)  # FBGEMM warns of PyTorch releases that its table does not know yet
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType  # noqa: E402
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode  # noqa: E402
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (  # noqa: E402
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

logging.disable(logging.NOTSET)

GPU_OPTIMIZERS: tuple[OptimizerName, ...] = (*CPU_OPTIMIZERS, "adam")  # FBGEMM has no CPU kernels of Adam
FUSED = {name: EmbOptimType[OPTIMIZERS[name].fbgemm_name] for name in GPU_OPTIMIZERS}
DATA_TYPES = {"fp32": SparseType.FP32, "fp16": SparseType.FP16}
POOLINGS = {"sum": PoolingMode.SUM, "mean": PoolingMode.MEAN, "none": PoolingMode.NONE}
WEIGHT_BITS = 0x3C00  # 1 as fp16, two of them 0.0078 as fp32: arithmetic never meets denormal numbers
STATE, GRADIENT = 1e-3, 1e-2  # value of every element: any whose squares and roots are no denormal numbers


class Memory(NamedTuple):
    """Memory for the cases of a scale; each case uses it from the start. weights: in 16 bits, two for an fp32 element.

    state: empty if states are stored after the weights.
    """

    weights: Tensor
    state: Tensor
    gradient: Tensor

    @classmethod
    def of(cls, scale: CaseScale, device: torch.device) -> "Memory":
        """Allocate the memory of a scale on a device."""
        return cls(
            torch.full((2 * scale.elements,), WEIGHT_BITS, dtype=torch.int16, device=device),
            torch.full((scale.elements if scale.apart else 0,), STATE, device=device),
            torch.full((scale.outputs,), GRADIENT, device=device),
        )

    def beyond(self, elements: int, outputs: int) -> "Memory":
        """The part that begins after this many elements of weights, and of outputs."""
        return Memory(self.weights[2 * elements :], self.state[elements:], self.gradient[outputs:])

    def of_case(self, case: Case) -> "Memory":
        """The memory of a case that begins here; with fresh values if its states are stored after its weights."""
        if len(self.state):
            return self
        behind, states = starts_of([case.elements, case.states])[1], case.states
        weights, state = (
            self.weights[: 2 * behind],
            self.weights[2 * behind : 2 * (behind + states)].view(torch.float32),
        )
        weights[: case.elements * (2 if case.data_type == "fp32" else 1)].fill_(WEIGHT_BITS)
        state.fill_(STATE)
        return Memory(weights, state, self.gradient)


class FusedTables(SplitTableBatchedEmbeddingBagsCodegen):
    """The tables of a case as FBGEMM fuses them, in given memory; FBGEMM checks ids against rows, as in TorchRec."""

    memory: Memory
    states: int  # elements of the states that have their place already

    def __init__(self, case: Case, memory: Memory, learning_rate: float = 0.0, stochastic: bool = True) -> None:
        """stochastic: whether a GPU rounds updated fp16 weights at random, as FBGEMM and TorchRec do by default."""
        cuda = memory.weights.is_cuda
        place = EmbeddingLocation.DEVICE if cuda else EmbeddingLocation.HOST
        compute = ComputeDevice.CUDA if cuda else ComputeDevice.CPU
        self.__dict__["memory"] = memory  # nn.Module accepts attributes only once it is initialised
        self.__dict__["states"] = 0
        super().__init__(
            [(table.num_embeddings, table.embedding_dim, place, compute) for table in case.tables],
            optimizer=FUSED[case.workload.optimizer],
            weights_precision=DATA_TYPES[case.data_type],
            pooling_mode=POOLINGS[case.tables[0].pooling],
            learning_rate=learning_rate,
            stochastic_rounding=stochastic,
            device=memory.weights.device,
        )

    def _apply_split(self, split: Any, prefix: str, dtype: Any, *_: Any, **__: Any) -> None:
        """Take weights (prefix 'weights') and states ('momentum1', ...) from memory; FBGEMM 1.6 to 1.8 allocates them.

        It sets the same attributes as FBGEMM's own method: offsets and placements of tables, and buffers on device and
        host.
        """
        size = split.host_size + split.dev_size
        if prefix == "weights":
            mine = self.memory.weights.view(dtype)[:size]
        else:
            mine = self.memory.state.view(dtype)[self.states : self.states + size]
            self.__dict__["states"] = self.states + size
        if mine.numel() != size:  # kernels would write beyond its end
            raise RuntimeError(f"{prefix} has {size:,} elements, and the memory of the scale {mine.numel():,}")
        place = mine.device
        empty = torch.empty(0, dtype=dtype, device=place)
        setattr(self, f"{prefix}_physical_placements", split.placements)
        setattr(self, f"{prefix}_physical_offsets", split.offsets)
        placements = [int(placement) for placement in split.placements]
        self.register_buffer(f"{prefix}_offsets", torch.tensor(split.offsets, device=place))
        self.register_buffer(f"{prefix}_placements", torch.tensor(placements, device=place, dtype=torch.int32))
        self.register_buffer(f"{prefix}_dev", mine if split.dev_size else empty)
        self.register_buffer(f"{prefix}_uvm", empty)
        if split.host_size:
            setattr(self, f"{prefix}_host", nn.Parameter(mine))
        else:
            self.register_buffer(f"{prefix}_host", empty)
