"""A worker of a feed: reads, transforms and batches the windows that it is asked for, wherever an engine runs it.

    request   the number of a window
    answer    a part of each step that has samples in it (parts.py), then the window's number; or the words of an error

As a process of its own it gets the settings as JSON in its first argument; requests come through standard input,
answers go to standard output. Nothing is kept between windows: a worker that was lost can be replaced by another.
Imports no torch.
"""

import os
import sys
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from recsmith.data import Counts, Dataset
from recsmith.data.batches import BatchReader
from recsmith.errors import RecSmithError
from recsmith.feeding.parts import Part, arrays_of
from recsmith.feeding.settings import FeedSettings
from recsmith.files import decode, parse_json
from recsmith.jobs.messages import Arrays, receive, send, text_of

WINDOW, ERROR = "window", "error"


class Worker:
    """Makes the parts of windows; its data is opened for the first one."""

    def __init__(self, settings: FeedSettings) -> None:
        self.settings = settings

    def answers(self, window: int) -> Iterator[Arrays]:
        """All that is answered when this window is asked for."""
        try:
            for part in self.parts(window):
                yield arrays_of(part, self.dataset.schema, self.settings.groups)
            yield {WINDOW: np.array([window], np.int64)}
        except RecSmithError as error:
            yield {ERROR: text_of(str(error))}

    def parts(self, window: int) -> Iterator[Part]:
        """The parts of all steps that have samples in a window, in their order."""
        order, settings = self.reader.order, self.settings
        begin, end = (int(each) for each in order.bounds[window : window + 2])
        used, step = settings.position.used, settings.step
        first = max(used, begin - (begin - used) % step)
        for at in range(first, end, step):
            self.reader.counts = Counts()
            samples = self.reader.batch(at, min(at + step, order.num_samples), window)
            yield Part(window=window, first=at, corrupt=self.reader.counts.corrupt, samples=samples)

    @cached_property
    def dataset(self) -> Dataset:
        """The data."""
        return self.settings.open()

    @cached_property
    def reader(self) -> BatchReader:
        """What reads the batches of this rank."""
        settings, dataset = self.settings, self.dataset
        return BatchReader(
            dataset.source, dataset.order(settings.position), settings.position, settings.rank, settings.world_size,
            settings.batch_size, settings.groups,
        )  # fmt: skip


def worker_of(words: str) -> Worker:
    """The worker of settings that are written as JSON."""
    return Worker(decode(FeedSettings, parse_json(words, "the settings"), "the settings"))  # type: ignore[arg-type]


def main() -> None:
    """Serve windows until nobody asks for more."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between answers
    worker = worker_of(sys.argv[1])
    try:
        while (request := receive(sys.stdin.buffer)) is not None:
            for arrays in worker.answers(int(request[WINDOW][0])):
                send(out, arrays)
    except OSError:
        return  # nobody listens any more


if __name__ == "__main__":
    main()
