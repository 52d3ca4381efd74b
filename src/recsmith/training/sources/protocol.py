"""Where the batches of a job come from, one rank's at a time, and what a checkpoint keeps of how far they are.

A source of yours is a class that is made of its settings, on every rank:

    class Clicks:                                         # data: {train: {source: my_clicks:Clicks, topic: eu}}
        schema, length = DataSchema(...), None
        def __init__(self, *, topic: str) -> None: ...
        def batches(self, rank, world, size, state) -> Iterator[tuple[Batch, dict]]: ...
        def steps(self, sizes, world) -> int | None: ...
        def notes(self, sizes, world, state) -> list[str]: ...

Where samples lie in files, a format (recsmith.data.source.BlockSource) is less work: order, ranks and restarts follow.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from recsmith.data import Batch, DataSchema
from recsmith.training.run.data import BatchSizes

State = dict[str, Any]  # JSON data that is the source's own: the loop keeps it in checkpoints, and never looks inside;
# where samples come again, `epoch` counts how often, so that detectors do not take them for repeats


class BatchSource(Protocol):
    """What a job asks of its data. Epochs, their order and the shares of ranks are the source's own."""

    @property
    def schema(self) -> DataSchema:
        """What every sample holds."""
        ...

    @property
    def length(self) -> int | None:
        """Samples of an epoch; None where nobody has counted them, or there is no end."""
        ...

    def batches(self, rank: int, world: int, size: int, state: State | None) -> Iterator[tuple[Batch, State]]:
        """The batches of a rank that come after a state, each with the state after it; from the beginning for None.

        All ranks get equally many and the same states, of `size` samples, or of fewer where some could not be read
        (`Batch.corrupt` of them) or are left at the end. Ranks and size may be others than those that the state came
        from. It ends where the job does.
        """
        ...

    def steps(self, sizes: BatchSizes, world: int) -> int | None:
        """Steps of the whole job on so many ranks, those left out that would not be full; None where nobody knows."""
        ...

    def notes(self, sizes: BatchSizes, world: int, state: State | None) -> list[str]:
        """What people should know before training goes on from a state, a line each."""
        ...
