"""What crosses ranks, and in which form: embeddings and their gradients, and the gradients of dense layers.

A collective of yours is a class with these five methods (`comms: {name: my_comms:Rounded, bits: 12}`). None of the
first three needs torch, so that plans are made and priced under it without.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from recsmith.plans import Plan

Codecs = Mapping[str, Any]  # TorchRec's QuantizedCommCodecs, by the name of the operation (CommOp)
GradientHook = tuple[object, Callable[[Any, Any], Any]]  # state and hook, as DistributedDataParallel registers them


class Collectives(Protocol):
    """How the messages of a job are encoded."""

    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Bytes in which an embedding value crosses ranks, forward and backward; None: as the kernels produce it."""
        ...

    def sharding_types(self) -> tuple[str, ...] | None:
        """Types of tables whose messages it can carry; None: all. Plans that are made for it have no others."""
        ...

    def refuses(self, plan: Plan) -> str | None:
        """Why a plan cannot be trained under it, in a sentence; None where it can."""
        ...

    def codecs(self) -> Codecs | None:
        """What TorchRec encodes embeddings and their gradients with; None: they are sent as they are."""
        ...

    def attach(self, model: Any) -> GradientHook | None:
        """Change what you have to in the sharded model, before it trains, and say what sums gradients of dense layers.

        None: DistributedDataParallel itself does. A state of the hook with `state_dict()`, by name a tensor of this
        rank, and `load_state_dicts(ranks)`, of one rank or of all that there were, is kept in checkpoints.
        """
        ...
