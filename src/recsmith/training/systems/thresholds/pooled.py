"""An all-to-all of pooled embeddings that sends the largest columns of each sample, with their numbers.

B samples of all ranks, b of one; D columns of a rank's tables, k of them sent
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchrec.distributed.comm_ops import get_gradient_division
from torchrec.distributed.dist_data import PooledEmbeddingsAllToAll, PooledEmbeddingsAwaitable
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection
from torchrec.distributed.sharding.tw_sharding import TwPooledEmbeddingDist
from torchrec.distributed.types import NoWait

from recsmith.training.systems.thresholds.sent import Sent, column_bytes, kept_of

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
COLUMN_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def replace_pooled(model: nn.Module, settings: Any) -> int:
    """Replace each all-to-all of pooled embeddings in a sharded model by LargestColumns; returns how many."""
    found = [each for each in _output_dists(model) if isinstance(each, TwPooledEmbeddingDist)]
    for number, each in enumerate(found):
        each._create_output_dist_module()
        assert each._dist is not None
        each._dist = LargestColumns(each._dist, settings, first=number == 0)  # type: ignore[assignment]
    return len(found)


def exchanges_of(model: nn.Module) -> "list[LargestColumns]":
    """The LargestColumns of a sharded model."""
    found = (getattr(each, "_dist", None) for each in _output_dists(model))
    return [each for each in found if isinstance(each, LargestColumns)]


def _output_dists(model: nn.Module) -> Iterator[Any]:
    """The modules that send embeddings to the ranks of their samples, in all collections of a sharded model."""
    collections = (each for each in model.modules() if isinstance(each, ShardedEmbeddingBagCollection))
    return (each for collection in collections for each in collection._output_dists)


class LargestColumns(nn.Module):
    """TorchRec's all-to-all of pooled embeddings, for the largest columns of each sample, in evaluation too.

    The model never uses columns that it has not seen in training (kept_columns.py). first: whether this is the model's
    first exchange, which counts its steps. sent: what training has sent, forward and backward.
    """

    def __init__(self, whole: PooledEmbeddingsAllToAll, settings: Any, *, first: bool) -> None:
        super().__init__()
        self.first, self.sent = first, Sent()
        self.whole, self.settings = whole, settings
        self.group = whole._pg
        self.widths: list[int] = list(whole._dim_sum_per_rank)

    def forward(self, local_embs: Tensor, batch_size_per_rank: list[int] | None = None) -> PooledEmbeddingsAwaitable:
        """Start the exchange; awaits (b, D of all ranks). local_embs: (B, D) of this rank's tables."""
        ranks = self.group.size()
        sizes = batch_size_per_rank or [len(local_embs) // ranks] * ranks
        if torch.is_grad_enabled():
            self._count(sizes)
        made: Any = _Exchange.apply(local_embs, sizes, self.widths, self.group, self.settings)
        awaitable = PooledEmbeddingsAwaitable(tensor_awaitable=NoWait(made))
        awaitable.callbacks.extend(self.whole.callbacks)  # these join the columns of a table
        return awaitable

    def _count(self, sizes: list[int]) -> None:
        """Count the numbers and bytes of a step. sizes: b of every rank."""
        mine, kept = dist.get_rank(self.group), [kept_of(width, self.settings.pooled) for width in self.widths]
        there, here = sum(sizes) - sizes[mine], sizes[mine]  # samples sent forward, and back to each other rank

        def crossing(columns: list[int]) -> int:
            return there * columns[mine] + here * (sum(columns) - columns[mine])

        forward, backward = (
            [self.settings.message_bytes(width, placed=placed) for width in self.widths]
            for placed in (True, self.settings.gradients == "largest")
        )
        numbers, of = crossing(kept), crossing(self.widths)
        sent = there * forward[mine] + here * (sum(backward) - backward[mine])
        self.sent += Sent(steps=int(self.first), numbers=numbers, of_numbers=of, bytes=sent, of_bytes=4 * of)


class _Exchange(torch.autograd.Function):
    """Forward: a rank's columns of all samples to their ranks. Backward: gradients of all columns to their tables."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, sizes: list[int], widths: list[int], group: Any, settings: Any) -> Tensor:
        """Send the largest columns of each sample, and scatter the received ones among zeros."""
        mine = dist.get_rank(group)
        kept = [kept_of(width, settings.pooled) for width in widths]
        columns = largest(local, kept[mine])
        message = _message(local, columns, widths[mine], settings)
        lengths = [settings.message_bytes(width) for width in widths]
        received = _exchanged(
            message, [size * lengths[mine] for size in sizes], [sizes[mine] * n for n in lengths], group
        )
        parts = [
            _read(each, sizes[mine], width, k, settings) for each, width, k in zip(received, widths, kept, strict=True)
        ]
        ctx.sizes, ctx.widths, ctx.group, ctx.settings, ctx.kept = sizes, widths, group, settings, kept
        ctx.columns, ctx.came = columns, [at for at, _ in parts]
        return torch.cat([among_zeros(at, numbers, width, local.dtype)
                          for (at, numbers), width in zip(parts, widths, strict=True)], dim=1)  # fmt: skip

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        """Send gradients of each sample to its tables' ranks: the largest, or those of the columns received before."""
        mine, settings, sizes = dist.get_rank(ctx.group), ctx.settings, ctx.sizes
        placed = settings.gradients == "largest"
        messages, lengths = [], []
        for part, width, k, came in zip(gradient.split(ctx.widths, dim=1), ctx.widths, ctx.kept, ctx.came, strict=True):
            columns = largest(part, k) if placed else came
            messages.append(_message(part, columns, width, settings, placed=placed).flatten())
            lengths.append(settings.message_bytes(width, placed=placed))
        received = _exchanged(
            torch.cat(messages), [sizes[mine] * n for n in lengths], [n * lengths[mine] for n in sizes], ctx.group
        )
        width, k = ctx.widths[mine], ctx.kept[mine]
        at, numbers = _read(torch.cat(received), sum(sizes), width, k, settings, placed=placed)
        made = among_zeros(at if placed else ctx.columns, numbers, width, gradient.dtype)
        return made.div_(dist.get_world_size(ctx.group)) if get_gradient_division() else made, None, None, None, None


def largest(rows: Tensor, kept: int) -> Tensor:
    """(samples, kept) columns of the largest absolute values of each row."""
    return torch.topk(rows.abs(), kept, dim=1, sorted=False).indices


def _message(rows: Tensor, columns: Tensor, width: int, settings: Any, placed: bool = True) -> Tensor:
    """(samples, bytes) of the numbers at these columns, followed by the column numbers if `placed`."""
    numbers = rows.gather(1, columns).to(TYPES[settings.values]).view(torch.uint8)
    return (
        torch.cat([numbers, columns.to(COLUMN_TYPES[column_bytes(width)]).view(torch.uint8)], dim=1)
        if placed
        else numbers
    )


def _read(
    message: Tensor, samples: int, width: int, kept: int, settings: Any, placed: bool = True
) -> tuple[Tensor, Tensor]:
    """(columns, numbers) of this many samples; without columns if they were not sent."""
    rows, size = message.view(samples, settings.message_bytes(width, placed=placed)), kept * settings.value_bytes
    # flat, since PyTorch cannot view rows of zero bytes, from a rank without such tables, as another type
    numbers = rows[:, :size].flatten().view(TYPES[settings.values]).view(samples, kept)
    columns = (
        rows[:, size:].flatten().view(COLUMN_TYPES[column_bytes(width)]).view(samples, kept) if placed else rows[:, :0]
    )
    return columns.to(torch.int64), numbers


def among_zeros(columns: Tensor, numbers: Tensor, width: int, kind: torch.dtype) -> Tensor:
    """(samples, width) of a type, with numbers at their columns and zeros elsewhere."""
    return numbers.new_zeros(len(numbers), width, dtype=kind).scatter_(1, columns, numbers.to(kind))


def _exchanged(message: Tensor, given: list[int], taken: list[int], group: Any) -> tuple[Tensor, ...]:
    """What every rank has sent to this one. given, taken: bytes sent to, and received from, each rank."""
    received = message.new_empty(sum(taken))
    dist.all_to_all_single(received, message.flatten(), taken, given, group=group)
    return received.split(taken)
