"""Datasets: what a path or a spec opens, and what training reads."""

from collections.abc import Sequence

from recsmith.data.batches import Batches, BatchReader
from recsmith.data.order import EpochOrder, Position
from recsmith.data.schema import DataSchema
from recsmith.data.source import BlockSource
from recsmith.errors import CorruptFile, UsageError, check_rules


class Dataset:
    """Samples that training reads, of any format: their schema, how many there are, and the batches of each rank."""

    def __init__(self, source: BlockSource) -> None:
        self.source = source

    @property
    def schema(self) -> DataSchema:
        """Features, dense columns and labels of every sample."""
        return self.source.schema

    @property
    def num_samples(self) -> int | None:
        """How many samples an epoch has; None where nobody has counted them yet."""
        return self.source.num_samples

    def batches(
        self,
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        epoch: int = 0,
        position: Position | None = None,
        drop_last: bool = False,
        together: int = 1,
        deduplicate: Sequence[Sequence[str]] = (),
    ) -> Batches:
        """The batches of a rank in an epoch, from a position on if one is given: each sample once, on one rank.

        batch_size: samples of a rank and step. All ranks get equally many batches. The last ones share what is left
        evenly, so that they may be shorter, even empty; with drop_last what does not fill a step is left out.
        together: so many samples that are stored side by side stay so when shuffled. deduplicate: groups of
        features whose distinct bags alone the batches hold.
        The order is that of `recsmith.data.order`: it follows from seed and epoch, whatever the world's size is.

        Raises:
            UsageError: rank, sizes or seed are out of range, or the position is of another order or other data.
            CorruptFile: from the iterator, once more samples are corrupt than the spec allows.
        """
        check_rules(
            None if world_size >= 1 else f"world_size is {world_size}; it must be at least 1",
            None if 0 <= rank < max(world_size, 1) else f"rank is {rank}; it must be 0 to {world_size - 1}",
            None if batch_size >= 1 else f"batch_size is {batch_size}; it must be at least 1",
            None if 0 <= seed < 2**63 else f"seed is {seed}; it must be 0 or more, and below 2^63",
            None if together >= 1 else f"together is {together}; it must be at least 1",
            None if 0 <= epoch < 2**63 else f"epoch is {epoch}; it must be 0 or more, and below 2^63",
        )
        sizes = self.source.sizes()
        if position is None:
            position = Position(
                epoch=epoch, used=0, seed=seed, shuffle=shuffle, dataset=self.source.digest, together=together
            )
        _check_position(position, seed, shuffle, together, self.source.digest, int(sizes.sum()))
        order = EpochOrder(
            sizes, seed=seed, epoch=position.epoch, shuffle=shuffle, files=self.source.files, together=together
        )
        return Batches(BatchReader(self.source, order, position, rank, world_size, batch_size, deduplicate), drop_last)


def _check_position(position: Position, seed: int, shuffle: bool, together: int, digest: str, num_samples: int) -> None:
    """Refuse a position that means other samples here."""
    if (position.seed, position.shuffle, position.together) != (seed, shuffle, together):
        was, now = _words(position.seed, position.shuffle, position.together), _words(seed, shuffle, together)
        raise UsageError(f"the position is of {was}, not {now}; give those, or begin another epoch without a position")
    if position.dataset != digest or position.used > num_samples:
        raise CorruptFile(
            f"the position is of other data (digest {position.dataset}, this data has {digest}); give the data that "
            "was used before, or begin another epoch without a position"
        )


def _words(seed: int, shuffle: bool, together: int) -> str:
    return f"seed {seed} and shuffle {shuffle}" + (f", {together} samples together" if together > 1 else "")
