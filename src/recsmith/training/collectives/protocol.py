"""How values are encoded between ranks: embeddings and their gradients, and the gradients of dense layers.

A collective of yours is a class with these five methods (`comms: {name: my_comms:Rounded, bits: 12}`). The first three
must not need torch, so that plans can be made and priced without it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from recsmith.plans import Plan

Codecs = Mapping[str, Any]  # TorchRec's QuantizedCommCodecs, by the name of the operation (CommOp)
GradientHook = tuple[object, Callable[[Any, Any], Any]]  # state and hook, as DistributedDataParallel registers them


class Collectives(Protocol):
    """How the messages of a job are encoded."""

    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Bytes of an embedding value between ranks, (forward, backward); None: as the kernels produce it."""
        ...

    def sharding_types(self) -> tuple[str, ...] | None:
        """Sharding types whose messages it can carry; None: all. Plans made for it use only these."""
        ...

    def refuses(self, plan: Plan) -> str | None:
        """Why a plan cannot be trained with it, in a sentence; None if it can."""
        ...

    def codecs(self) -> Codecs | None:
        """TorchRec's codecs for embeddings and their gradients; None: values are sent unchanged."""
        ...

    def attach(self, model: Any) -> GradientHook | None:
        """Change the sharded model as needed before it trains, and return the hook that sums gradients of dense layers.

        None: DistributedDataParallel sums them. The hook's state is kept in checkpoints if it has `state_dict()`,
        tensors of this rank by name, and `load_state_dicts(ranks)`, given those of this rank, or of all ranks if their
        number changed.
        """
        ...
