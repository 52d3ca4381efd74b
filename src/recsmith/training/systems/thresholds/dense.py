"""A hook of DistributedDataParallel that sends the largest dense gradients and keeps the rest for later steps.

A rank adds a step's gradient to what it has not sent yet, and sends numbers at or above a threshold: their values, and
the distance of each place to the one before. Every rank sums what all ranks have sent, in the order of ranks, so that
all have the same sums. With 8 bytes for value and place, a ring all-reduce would send 1 / (share x ranks) times as
many bytes; with bf16 and 16-bit places, twice that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

from recsmith.errors import RecSmithError
from recsmith.training.systems.thresholds.sent import Sent
from recsmith.training.systems.thresholds.warming import WarmUp

WARM_UP = "of all.threshold"  # key of the warm-up's state in a checkpoint
GAPS = torch.int16  # type in which distances between places are sent (GAP_BYTES of settings.py)
FARTHEST = 1 << 16  # the largest distance between places that two bytes can express
SAMPLED = 1 << 17  # numbers from which a threshold is measured; of larger parameters, every n-th
# How much the logarithm of a threshold rises if this step sent twice its share, and for each step's share that all
# steps so far sent in excess. Trade-off: larger values follow growing gradients faster, and oscillate more.
STEERED, RECOVERED = 0.1, 0.02
COUNTS = 16  # bytes that state the length of a message and the number of its bucket
MOST = 0.5  # largest change of the threshold in one step, as a logarithm
TINY = torch.finfo(torch.float32).tiny


@dataclass
class ParameterState:
    """A rank's state for a parameter: unsent gradients, threshold, and the number of steps with gradients."""

    left: Tensor
    threshold: float = 0.0
    steps: int = 0
    sent: float = 0.0  # what was sent so far, in units of one step's share


class DenseThresholds:
    """The state of the hook on a rank. settings: Thresholded. model: the sharded model, for parameter names."""

    def __init__(self, settings: Any, model: nn.Module) -> None:
        self.settings = settings
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.of: dict[str, ParameterState] = {}
        self.warm_up: WarmUp | None = None
        if settings.warm_up is not None:
            self.warm_up = WarmUp(settings.dense, settings.ladder)
            self.warm_up.listen(model)
        self.buckets = 0  # buckets that this rank has summed; if ranks differ in it, they are not in the same step
        self.crossed = Sent()

    @property
    def share(self) -> float:
        """The share of gradients to send now."""
        return self.settings.dense if self.warm_up is None else self.warm_up.share

    def count(self, bucket: GradBucket, numbers: int, sent: int) -> None:
        """Count a bucket. numbers: how many of its numbers were sent; sent: in how many bytes."""
        of, ranks = len(bucket.buffer()), dist.get_world_size()
        self.crossed += Sent(
            steps=int(bucket.is_last()), numbers=numbers, of_numbers=of, bytes=sent, of_bytes=_ring_bytes(of, ranks)
        )

    def look(self) -> None:
        """Measure thresholds anew if a warm-up lowers its share now."""
        if self.warm_up is not None and self.warm_up.changed():
            for state in self.of.values():
                state.steps, state.sent = 0, 0.0

    def hook(self) -> tuple[object, Callable[[Any, GradBucket], torch.futures.Future[Tensor]]]:
        """The (state, hook) pair that DistributedDataParallel registers."""
        return self, _sum_largest

    def state(self, name: str, size: int) -> ParameterState:
        """The state of a parameter, created at the first call."""
        if name not in self.of:
            self.of[name] = ParameterState(torch.zeros(size))
        return self.of[name]

    def chosen(self, name: str, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """(places, values) to send of a parameter's flat gradient; the rest is kept for later steps."""
        state = self.state(name, gradient.numel())
        if state.left.device != gradient.device:
            state.left = state.left.to(gradient.device)
        whole = state.left.add_(gradient) if self.settings.residuals else gradient
        if state.steps == 0 and not whole.any():  # the pass of zeros before training, or no gradient yet
            return _nothing(gradient.device)
        state.steps += 1
        if _measured(state.steps, self.settings.renew):
            state.threshold = threshold_of(whole, self.share)
        places = whole.abs().lt_(state.threshold).logical_not_().nonzero().flatten()  # NaN is sent too
        values = whole[places].to(_TYPES[self.settings.values])
        if self.settings.residuals:
            kept = whole[places] - values
            whole[places] = torch.where(kept.isfinite(), kept, 0)
        _steer(state, len(places) / max(1.0, self.share * gradient.numel()))
        return places, values

    def state_dict(self) -> dict[str, Tensor]:
        """The rank's state for a checkpoint: by parameter, unsent gradients and [threshold, steps, sent]."""
        kept: dict[str, Tensor] = {}
        for name, state in self.of.items():
            kept[f"{name}.left"] = state.left
            kept[f"{name}.threshold"] = torch.tensor([state.threshold, state.steps, state.sent], dtype=torch.float64)
        if self.warm_up is not None:
            kept[WARM_UP] = self.warm_up.state()
        return kept

    def load_state_dicts(self, ranks: list[dict[str, Tensor]]) -> None:
        """Continue from states in a checkpoint: this rank's own, or the mean of all if the number of ranks changed.

        Gradients are averaged over ranks, so keeping the mean of unsent gradients on each rank preserves their total
        effect.
        """
        if self.warm_up is not None and WARM_UP in ranks[0]:
            self.warm_up.load([each[WARM_UP] for each in ranks])
        for name in {key.rpartition(".")[0] for key in ranks[0] if key != WARM_UP}:
            left = torch.stack([each[f"{name}.left"] for each in ranks]).mean(0) if len(ranks) > 1 else (
                ranks[0][f"{name}.left"])  # fmt: skip
            known = torch.stack([each[f"{name}.threshold"] for each in ranks]).mean(0)
            threshold, steps, sent = known.tolist()
            self.of[name] = ParameterState(left.clone(), threshold, int(steps), sent)


_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _steer(state: ParameterState, sent: float) -> None:
    """Raise the threshold if this step and all so far sent more than their share, and lower it if they sent less."""
    state.sent += sent
    change = STEERED * (sent - 1) + RECOVERED * (state.sent - state.steps)
    state.threshold = max(TINY, state.threshold * math.exp(min(max(change, -MOST), MOST)))


def _nothing(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, device=device)


def _measured(step: int, renew: int) -> bool:
    """Whether to measure a threshold in a step: at powers of two first, then every `renew` steps."""
    return step % renew == 0 or (step < renew and step & (step - 1) == 0)


def threshold_of(whole: Tensor, share: float) -> float:
    """The absolute value that this share of the numbers reaches or exceeds."""
    sizes = whole[:: math.ceil(whole.numel() / SAMPLED)].abs()
    sizes = sizes[sizes.isfinite()]
    if not len(sizes):
        return TINY
    rank = max(1, round(share * len(sizes)))
    return max(TINY, float(torch.topk(sizes, rank, sorted=False).values.min()))


def _sum_largest(state: DenseThresholds, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Average a bucket over ranks, from the numbers that each rank has chosen of it."""
    buffer, first = bucket.buffer(), 0
    state.look()
    if state.share >= 1:
        state.count(bucket, len(buffer), _ring_bytes(len(buffer), dist.get_world_size()))
        work: Any = dist.all_reduce(buffer.div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])
    places, values = [], []
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        chosen, numbers = state.chosen(state.names[id(parameter)], gradient.flatten())
        places.append(chosen + first)
        values.append(numbers)
        first += gradient.numel()
    state.buckets += 1
    kind = _TYPES[state.settings.values]
    message = encoded(torch.cat(places), torch.cat(values).to(kind), len(buffer))
    counts = _counts(len(message), state.buckets, buffer.device)
    ranks, mine = len(counts), dist.get_rank()
    theirs = [0 if rank == mine else count for rank, count in enumerate(counts)]
    state.count(bucket, sum(map(len, values)), (ranks - 1) * (len(message) + COUNTS))
    received = torch.empty(sum(theirs), dtype=torch.uint8, device=buffer.device)
    given = [0 if rank == mine else len(message) for rank in range(ranks)]
    work = dist.all_to_all_single(received, message.repeat(ranks - 1), theirs, given, async_op=True)

    def summed(_: Any) -> Tensor:
        buffer.zero_()
        for rank, each in enumerate(received.split(theirs)):
            at, numbers = decoded(message if rank == mine else each, kind, len(buffer))
            buffer.index_add_(0, at, numbers.to(buffer.dtype))
        return buffer.div_(ranks)

    return work.get_future().then(summed)


def _ring_bytes(numbers: int, ranks: int) -> int:
    """Bytes that a rank sends in a ring all-reduce of fp32 numbers."""
    return 2 * (ranks - 1) * 4 * numbers // ranks


def _counts(length: int, bucket: int, device: torch.device) -> list[int]:
    """Bytes of every rank's message. Raises RecSmithError if ranks are not at the same step."""
    mine = torch.tensor([length, bucket], dtype=torch.int64, device=device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    counts: list[list[int]] = torch.stack(every).tolist()
    odd = next((rank for rank, (_, other) in enumerate(counts) if other != bucket), None)
    if odd is not None:
        raise RecSmithError(
            f"rank {odd} sums its {counts[odd][1]:,}th bucket of gradients where this rank sums its {bucket:,}th; "
            "ranks train different steps, as when a model of yours skips layers on some ranks"
        )
    return [count for count, _ in counts]


def encoded(places: Tensor, values: Tensor, size: int) -> Tensor:
    """One message (bytes) of numbers at rising places: first all values, then each place's distance to the one before.

    A distance minus 1 takes 16 bits; distances above 65,536 are split by zeros in between. If all `size` numbers, zeros
    included, take no more bytes, they are sent without places.
    """
    before = torch.cat([places.new_full((1,), -1), places[:-1]])
    gaps = places - before - 1
    bridges = gaps // FARTHEST
    if bridges.any():
        at = torch.cumsum(bridges + 1, 0) - 1
        count = int(at[-1]) + 1
        long, zeros = gaps.new_full((count,), FARTHEST - 1), values.new_zeros(count)
        long[at], zeros[at] = gaps % FARTHEST, values
        gaps, values = long, zeros
    if len(values) * (values.itemsize + GAPS.itemsize) >= size * values.itemsize:
        whole = values.new_zeros(size)
        return whole.index_copy_(0, torch.cumsum(gaps + 1, 0) - 1, values).view(torch.uint8)
    return torch.cat([values.view(torch.uint8), gaps.to(torch.int32).to(GAPS).view(torch.uint8)])


def decoded(message: Tensor, kind: torch.dtype, size: int) -> tuple[Tensor, Tensor]:
    """(places, values) of a message about `size` numbers."""
    if len(message) == size * kind.itemsize:  # a message with places never has this length
        return torch.arange(size, device=message.device), message.clone().view(kind)
    count = len(message) // (kind.itemsize + GAPS.itemsize)
    values, gaps = message[: count * kind.itemsize].clone(), message[count * kind.itemsize :].clone()
    distances = (gaps.view(GAPS).to(torch.int64) & (FARTHEST - 1)) + 1
    return torch.cumsum(distances, 0) - 1, values.view(kind)
