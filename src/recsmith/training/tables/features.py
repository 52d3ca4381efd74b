"""What batches hold for the tables of a model, and the tensors made from a reader's batch."""

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

    names: names of the data's features, or of physical features. transforms: by name of a data feature, how its table
    is stored, if it is not stored plainly. raw: features whose ids are not rows, but arbitrary numbers from 0 on.
    """

    names: tuple[str, ...]
    transforms: Mapping[str, EmbeddingTransform] = field(default_factory=dict[str, EmbeddingTransform])
    raw: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Groups of features of which a reader passes on only distinct bags; features of a group share their rows."""
        return ()

    @property
    def repeats(self) -> Mapping[str, tuple[float, float]]:
        """(samples per row of its group's batch, samples per row of its own) of each deduplicated feature."""
        return {}

    def bags(self, batch: Batch) -> dict[str, JaggedIds]:
        """The bags of every feature, of the data's features and of physical ones."""
        found = dict(batch.ids)
        for name, transform in self.transforms.items():
            names = [physical(name, part) for part in (*(each.name for each in transform.lookups), *transform.carried)]
            found.update(zip(names, transform.route(batch.ids[name]), strict=True))
        return found

    def tensors(self, batch: Batch) -> Any:
        """The input of the tables for a batch: a KeyedJaggedTensor, unless a table module overrides it."""
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
    """The values as a tensor; Arrow's are copied, because PyTorch warns about memory that it must not write to."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def weights_of(bags: Sequence[JaggedIds]) -> torch.Tensor | None:
    """Weights of all ids, 1 for bags without weights; None if no bag has weights."""
    if all(ids.weights is None for ids in bags):
        return None
    each = (np.ones(len(ids.values), np.float32) if ids.weights is None else ids.weights for ids in bags)
    return torch.from_numpy(np.concatenate(list(each)))


def joined(parts: Sequence[Features]) -> Features:
    """The features of several table modules in one batch; of the subclass that a module uses, if any."""
    special = next((part for part in parts if type(part) is not Features), Features(()))
    return replace(
        special,
        names=tuple(dict.fromkeys(name for part in parts for name in part.names)),
        transforms={name: transform for part in parts for name, transform in part.transforms.items()},
        raw=tuple(name for part in parts for name in part.raw),
    )
