"""What thresholding.py compares beside the product: messages in fp16, and a model whose layers are split."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from recsmith.plans import Plan
from recsmith.training.collectives.quantised import RunComms

SHARES_OF_ACTIVATIONS = (1.0, 0.25, 0.125, 0.05)
WIDE = 512  # activations at the boundary, of a sample


class Halves:
    """Pooled embeddings, their gradients and those of dense layers in fp16: TorchRec's codecs and PyTorch's hook."""

    def __init__(self) -> None:
        self.half = RunComms(forward="fp16", backward="fp16")

    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Of fp16."""
        return self.half.bytes_per_value()

    def sharding_types(self) -> None:
        """All types."""

    def refuses(self, plan: Plan) -> None:
        """No plan."""

    def codecs(self) -> Any:
        """TorchRec's."""
        return self.half.codecs()

    def attach(self, model: Any) -> Any:
        """PyTorch's hook."""
        return None, fp16_compress_hook


class Crossing(torch.autograd.Function):
    """What crosses a boundary between layers: of each sample the largest activations, and the largest gradients."""

    @staticmethod
    def forward(ctx: Any, activations: Tensor, share: float) -> Tensor:
        """activations: (samples, WIDE)."""
        ctx.share = share
        return largest(activations, share)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        """Their own largest, not those of the activations."""
        return largest(gradient, ctx.share), None


def largest(rows: Tensor, share: float) -> Tensor:
    """The rows with zeros in place of all but the largest numbers of each."""
    kept = torch.topk(rows.abs(), max(1, round(share * rows.shape[1])), dim=1).indices
    return torch.zeros_like(rows).scatter_(1, kept, rows.gather(1, kept))


class SplitLayers(nn.Module):
    """Embeddings and dense features -> layers -> a boundary -> layers -> logits."""

    def __init__(self, tables: Any, dense: int, share: float) -> None:
        super().__init__()
        self.tables = tables
        width = sum(config.embedding_dim for config in tables.embedding_bag_configs())
        self.before = nn.Sequential(nn.Linear(dense + width, WIDE), nn.ReLU())
        self.boundary = Boundary(share)
        self.after = nn.Sequential(nn.Linear(WIDE, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, sparse: Any) -> Tensor:
        """Logits (samples, 1)."""
        embeddings = self.tables(sparse).values()
        return self.after(self.boundary(self.before(torch.cat([dense, embeddings], dim=1))))


class Boundary(nn.Module):
    """Thresholds while training; all activations afterwards."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, activations: Tensor) -> Tensor:
        """activations: (samples, WIDE)."""
        crossed: Any = Crossing.apply(activations, self.share) if torch.is_grad_enabled() else activations
        return crossed


def split_layers(tables: Any, dense: int, *, share: float) -> nn.Module:
    """The model of a run: `model: {name: thresholding_parts:split_layers, arguments: {share: 0.05}}`."""
    return SplitLayers(tables, dense, share)
