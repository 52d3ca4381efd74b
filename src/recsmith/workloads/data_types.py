"""The data types and poolings of tables that TorchRec trains, with their names in torch, TorchRec and FBGEMM."""

from typing import Literal

from recsmith._types import noun

DataType = Literal["fp32", "fp16", "bf16", "int8"]
# in capitals, these are members of TorchRec's PoolingType and FBGEMM's PoolingMode
Pooling = Literal["sum", "mean", "none"]


@noun
class ElementType:
    """A data type of weights, or of values in collectives.

    bytes: bytes of an element.
    torch: name of the torch dtype that holds it.
    member: its name in TorchRec's DataType and CommType, and in FBGEMM's SparseType.
    """

    name: DataType
    bytes: int
    torch: str
    member: str


DATA_TYPES: dict[str, ElementType] = {
    each.name: each
    for each in (
        ElementType(name="fp32", bytes=4, torch="float32", member="FP32"),
        ElementType(name="fp16", bytes=2, torch="float16", member="FP16"),
        ElementType(name="bf16", bytes=2, torch="bfloat16", member="BF16"),
        ElementType(name="int8", bytes=1, torch="uint8", member="INT8"),
    )
}
ELEMENT_BYTES: dict[str, int] = {each.name: each.bytes for each in DATA_TYPES.values()}
