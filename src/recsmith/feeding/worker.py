"""A worker of a feed: reads, transforms and batches the requested windows, in a process that an engine starts.

    request   the number of a window
    answer    for each step with samples in the window their part, then the window's number; or an error text

A local process gets its settings as JSON in the first argument; requests come through standard input, answers go to
standard output. No state is kept between windows, so a lost worker can be replaced by another. Imports no torch.

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

ABOUT = "about"  # name of the array (window, first slot of the step, number of corrupt samples)
WINDOW, ERROR = "window", "error"


@noun
class FeedSettings:
    """The batches of one rank from a position on; a window's batches depend on these settings and its number alone.

    data: a path, or a mapping with the format (docs/data.md). batch_size: samples per rank and step. groups: groups of
    features of which batches hold only distinct bags (docs/datasets.md). samples: range (first, last + 1) of the data
    in stored order, to which the position refers; None: all. deal: how to balance the ranks' work in a step.
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
        """Number of samples of all ranks in a step."""
        return self.batch_size * self.world_size


@record
class StepPart:
    """The rank's samples of a step in one window. first: first slot of the step. corrupt: number of skipped samples."""

    window: int
    first: int
    corrupt: int
    samples: Batch


def arrays_of(part: StepPart, schema: DataSchema, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A part as a dict of arrays, whose names contain the numbers of features and groups."""
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
    """The part from a dict of arrays that `arrays_of` made."""
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
    """Makes the parts of windows; the data is opened at the first request."""

    def __init__(self, settings: FeedSettings) -> None:
        self.settings = settings

    def answers(self, window: int) -> Iterator[Arrays]:
        """All answers to the request of a window."""
        try:
            for part in self.parts(window):
                yield arrays_of(part, self.dataset.schema, self.settings.groups)
            yield {WINDOW: np.array([window], np.int64)}
        except RecSmithError as error:
            yield {ERROR: encode_text(str(error))}

    def parts(self, window: int) -> Iterator[StepPart]:
        """The parts of all steps with samples in the window, in order of steps."""
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
        """The dataset of the settings, opened once."""
        return self.settings.open()

    @cached_property
    def reader(self) -> BatchReader:
        """The reader of this rank's batches."""
        settings, dataset = self.settings, self.dataset
        return BatchReader(
            dataset.source, dataset.order(settings.position), settings.position, settings.rank, settings.world_size,
            settings.batch_size, settings.groups, settings.deal,
        )  # fmt: skip


def worker_of(settings: str) -> Worker:
    """A worker for settings in JSON."""
    return Worker(decode(FeedSettings, parse_json(settings, "the settings"), "the settings"))  # type: ignore[arg-type]


def main() -> None:
    """Answer requests until standard input is closed."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # redirect prints of libraries to standard error, so that they do not mix with answers
    worker = worker_of(sys.argv[1])
    try:
        while (request := receive(sys.stdin.buffer)) is not None:
            for arrays in worker.answers(int(request[WINDOW][0])):
                send(out, arrays)
    except OSError:
        return  # the reader has closed its pipe


if __name__ == "__main__":
    main()
