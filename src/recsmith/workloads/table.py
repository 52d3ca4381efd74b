"""Embedding tables and the sparse features that read them."""

import math
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.workloads.access import AccessProfile

DataType = Literal["fp32", "fp16", "bf16", "int8"]
Pooling = Literal["sum", "mean", "none"]

ELEMENT_BYTES: dict[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}  # of a weight
LARGEST_COUNT = 2**53  # counts stay exact as floating-point numbers


def _wrong_name(name: str, what: str) -> str | None:
    """What is wrong with names that would break a line of text or a file."""
    if not name:
        return f"a {what} needs a name; the empty string is not one"
    bad = next((c for c in name if not c.isprintable()), None)
    return bad and f"{what} name {name!r} holds the control character {bad!r}; names are printable text"


def wrong_count(value: int | None, what: str) -> str | None:
    """What is wrong with counts outside 1 .. 2^53."""
    if value is None or 1 <= value < LARGEST_COUNT:
        return None
    return f"{what} is {value}; it must be at least 1 and below 2^53"


def _wrong_amount(value: float, what: str) -> str | None:
    if math.isfinite(value) and 0 <= value < LARGEST_COUNT:
        return None
    return f"{what} is {value}; it must be a finite number, 0 or more, below 2^53"


@noun
class Feature:
    """A sparse feature that looks rows up in a table.

    pooling_factor: mean ids per pooling (0 and fractions are legal).
    num_poolings: poolings per sample.
    weighted: each id carries a weight.
    batch_size: samples per device and step, where they differ from the workload's.
    """

    name: str
    pooling_factor: float
    num_poolings: float = 1.0
    weighted: bool = False
    batch_size: int | None = None

    def __post_init__(self) -> None:
        """Check names and amounts."""
        check_rules(
            _wrong_name(self.name, "feature"),
            _wrong_amount(self.pooling_factor, f"pooling_factor of feature '{self.name}'"),
            _wrong_amount(self.num_poolings, f"num_poolings of feature '{self.name}'"),
            wrong_count(self.batch_size, f"batch_size of feature '{self.name}'"),
        )


def _wrong_features(features: tuple[Feature, ...], table: str) -> str | None:
    if not features:
        return f"table '{table}' has no features; give at least one, or a pooling_factor"
    names = [feature.name for feature in features]
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin is not None:
        return f"table '{table}' lists feature '{twin}' twice; list it once"
    if len({feature.weighted for feature in features}) > 1:
        return f"table '{table}' mixes weighted and unweighted features; TorchRec keeps them in two collections"
    return None


@noun
class Table:
    """An embedding table: num_embeddings rows of embedding_dim elements, and the features that read it.

    pooling: 'sum' and 'mean' pool each bag; 'none' returns the rows of a sequence.
    collection: path of the module that owns the table; tables of one collection can share a kernel.
    access: how unevenly rows are read, where it is known.
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    features: tuple[Feature, ...]
    pooling: Pooling = "sum"
    data_type: DataType = "fp32"
    collection: str = ""
    access: AccessProfile | None = None

    def __post_init__(self) -> None:
        """Check names, counts, and that the features agree."""
        check_rules(
            _wrong_name(self.name, "table"),
            wrong_count(self.num_embeddings, f"num_embeddings of table '{self.name}'"),
            wrong_count(self.embedding_dim, f"embedding_dim of table '{self.name}'"),
            _wrong_features(self.features, self.name) if len(self.features) != 1 else None,
        )

    @property
    def weighted(self) -> bool:
        """Whether its ids carry weights."""
        return self.features[0].weighted

    @property
    def pooled(self) -> bool:
        """Whether bags are pooled (EmbeddingBagCollection) or returned as sequences (EmbeddingCollection)."""
        return self.pooling != "none"

    @property
    def element_bytes(self) -> int:
        """Bytes per element of a row."""
        return ELEMENT_BYTES[self.data_type]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the whole table."""
        return self.num_embeddings * self.embedding_dim * self.element_bytes
