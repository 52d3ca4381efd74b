"""Embeddings and their gradients in fewer bits, with TorchRec's codecs, which are FBGEMM's."""

from typing import Any

from recsmith._types import noun
from recsmith.plans import Plan
from recsmith.training.collectives.protocol import Codecs, GradientHook
from recsmith.workloads.data_types import ELEMENT_BYTES, DataType

WITHOUT_SUMS = ("table_wise", "column_wise", "data_parallel")  # their messages are not sums over ranks


@noun
class RunComms:
    """Element types in which embeddings and their gradients are sent between ranks.

    forward: element type of embeddings. backward: element type of their gradients.

    int8 requires tables that are not split by rows, and local batches whose size times a width is a multiple of 32.
    """

    forward: DataType = "fp32"
    backward: DataType = "fp32"

    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Bytes of the element types; None if values are sent unchanged."""
        if self == RunComms():
            return None, None
        return float(ELEMENT_BYTES[self.forward]), float(ELEMENT_BYTES[self.backward])

    def sharding_types(self) -> tuple[str, ...] | None:
        """All types; with int8, only types whose messages are not sums, which TorchRec's codec cannot encode."""
        return WITHOUT_SUMS if "int8" in (self.forward, self.backward) else None

    def refuses(self, plan: Plan) -> str | None:
        """Refuses int8 for a table whose embeddings are summed between ranks."""
        carried = self.sharding_types()
        for placement in plan.placements if carried else ():
            if placement.sharding_type not in WITHOUT_SUMS:
                return (
                    f"comms ask for int8, and table '{placement.table}' is {placement.sharding_type}, whose partial "
                    f"sums TorchRec cannot send in int8; use fp16 or bf16, or a plan of {', '.join(WITHOUT_SUMS)}"
                )
        return None

    def codecs(self) -> Codecs | None:
        """FBGEMM's codecs, for every operation of TorchRec."""
        if self == RunComms():
            return None
        from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry

        kinds = {"fp32": CommType.FP32, "fp16": CommType.FP16, "bf16": CommType.BF16, "int8": CommType.INT8}
        return get_qcomm_codecs_registry(
            QCommsConfig(forward_precision=kinds[self.forward], backward_precision=kinds[self.backward])
        )

    def attach(self, model: Any) -> GradientHook | None:
        """None: dense gradients are summed unchanged."""
        return None
