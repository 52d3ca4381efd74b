"""What the codecs of TorchRec's sharders send: the element types of the all-to-alls, forward and backward."""

import warnings
from collections.abc import Iterator, Sequence

import torch
from torchrec.distributed.types import CommOp
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsmith.adapters.embedding_collections import Collection
from recsmith.errors import UsageError
from recsmith.workloads.data_types import ELEMENT_BYTES, DataType

# Operations whose codecs carry embeddings and gradients in training (TorchRec 1.8).
POOLED_OPS = (CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL.name, CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER.name)
SEQUENCE_OPS = (CommOp.SEQUENCE_EMBEDDINGS_ALL_TO_ALL.name,)
# Of messages. int8, fp8 and MX4 travel as bytes and count as one an element, as TorchRec's own planner counts them
# (build_sharder_data of torchrec/distributed/planner/utils.py): their scales, and that MX4 halves a byte, are left out.
WORDS: dict[torch.dtype, DataType] = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.uint8: "int8", torch.int8: "int8",
}  # fmt: skip
BYTES_PER_VALUE = "bytes_per_value"  # of a codec that sends no element type
Ways = tuple[DataType, DataType]  # forward and backward


def comm_bytes(found: Sequence[Collection]) -> tuple[float, float] | None:
    """Bytes of a value, forward and backward, where codecs of yours say them (`bytes_per_value`); None: no codec does.

    Operations whose codecs differ are counted by the most.
    """
    registries = [collection.embedding_sharder.qcomm_codecs_registry or {} for collection in found]
    codecs = [each[op] for each in registries for op in (*POOLED_OPS, *SEQUENCE_OPS) if op in each]
    ways = [[getattr(way, BYTES_PER_VALUE, None) for way in (each.forward, each.backward)] for each in codecs]
    said = [(forward, backward) for forward, backward in ways if forward is not None and backward is not None]
    return (max(forward for forward, _ in said), max(backward for _, backward in said)) if said else None


def comm_dtypes(found: Sequence[Collection]) -> tuple[DataType | None, DataType | None]:
    """(comm_dtype, backward_comm_dtype) of the workload whose messages the sharders' codecs send; None: not set.

    Operations or sharders that differ are counted by the widest of their types, with a warning.

    Raises:
        UsageError: a codec sends a type that is not known.
    """
    sent = dict.fromkeys(pair for collection in found for pair in _operations(collection))
    kinds = {ways for _, ways in sent}
    if kinds <= {("fp32", "fp32")}:
        return None, None
    forward, backward = _widest({one for one, _ in kinds}), _widest({other for _, other in kinds})
    if len(kinds) > 1:
        said = ", ".join(f"{op.lower()} {one} and {other}" for op, (one, other) in sent)
        warnings.warn(
            f"codecs of the sharders send several types (forward and backward: {said}); planning counts the widest, "
            f"{forward} forward and {backward} backward",
            stacklevel=3,
        )
    return forward, None if backward == forward else backward


def _operations(collection: Collection) -> Iterator[tuple[str, Ways]]:
    """(operation, what it sends forward and backward) of a collection; fp32 where there is no codec."""
    registry = collection.embedding_sharder.qcomm_codecs_registry or {}
    for op in POOLED_OPS if isinstance(collection.module, EmbeddingBagCollection) else SEQUENCE_OPS:
        codecs = registry.get(op)
        yield op, ("fp32", "fp32") if codecs is None else (_word(op, codecs.forward), _word(op, codecs.backward))


def _word(op: str, codec: object) -> DataType:
    if getattr(codec, BYTES_PER_VALUE, None) is not None:
        return "fp32"  # comm_bytes says what it really sends
    kind = getattr(codec, "quantized_dtype", None)
    if kind not in WORDS:
        raise UsageError(
            f"the codec of {op} sends {kind}, which planning does not know; it knows {', '.join(map(str, WORDS))}"
        )
    return WORDS[kind]


def _widest(kinds: set[DataType]) -> DataType:
    return max(sorted(kinds), key=lambda kind: ELEMENT_BYTES[kind])
