"""The KeyedJaggedTensors of a batch, wherever it holds them.

Legend: I ids of all keys of a tensor.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsmith.errors import UsageError

DEPTH = 2  # levels of a batch that are searched: its members, and theirs; trade-off, deeper takes longer; not tuned
MOST_NAMES = 20  # names that an error lists: a few lines of a terminal
_LEAVES = (str, bytes, type, torch.Tensor, nn.Module)


@dataclass(frozen=True)
class Jagged:
    """A KeyedJaggedTensor of a batch: the expression that reaches it, and the place of each key in it.

    place: such as `batch.sparse[0]`. index: of each key in bags and offsets. bags: of each key. offsets: of each key in
    values, and the end of the last.
    """

    place: str
    values: torch.Tensor
    weighted: bool
    samples: int
    index: dict[str, int]
    bags: list[int]
    offsets: list[int]

    def ids(self, key: str) -> torch.Tensor:
        """Ids of a key, (I,)."""
        i = self.index[key]
        return self.values[self.offsets[i] : self.offsets[i + 1]]


def _read(place: str, jagged: KeyedJaggedTensor) -> Jagged:
    bags = jagged.stride_per_key()
    return Jagged(
        place=place,
        values=jagged.values(),
        weighted=jagged.weights_or_none() is not None,
        samples=jagged.stride(),
        index={key: i for i, key in enumerate(jagged.keys())},
        bags=bags,
        offsets=jagged.offset_per_key() if any(bags) else [0] * (len(bags) + 1),
    )


def find_jagged(batch: object, number: int) -> list[Jagged]:
    """The KeyedJaggedTensors of a batch, each once, in the order of the search."""
    found: dict[int, tuple[str, KeyedJaggedTensor]] = {}
    types: dict[str, None] = {}
    for place, value in _search("batch", batch, DEPTH):
        types[type(value).__name__] = None
        if isinstance(value, KeyedJaggedTensor):
            found.setdefault(id(value), (place, value))
    if not found:
        raise UsageError(
            f"batch {number} holds no KeyedJaggedTensor at its top or {DEPTH} levels deep; types seen: "
            f"{listed(list(types))}; give observe the tensors, such as (batch.features.sparse for batch in loader)"
        )
    return [_read(place, value) for place, value in found.values()]


def _search(place: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    """A value and what it holds, each with its place."""
    yield place, value
    if depth and not isinstance(value, KeyedJaggedTensor):
        for step, member in _members(value):
            yield from _search(place + step, member, depth - 1)


def _members(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, _LEAVES):
        return []
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", member) for key, member in value.items()]
    if isinstance(value, tuple | list):
        return [(f"[{i}]", member) for i, member in enumerate(value)]
    if is_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)]
    return [(f".{name}", member) for name, member in getattr(value, "__dict__", {}).items()]


def listed(names: Sequence[str]) -> str:
    """Names with commas between, the first MOST_NAMES of them."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
