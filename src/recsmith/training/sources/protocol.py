"""Where the batches of a job come from, one rank's at a time, and what a checkpoint keeps of their position.

A source of yours is a class that is made from its settings on every rank:

    class Clicks:                                         # data: {train: {source: my_clicks:Clicks, topic: eu}}
        schema, length = DataSchema(...), None
        def __init__(self, *, topic: str) -> None: ...
        def batches(self, rank, world, size, state) -> Iterator[tuple[Batch, dict]]: ...
        def steps(self, sizes, world) -> int | None: ...
        def notes(self, sizes, world, state) -> list[str]: ...

If samples are in files, a format (recsmith.data.source.BlockSource) is less work: order, ranks and restarts follow.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from recsmith.data import Batch, DataSchema
from recsmith.training.run.data import BatchSizes

State = dict[str, Any]  # JSON data of the source: the loop keeps it in checkpoints and never reads it;
# if samples are read again, `epoch` counts how often, so that detectors do not report them as repeats


class BatchSource(Protocol):
    """What a job asks of its data. Epochs, their order and the shares of ranks are the source's own matter."""

    @property
    def schema(self) -> DataSchema:
        """The columns of every sample."""
        ...

    @property
    def length(self) -> int | None:
        """Samples of an epoch; None if they are not counted, or the source is endless."""
        ...

    def batches(self, rank: int, world: int, size: int, state: State | None) -> Iterator[tuple[Batch, State]]:
        """The batches of a rank after a state, each with the state that follows it; None: from the beginning.

        All ranks get the same number of batches and the same states. Each batch has `size` samples, or fewer if some
        could not be read (`Batch.corrupt` of them) or are left at the end. The number of ranks and the size may differ
        from those under which the state was saved. The iterator ends when the job does.
        """
        ...

    def steps(self, sizes: BatchSizes, world: int) -> int | None:
        """Steps of the whole job on `world` ranks, without steps that would not be full; None if unknown."""
        ...

    def notes(self, sizes: BatchSizes, world: int, state: State | None) -> list[str]:
        """What people should know before training continues from a state, one line each."""
        ...
