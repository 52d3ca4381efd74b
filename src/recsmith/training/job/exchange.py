"""Moves parts of tensors between ranks, from memory to memory, from one sharding to another.

Every rank knows which rectangles all ranks hold and want, so each computes alone what it sends and receives. A rank
copies what it holds itself; a part that several ranks hold comes from one of them.

A rectangle of a tensor is (corner, shape), each with one number for each dimension.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from recsmith.errors import RecSmithError

Place = tuple[int, ...]
Rectangle = tuple[Place, Place]
Held = tuple[Place, torch.Tensor]  # (corner in the whole tensor, the part)
Layout = dict[str, list[Rectangle]]  # rectangles of a rank, by tensor name


class Transfer(NamedTuple):
    """A part that moves from one rank's piece to another rank's; `corner` and `shape` refer to the whole tensor."""

    source: int
    piece: int
    target: int
    wanted: int
    corner: Place
    shape: Place


def exchange(before: Mapping[str, Sequence[Held]], after: Mapping[str, Sequence[Held]], group: Any) -> dict[str, int]:
    """Fill the tensors of `after` from those of `before` on all ranks; returns the bytes that this rank received.

    Every rank must call it. before: in host memory, with the element types of `after`. group: CPU process group of all
    ranks. The bytes are by tensor name.

    Raises:
        RecSmithError: a part that some rank wants is held by no rank.
    """
    layouts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(layouts, (_layout(before), _layout(after)), group=group)
    received: dict[str, int] = {}
    for name in sorted({name for _, wanted in layouts for name in wanted}):
        received[name] = _filled(
            transfers(name, [held for held, _ in layouts], [wanted for _, wanted in layouts]),
            before.get(name, ()), after.get(name, ()), group,
        )  # fmt: skip
    return received


def transfers(name: str, held: Sequence[Layout], wanted: Sequence[Layout]) -> list[Transfer]:
    """All sends and copies that give every rank what it wants of a tensor; the same list on each rank."""
    holders: defaultdict[Rectangle, dict[int, int]] = defaultdict(dict)
    for rank, layout in enumerate(held):
        for piece, rectangle in enumerate(layout.get(name, ())):
            holders[rectangle].setdefault(rank, piece)
    found: list[Transfer] = []
    for rank, layout in enumerate(wanted):
        for number, whole in enumerate(layout.get(name, ())):
            parts = list(_parts(rank, number, whole, holders))
            if sum(prod(part.shape) for part in parts) != prod(whole[1]):
                raise RecSmithError(f"'{name}' cannot be moved: no rank holds all of its {whole[1]} at {whole[0]}")
            found += parts
    return found


def _parts(
    rank: int, number: int, whole: Rectangle, holders: Mapping[Rectangle, Mapping[int, int]]
) -> Iterator[Transfer]:
    """The transfers that fill a wanted rectangle."""
    for rectangle, pieces in holders.items():
        corner = tuple(map(max, rectangle[0], whole[0]))
        shape = tuple(end - begin for begin, end in zip(corner, map(min, _end(rectangle), _end(whole)), strict=True))
        if all(size > 0 for size in shape):
            source = rank if rank in pieces else sorted(pieces)[rank % len(pieces)]
            yield Transfer(source, pieces[source], rank, number, corner, shape)


def _filled(parts: Sequence[Transfer], before: Sequence[Held], after: Sequence[Held], group: Any) -> int:
    """Send, receive and copy the parts of a tensor; returns the bytes that this rank received."""
    me, work, arriving, received = dist.get_rank(group), list[Any](), list[tuple[torch.Tensor, torch.Tensor]](), 0
    for part in parts:
        if part.source == me:
            mine = _window(before[part.piece], part)
            if part.target == me:
                _window(after[part.wanted], part).copy_(mine)
                continue
            work.append(dist.isend(_as_bytes(mine), part.target, group=group))
        elif part.target == me:
            to = _window(after[part.wanted], part)
            buffer = torch.empty(part.shape, dtype=to.dtype)
            work.append(dist.irecv(_as_bytes(buffer), part.source, group=group))
            arriving.append((to, buffer))
            received += buffer.nbytes
    for each in work:
        each.wait()
    for to, buffer in arriving:
        to.copy_(buffer)
    return received


def _window(held: Held, part: Transfer) -> torch.Tensor:
    corner, tensor = held
    return tensor[tuple(slice(a - b, a - b + size) for a, b, size in zip(part.corner, corner, part.shape, strict=True))]


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, sharing its memory if that is contiguous: gloo does not support all element types."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def _layout(held: Mapping[str, Sequence[Held]]) -> Layout:
    return {name: [(corner, tuple(tensor.shape)) for corner, tensor in each] for name, each in held.items()}


def _end(rectangle: Rectangle) -> Place:
    return tuple(first + size for first, size in zip(*rectangle, strict=True))
