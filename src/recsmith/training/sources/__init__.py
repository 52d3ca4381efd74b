"""Where a run's samples come from: data of a known format (docs/data.md), or a source of yours (protocol.py)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from recsmith._components import make, name_of
from recsmith._types import Ints
from recsmith.data import Batch, Dataset, open_dataset, spec_from_raw
from recsmith.data.columns.rows import check_vocabularies
from recsmith.data.dataset import FORMAT
from recsmith.data.order import WINDOW
from recsmith.data.source import by_rows
from recsmith.data.transforms.declared import Transform
from recsmith.data.transforms.graph import TransformedSource
from recsmith.errors import UsageError
from recsmith.prediction.reading import Reading, sample_s
from recsmith.training.run import Run
from recsmith.training.run.refusals import check_together, data_parts
from recsmith.training.seams.registry import first_of, systems, trains_layers
from recsmith.training.sources.dataset import DatasetSource
from recsmith.training.sources.protocol import BatchSource, State

LOOKED_AT = 2**16  # most samples whose history lengths are counted
SOURCE = "source"  # the kind of component, and the key of data.train that names one instead of a format


def open_data(source: Any, where: str) -> Dataset:
    """The dataset of a path, a spec, or a spec's mapping. where: key of the run, such as data.train, for errors."""
    if isinstance(source, dict):
        return open_dataset(spec_from_raw(dict(cast(dict[str, Any], source)), where))
    if source is None:
        raise UsageError(f"the run has no {where}; name a file, a folder or a mapping with its format")
    return open_dataset(source)


def open_source(run: Run) -> BatchSource:
    """The source that data.train names: a dataset, or a source of yours (`{source: module:Class, ...}`).

    Raises:
        UsageError: there is no data, its format is unknown, or the run asks for something that only known formats have.
    """
    data, named = run.data, cast(Any, run.data.train)
    if isinstance(named, dict) and SOURCE in named:
        settings = {key: value for key, value in cast(dict[str, Any], named).items() if key != SOURCE}
        check_together(data_parts(run))
        return make(SOURCE, {"name": named[SOURCE], **settings}, where="data.train")
    dataset, endless = open_data(named, "data.train"), run.steps is not None
    check_vocabularies(dataset.source)
    if (made := first_of(system.source(run, dataset) for system in systems())) is not None:
        return made
    return DatasetSource(dataset, data, run.order_seed, endless, output=Path(run.output))


def data_digest(source: BatchSource) -> str | None:
    """A digest of the data that a source reads; None if the source is not a dataset."""
    dataset = getattr(source, "dataset", None)
    return dataset.source.digest if isinstance(dataset, Dataset) else None


def total_steps(run: Run, source: BatchSource, ranks: int, step: int = 0, state: State | None = None) -> int | None:
    """Steps of a whole run; None if the number of samples is unknown, or steps choose their own batches.

    step: steps already done, on any number of ranks, which led to the data's state; the remaining steps are added.
    """
    if run.steps or trains_layers(run):
        return run.steps
    sizes = run.data.batch_sizes(ranks)
    if state is None or not isinstance(source, DatasetSource):
        step, batches = 0, source.steps(sizes, ranks)
    else:
        batches = source.steps(sizes, ranks, step, state)
    return None if batches is None else step + -(-(batches - step) // run.batches_in_turn)


def check_state(source: BatchSource, state: State | None, ranks: int, size: int) -> None:
    """Refuse a checkpoint's state from which the data cannot continue: it is of other data, or of another order.

    size: samples of a rank in the next step. A source of yours is checked by asking it for its first batch after the
    state.

    Raises what `batches` of the source raises.
    """
    if isinstance(source, DatasetSource):
        source.checked(state)
    elif state is not None:
        next(source.batches(0, ranks, size, state), None)


def reads_alone(source: BatchSource) -> bool:
    """Whether a rank reads only its own samples; most formats are read in blocks, which hold samples of all ranks."""
    return not isinstance(source, DatasetSource) or (by_rows(source.dataset.source) is not None and not source.groups)


def reading_of(source: BatchSource) -> Reading | None:
    """Seconds to read a sample, and whether each rank reads only its own; None for a source of yours."""
    if not isinstance(source, DatasetSource):
        return None
    stored: Any = source.dataset.source
    transforms: Sequence[Transform] = ()
    while (within := getattr(stored, "source", None)) is not None:  # wraps another source
        transforms = stored.graph.transforms if isinstance(stored, TransformedSource) else transforms
        stored = within
    seconds = sample_s(name_of(FORMAT, type(stored)), stored.schema.features, transforms)
    return Reading(sample_s=seconds, alone=reads_alone(source))


def with_distinct(source: BatchSource, groups: Sequence[Sequence[str]]) -> BatchSource:
    """The source with batches that hold only the distinct bags of these groups of features, if it is a dataset."""
    return replace(source, groups=groups) if isinstance(source, DatasetSource) else source


def dealt_source(source: BatchSource, run: Run) -> BatchSource:
    """The source, with the samples of a step distributed over ranks as the run's systems want it."""
    deal = first_of(system.deal(run) for system in systems())
    return source if deal is None or not isinstance(source, DatasetSource) else replace(source, deal=deal)


def first_lengths(source: BatchSource, feature: str, ranks: int, size: int) -> Ints:
    """Ids per sample of a feature in the first step of `ranks` ranks, rank by rank; of a part of a large step.

    size: samples of a rank. Raises what `first_batch` raises.
    """
    return first_steps(source, feature, ranks, size, 1)[0]


def first_steps(source: BatchSource, feature: str, ranks: int, size: int, steps: int) -> list[Ints]:
    """Ids per sample of a feature in each of the first `steps` steps of `ranks` ranks, rank by rank; or of fewer steps.

    size: samples of a rank. Raises what `first_batch` raises.
    """
    count = max(1, min(size, LOOKED_AT // ranks)) * ranks
    shuffle = isinstance(source, DatasetSource) and source.data.shuffle
    found = first_batch(source, count * max(1, min(steps, LOOKED_AT // count)), shuffle=shuffle)
    lengths = found.ids[feature].lengths.astype(np.int64)
    return [lengths[first : first + count] for first in range(0, max(1, len(lengths) - count + 1), count)]


def first_batch(source: BatchSource, size: int, *, shuffle: bool = False, window: int = WINDOW) -> Batch:
    """The first samples of a source, for counting. shuffle: for a dataset, take the samples that training takes first.

    window: samples that are shuffled together, all of which are read.

    Raises:
        UsageError: there are no samples.
    """
    if isinstance(source, DatasetSource):
        with source.dataset.batches(
            rank=0,
            world_size=1,
            batch_size=size,
            seed=source.seed,
            shuffle=shuffle,
            window=window,
            together=source.data.keep_together,
        ) as batches:
            found = next(batches, None)
    else:
        found, _ = next(source.batches(0, 1, size, None), (None, {}))
    if found is None or not len(found):
        raise UsageError("data.train holds no samples; name data that has some")
    return found
