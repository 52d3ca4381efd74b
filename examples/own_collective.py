"""A collective of one's own: embeddings cross ranks rounded to a few bits. Run: python examples/own_collective.py.

A run names it as `comms: {name: own_collective:Rounded, bits: 6}`; nothing else of RecSmith knows of it.
"""

import tempfile

import torch
from torchrec.distributed.types import CommOp, QuantizedCommCodec, QuantizedCommCodecs

from recsmith import load_plan
from recsmith.training import Run, RunData, train

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 100}]}


class RoundingCodec(QuantizedCommCodec):
    """Values with so many bits of mantissa. They still travel as fp32: what they would take is what is priced."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def encode(self, input_tensor: torch.Tensor, ctx: object = None) -> torch.Tensor:
        """Rounded to the nearest."""
        mantissa, exponent = torch.frexp(input_tensor)
        return torch.ldexp((mantissa * 2**self.bits).round() / 2**self.bits, exponent)

    def decode(self, input_grad: torch.Tensor, ctx: object = None) -> torch.Tensor:
        """As they came."""
        return input_grad

    @property
    def quantized_dtype(self) -> torch.dtype:
        """Of what is sent."""
        return torch.float32

    def calc_quantized_size(self, input_len: int, ctx: object = None) -> int:
        """As many values as before."""
        return input_len

    def create_context(self) -> None:
        """None is needed."""

    def padded_size(self, input_tensor, dim_per_rank, my_rank, qcomm_ctx) -> tuple[int, int]:
        """No padding."""
        return input_tensor.shape[1], 0


class Rounded:
    """Embeddings and their gradients with so many bits of mantissa, beside a sign and eight bits of exponent."""

    def __init__(self, *, bits: int = 6) -> None:
        self.bits = bits

    def bytes_per_value(self) -> tuple[float, float]:
        """What a cost model counts."""
        return (9 + self.bits) / 8, (9 + self.bits) / 8

    def sharding_types(self) -> None:
        """Every type."""

    def refuses(self, plan) -> None:
        """No plan."""

    def codecs(self) -> dict[str, QuantizedCommCodecs]:
        """One of each operation."""
        return {op.name: QuantizedCommCodecs(RoundingCodec(self.bits), RoundingCodec(self.bits)) for op in CommOp}

    def attach(self, model) -> None:
        """Dense gradients are summed as they are."""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(
            train={**CLICKS, "num_samples": 8000}, test={**CLICKS, "first_sample": 8000, "num_samples": 2000}
        )
        for bits in (23, 2):
            run = Run(
                data=data, output=f"{folder}/{bits}", comms={"name": "own_collective:Rounded", "bits": bits}, ranks=2
            )
            print(f"{bits} bits: log loss {train(run)['test']['logloss']:.4f} on data.test;", end=" ")
            print("priced at", load_plan(f"{folder}/{bits}/plan.json").workload.comm_bytes, "bytes a value")
