"""The largest gradients of dense layers, and what is left of them for later steps: a hook of DistributedDataParallel.

A rank adds a step's gradient to what it has not sent yet, and sends what is at least a threshold: values, and how many
places each is after the one before. Every rank sums what all ranks have sent, in the order of ranks, so that all have
the same sums. With values and places of 8 bytes together, the bytes of a ring all-reduce are 1 / (share x ranks) times
as many; with bf16 and 16-bit places, twice that.
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

WARM_UP = "of all.threshold"  # under which a checkpoint keeps what a warm-up knows
GAPS = torch.int16  # in which distances between numbers are sent (GAP_BYTES of settings.py)
FARTHEST = 1 << 16  # places from one number to the next that two bytes can say
SAMPLED = 1 << 17  # numbers of which a threshold is measured; of larger parameters, every n-th
# A threshold rises by so much where a step sent twice as many as it should, and for each step's worth sent so far
# beyond what should have been. trade-off: larger ones follow gradients that grow faster, and swing more.
STEERED, RECOVERED = 0.1, 0.02
COUNTS = 16  # bytes that say how long a message is, and of which bucket
MOST = 0.5  # of a change in one step, as a logarithm
TINY = torch.finfo(torch.float32).tiny


@dataclass
class ParameterState:
    """What a rank keeps of a parameter: what it has not sent, its threshold, and steps in which it had gradients."""

    left: Tensor
    threshold: float = 0.0
    steps: int = 0
    sent: float = 0.0  # steps that would have sent as many, had each sent the share that is wanted


class DenseThresholds:
    """A rank's state of the hook. settings: Thresholded. model: sharded; the names of its parameters are those kept."""

    def __init__(self, settings: Any, model: nn.Module) -> None:
        self.settings = settings
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.of: dict[str, ParameterState] = {}
        self.warm_up: WarmUp | None = None
        if settings.warm_up is not None:
            self.warm_up = WarmUp(settings.dense, settings.ladder)
            self.warm_up.listen(model)
        self.buckets = 0  # that this rank has summed: ranks that differ in it are not in the same step
        self.crossed = Sent()

    @property
    def share(self) -> float:
        """Of the gradients that cross now."""
        return self.settings.dense if self.warm_up is None else self.warm_up.share

    def count(self, bucket: GradBucket, numbers: int, sent: int) -> None:
        """Count a bucket, of which so many numbers were sent in so many bytes."""
        of, ranks = len(bucket.buffer()), dist.get_world_size()
        self.crossed += Sent(
            steps=int(bucket.is_last()), numbers=numbers, of_numbers=of, bytes=sent, of_bytes=_ring_bytes(of, ranks)
        )

    def look(self) -> None:
        """Have thresholds measured anew where a warm-up goes on to a smaller share."""
        if self.warm_up is not None and self.warm_up.changed():
            for state in self.of.values():
                state.steps, state.sent = 0, 0.0

    def hook(self) -> tuple[object, Callable[[Any, GradBucket], torch.futures.Future[Tensor]]]:
        """What DistributedDataParallel registers."""
        return self, _sum_largest

    def state(self, name: str, size: int) -> ParameterState:
        """Of a parameter; made when it is first asked for."""
        if name not in self.of:
            self.of[name] = ParameterState(torch.zeros(size))
        return self.of[name]

    def chosen(self, name: str, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """(places, values) of what is sent of a parameter's gradient, which is flat; the rest stays for later."""
        state = self.state(name, gradient.numel())
        if state.left.device != gradient.device:
            state.left = state.left.to(gradient.device)
        whole = state.left.add_(gradient) if self.settings.residuals else gradient
        if state.steps == 0 and not whole.any():  # the pass of zeros before training, or no gradient yet
            return _nothing(gradient.device)
        state.steps += 1
        if _measured(state.steps, self.settings.renew):
            state.threshold = threshold_of(whole, self.share)
        places = whole.abs().lt_(state.threshold).logical_not_().nonzero().flatten()  # what is no number is sent too
        values = whole[places].to(_TYPES[self.settings.values])
        if self.settings.residuals:
            kept = whole[places] - values
            whole[places] = torch.where(kept.isfinite(), kept, 0)
        _steer(state, len(places) / max(1.0, self.share * gradient.numel()))
        return places, values

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of this rank: by parameter, what was not sent, and [threshold, steps, sent]."""
        kept: dict[str, Tensor] = {}
        for name, state in self.of.items():
            kept[f"{name}.left"] = state.left
            kept[f"{name}.threshold"] = torch.tensor([state.threshold, state.steps, state.sent], dtype=torch.float64)
        if self.warm_up is not None:
            kept[WARM_UP] = self.warm_up.state()
        return kept

    def load_state_dicts(self, ranks: list[dict[str, Tensor]]) -> None:
        """Go on from what ranks of a checkpoint had: this rank's own, or the mean of all where their number changed.

        A sum of gradients is divided by the number of ranks, so that the mean on each rank adds what all had left.
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
    """Raise the threshold where more was sent than should be, now and so far, and lower it where less was."""
    state.sent += sent
    change = STEERED * (sent - 1) + RECOVERED * (state.sent - state.steps)
    state.threshold = max(TINY, state.threshold * math.exp(min(max(change, -MOST), MOST)))


def _nothing(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, device=device)


def _measured(step: int, renew: int) -> bool:
    """Whether a threshold is measured in a step: at powers of two at first, then each `renew` steps."""
    return step % renew == 0 or (step < renew and step & (step - 1) == 0)


def threshold_of(whole: Tensor, share: float) -> float:
    """The size that so large a share of the numbers has at least."""
    sizes = whole[:: math.ceil(whole.numel() / SAMPLED)].abs()
    sizes = sizes[sizes.isfinite()]
    if not len(sizes):
        return TINY
    rank = max(1, round(share * len(sizes)))
    return max(TINY, float(torch.topk(sizes, rank, sorted=False).values.min()))


def _sum_largest(state: DenseThresholds, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket over ranks by what each has chosen of it, and divide by their number."""
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
    """What a rank sends where all numbers cross in fp32."""
    return 2 * (ranks - 1) * 4 * numbers // ranks


def _counts(length: int, bucket: int, device: torch.device) -> list[int]:
    """Bytes of every rank's message; RecSmithError where ranks are not at the same step."""
    mine = torch.tensor([length, bucket], dtype=torch.int64, device=device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    told: list[list[int]] = torch.stack(every).tolist()
    odd = next((rank for rank, (_, other) in enumerate(told) if other != bucket), None)
    if odd is not None:
        raise RecSmithError(
            f"rank {odd} sums its {told[odd][1]:,}th bucket of gradients where this rank sums its {bucket:,}th; ranks "
            "train different steps, as when a model of yours skips layers on some ranks"
        )
    return [count for count, _ in told]


def encoded(places: Tensor, values: Tensor, size: int) -> Tensor:
    """One message (bytes) of numbers at rising places: first all values, then the distance of each place to the last.

    A distance less 1 takes 16 bits; where it is above 65,536, zeros in between bridge it. Where all `size` numbers,
    zeros included, take no more bytes, they are sent without places.
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
    if len(message) == size * kind.itemsize:  # as one with places never is
        return torch.arange(size, device=message.device), message.clone().view(kind)
    count = len(message) // (kind.itemsize + GAPS.itemsize)
    values, gaps = message[: count * kind.itemsize].clone(), message[count * kind.itemsize :].clone()
    distances = (gaps.view(GAPS).to(torch.int64) & (FARTHEST - 1)) + 1
    return torch.cumsum(distances, 0) - 1, values.view(kind)
