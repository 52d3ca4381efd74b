"""What batches hold for the tables of a model, and the tensors that are made of a reader's batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torchrec import KeyedJaggedTensor

from recsmith.data import Batch, JaggedIds
from recsmith.embeddings import EmbeddingTransform, physical


@dataclass(frozen=True)
class Features:
    """The features that a model looks up, in the order in which batches hold them.

    names: of the data's features, or of physical ones. transforms: by name of a feature of the data, how its table is
    stored, where that is not as it is. raw: those whose ids are no rows, but numbers of any size from 0 on.
    """

    names: tuple[str, ...]
    transforms: Mapping[str, EmbeddingTransform] = field(default_factory=dict[str, EmbeddingTransform])
    raw: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Features whose distinct bags alone a reader hands on, those that share their rows together."""
        return ()

    @property
    def repeats(self) -> Mapping[str, tuple[float, float]]:
        """Samples for each row of what is looked up with a feature, and for each of its own; none: 1 and 1."""
        return {}

    def bags(self, batch: Batch) -> dict[str, JaggedIds]:
        """The bags of every feature, of the data's and of physical ones."""
        found = dict(batch.ids)
        for name, transform in self.transforms.items():
            names = [physical(name, part) for part in (*(each.name for each in transform.lookups), *transform.carried)]
            found.update(zip(names, transform.route(batch.ids[name]), strict=True))
        return found

    def tensors(self, batch: Batch) -> Any:
        """What the tables are given of a batch: a KeyedJaggedTensor, unless a table module says otherwise."""
        return keyed_jagged(self.names, self.bags(batch))


def keyed_jagged(names: Sequence[str], bags: Mapping[str, JaggedIds]) -> KeyedJaggedTensor:
    """The bags of some features as one KeyedJaggedTensor."""
    jagged = [bags[name] for name in names]
    return KeyedJaggedTensor(
        keys=list(names),
        values=torch.cat([_tensor(ids.values) for ids in jagged]),
        lengths=torch.cat([_tensor(ids.lengths) for ids in jagged]),
        weights=weights_of(jagged),
    )


def _tensor(values: npt.NDArray[Any]) -> torch.Tensor:
    """The values; copied where they are those of Arrow, which PyTorch warns of, for it could write into them."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def weights_of(bags: Sequence[JaggedIds]) -> torch.Tensor | None:
    """Weights of all ids, ones for bags that have none; None where no bag has any."""
    if all(ids.weights is None for ids in bags):
        return None
    each = (np.ones(len(ids.values), np.float32) if ids.weights is None else ids.weights for ids in bags)
    return torch.from_numpy(np.concatenate(list(each)))


def joined(parts: Sequence[Features]) -> Features:
    """The features of several table modules as one batch holds them; of one that says what tensors are, its kind."""
    special = next((part for part in parts if type(part) is not Features), Features(()))
    return replace(
        special,
        names=tuple(dict.fromkeys(name for part in parts for name in part.names)),
        transforms={name: transform for part in parts for name, transform in part.transforms.items()},
        raw=tuple(name for part in parts for name in part.raw),
    )
