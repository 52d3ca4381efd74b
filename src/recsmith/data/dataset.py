"""Datasets: what a path or a spec opens, and what training reads."""

from collections.abc import Sequence

from recsmith.data.batches import Batches, BatchReader
from recsmith.data.order import WINDOW, EpochOrder, Position
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
        window: int = WINDOW,
        deduplicate: Sequence[Sequence[str]] = (),
    ) -> Batches:
        """The batches of a rank in an epoch, from a position on if one is given: each sample once, on one rank.

        batch_size: samples of a rank and step. All ranks get equally many batches. The last ones share what is left
        evenly, so that they may be shorter, even empty; with drop_last what does not fill a step is left out.
        together: so many samples that are stored side by side stay so when shuffled. window: samples that are
        shuffled together. deduplicate: groups of
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
            None if window >= 1 else f"window is {window}; it must be at least 1",
            None if 0 <= epoch < 2**63 else f"epoch is {epoch}; it must be 0 or more, and below 2^63",
        )
        now = Position(
            epoch=epoch, used=0, seed=seed, shuffle=shuffle, dataset=self.source.digest, together=together,
            window=window,
        )  # fmt: skip
        position = position or now
        order = self.order(position)
        self.check_position(position, now)
        return Batches(BatchReader(self.source, order, position, rank, world_size, batch_size, deduplicate), drop_last)

    def order(self, position: Position) -> EpochOrder:
        """The order of the samples of a position's epoch."""
        return EpochOrder(
            self.source.sizes(), seed=position.seed, epoch=position.epoch, shuffle=position.shuffle,
            files=self.source.files, together=position.together, window=position.window,
        )  # fmt: skip

    def check_position(self, position: Position, now: Position) -> None:
        """Refuse a position that means other samples here. now: the beginning of the epoch that is asked for.

        Raises:
            UsageError: it is of another order.
            CorruptFile: it is of other data.
        """
        if _words(position) != _words(now):
            raise UsageError(
                f"the position is of {_words(position)}, not {_words(now)}; give those, or begin another epoch without "
                "a position"
            )
        if position.dataset != now.dataset or position.used > int(self.source.sizes().sum()):
            raise CorruptFile(
                f"the position is of other data (digest {position.dataset}, this data has {now.dataset}); give the "
                "data that was used before, or begin another epoch without a position"
            )


def _words(position: Position) -> str:
    more = [f"{position.together} samples together"] if position.together > 1 else []
    more += [f"windows of {position.window:,}"] if position.window != WINDOW else []
    return ", ".join([f"seed {position.seed} and shuffle {position.shuffle}", *more])
