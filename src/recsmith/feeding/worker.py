"""A worker of a feed: reads, transforms and batches the windows that it is asked for, wherever an engine runs it.

    request   the number of a window
    answer    a part of each step that has samples in it, then the window's number; or the text of an error

As a process of its own it gets the settings as JSON in its first argument; requests come through standard input,
answers go to standard output. Nothing is kept between windows: a worker that was lost can be replaced by another.
Imports no torch.

B samples, U distinct rows
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from recsmith._types import Ints, noun, record
from recsmith.data import Batch, Counts, DataSchema, Dataset, JaggedIds, Position, open_dataset, spec_from_raw
from recsmith.data.batches import BatchReader
from recsmith.data.dealing import Deal
from recsmith.data.slices import SlicedSource
from recsmith.errors import RecSmithError
from recsmith.files import decode, parse_json
from recsmith.jobs.processes import Arrays, encode_text, receive, send

ABOUT = "about"  # window, first slot of the step, corrupt samples
WINDOW, ERROR = "window", "error"


@noun
class FeedSettings:
    """The batches of one rank from a position on. A window's batches follow from these settings and its number alone.

    data: a path, or a mapping with the format (docs/data.md). batch_size: samples of the rank and step. groups:
    features whose distinct bags alone the batches hold (docs/datasets.md). samples: of the data in stored order, the
    first and the one after the last, that the position counts in; None: all. deal: by what work samples are dealt to
    ranks.
    """

    data: Any
    position: Position
    rank: int
    world_size: int
    batch_size: int
    groups: tuple[tuple[str, ...], ...] = ()
    samples: tuple[int, int] | None = None
    deal: Deal | None = None

    def open(self) -> Dataset:
        """The dataset, as it was when the position's epoch began."""
        data = self.data
        opened = open_dataset(spec_from_raw(dict(data), "the feed's data") if isinstance(data, dict) else data)
        whole = opened.at(self.position)
        return whole if self.samples is None else Dataset(SlicedSource(whole.source, *self.samples))

    @property
    def step(self) -> int:
        """Samples of all ranks and a step."""
        return self.batch_size * self.world_size


@record
class StepPart:
    """The samples of a step that a window holds. first: slot of the step. corrupt: samples passed over."""

    window: int
    first: int
    corrupt: int
    samples: Batch


def arrays_of(part: StepPart, schema: DataSchema, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A part as arrays by name; features and groups by their numbers."""
    samples = part.samples
    made: dict[str, Any] = {
        ABOUT: np.array([part.window, part.first, part.corrupt], np.int64),
        "dense": samples.dense, "labels": samples.labels, "sample_ids": samples.sample_ids,
    }  # fmt: skip
    if samples.weights is not None:
        made["weights"] = samples.weights
    for number, name in enumerate(schema.feature_names):
        bags = samples.ids[name]
        made |= {f"values.{number}": bags.values, f"lengths.{number}": bags.lengths}
        if bags.weights is not None:
            made[f"weights.{number}"] = bags.weights
    return made | {f"inverse.{number}": samples.inverse[group[0]] for number, group in enumerate(groups)}


def part_of(arrays: Mapping[str, Any], schema: DataSchema, groups: Sequence[Sequence[str]]) -> StepPart:
    """The part that such arrays are."""
    window, first, corrupt = arrays[ABOUT].tolist()
    ids = {
        name: JaggedIds(
            values=arrays[f"values.{number}"],
            lengths=arrays[f"lengths.{number}"],
            weights=arrays.get(f"weights.{number}"),
        )
        for number, name in enumerate(schema.feature_names)
    }
    inverse: dict[str, Ints] = {
        name: arrays[f"inverse.{number}"] for number, group in enumerate(groups) for name in group
    }
    samples = Batch(
        dense=arrays["dense"], ids=ids, labels=arrays["labels"], label_names=schema.labels,
        sample_ids=arrays["sample_ids"], inverse=inverse, weights=arrays.get("weights"),
    )  # fmt: skip
    return StepPart(window=window, first=first, corrupt=corrupt, samples=samples)


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
            yield {ERROR: encode_text(str(error))}

    def parts(self, window: int) -> Iterator[StepPart]:
        """The parts of all steps that have samples in a window, in their order."""
        order, settings = self.reader.order, self.settings
        begin, end = (int(each) for each in order.bounds[window : window + 2])
        used, step = settings.position.used, settings.step
        first = max(used, begin - (begin - used) % step)
        for at in range(first, end, step):
            self.reader.counts = Counts()
            samples = self.reader.batch(at, min(at + step, order.num_samples), window)
            yield StepPart(window=window, first=at, corrupt=self.reader.counts.corrupt, samples=samples)

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
            settings.batch_size, settings.groups, settings.deal,
        )  # fmt: skip


def worker_of(settings: str) -> Worker:
    """The worker of settings that are written as JSON."""
    return Worker(decode(FeedSettings, parse_json(settings, "the settings"), "the settings"))  # type: ignore[arg-type]


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
