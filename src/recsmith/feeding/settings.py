"""What a feed serves: which data, in which order, for which rank; all that a worker needs to know."""

from typing import Any

from recsmith._types import noun
from recsmith.data import Dataset, Position, open_dataset, spec_from_raw


@noun
class FeedSettings:
    """The batches of one rank from a position on. A window's batches follow from these settings and its number alone.

    data: a path, or a mapping with the format (docs/data.md). batch_size: samples of the rank and step. groups:
    features whose distinct bags alone the batches hold (docs/recd.md).
    """

    data: Any
    position: Position
    rank: int
    world_size: int
    batch_size: int
    groups: tuple[tuple[str, ...], ...] = ()

    def open(self) -> Dataset:
        """The dataset."""
        data = self.data
        return open_dataset(spec_from_raw(dict(data), "the feed's data") if isinstance(data, dict) else data)

    @property
    def step(self) -> int:
        """Samples of all ranks and a step."""
        return self.batch_size * self.world_size
