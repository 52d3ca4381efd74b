"""A worker of a feed, a process of its own: reads, transforms and batches the windows that it is asked for.

    request   the number of a window
    answer    a part of each step that has samples in it (parts.py), then the window's number; or the words of an error

The first argument holds the settings as JSON. Requests come through standard input, answers go to standard output.
Nothing is kept between windows: a worker that was lost can be replaced by another. Imports no torch.
"""

import os
import sys
from collections.abc import Iterator

import numpy as np

from recsmith.data import Counts
from recsmith.data.batches import BatchReader
from recsmith.errors import RecSmithError
from recsmith.feeding.parts import Part, arrays_of
from recsmith.feeding.settings import FeedSettings
from recsmith.files import decode, parse_json
from recsmith.jobs.messages import receive, send, text_of

WINDOW, ERROR = "window", "error"


class Worker:
    """Makes the parts of windows."""

    def __init__(self, settings: FeedSettings) -> None:
        self.settings, dataset = settings, settings.open()
        self.schema, self.order = dataset.schema, dataset.order(settings.position)
        self.reader = BatchReader(
            dataset.source, self.order, settings.position, settings.rank, settings.world_size, settings.batch_size,
            settings.groups,
        )  # fmt: skip

    def parts(self, window: int) -> Iterator[Part]:
        """The parts of all steps that have samples in a window, in their order."""
        begin, end = (int(each) for each in self.order.bounds[window : window + 2])
        used, step = self.settings.position.used, self.settings.step
        first = max(used, begin - (begin - used) % step)
        for at in range(first, end, step):
            self.reader.counts = Counts()
            samples = self.reader.batch(at, min(at + step, self.order.num_samples), window)
            yield Part(window=window, first=at, corrupt=self.reader.counts.corrupt, samples=samples)


def main() -> None:
    """Serve windows until nobody asks for more."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between answers
    try:
        settings = decode(FeedSettings, parse_json(sys.argv[1], "the settings"), "the settings")  # type: ignore[arg-type]
        worker = Worker(settings)
        while (request := receive(sys.stdin.buffer)) is not None:
            window = int(request[WINDOW][0])
            for part in worker.parts(window):
                send(out, arrays_of(part, worker.schema, settings.groups))
            send(out, {WINDOW: np.array([window], np.int64)})
    except RecSmithError as error:
        send(out, {ERROR: text_of(str(error))})
    except OSError:
        return  # nobody listens any more


if __name__ == "__main__":
    main()
