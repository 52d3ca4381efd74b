"""A dataset as a stream: period after period in stored order, shuffled only inside a period.

The number of a period is the `epoch` of its position, and so part of a state. A state also holds the samples with which
the period begins and ends, so that it is never taken for a state of other periods.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np

from recsmith._components import parsed
from recsmith._types import Ints
from recsmith.data import Batch, Dataset, Position
from recsmith.data.batch import concatenated
from recsmith.data.slices import SlicedSource
from recsmith.data.source import GrowingSource
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import decode, encode
from recsmith.training.run import Run
from recsmith.training.run.data import BatchSizes
from recsmith.training.run.refusals import check_together, data_parts
from recsmith.training.sources.dataset import DatasetSource
from recsmith.training.sources.protocol import State
from recsmith.training.systems.periods.settings import edges_of
from recsmith.training.systems.periods.updates import update_of
from recsmith.units import counted

BEGINS, ENDS = "begins", "ends"  # keys of a state: first sample and end of the period's training samples


@dataclass(frozen=True)
class PeriodSource(DatasetSource):
    """The samples of a dataset in periods. A state is the encoded `Position` in a period, and the period's edges.

    edges: samples at which periods begin, and the end of the last one. window: number of periods that a pass takes
    together. only: the single period that is read; None: all. weights: of the losses of a period, the one before it,
    and so on; a step takes a batch of each period whose weight is not 0.
    """

    edges: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    window: int = 1
    only: int | None = None
    weights: tuple[float, ...] = (1.0,)

    @property
    def periods(self) -> int:
        """Number of periods."""
        return len(self.edges) - 1

    @property
    def length(self) -> int | None:
        """Number of samples of all periods."""
        return int(self.edges[-1])

    @property
    def mixed(self) -> int:
        """Number of batches that a step takes together."""
        return 1 + sum(weight != 0 for weight in self.weights[1:])

    def steps(self, sizes: BatchSizes, world: int, step: int = 0, state: State | None = None) -> int | None:
        """The step at which all periods end; UsageError if one is smaller than a step. step, state: where to begin."""
        (first, within), keep = self.within(state), self.data.last == "keep"
        used = self._position(state).used if within and state is not None else 0
        for period in range(first, self.periods):
            self._check_size(period, sizes.at(step)[0] * world)
            made, left = sizes.epoch(step, self._samples(period) - (used if period == first else 0), world)
            step += made + (keep and left > 0)
        return step

    def at(self, period: int) -> Dataset:
        """The dataset of one period's samples."""
        return self._slice(int(self.edges[period]), int(self.edges[period + 1]))

    def within(self, state: State | None) -> tuple[int, bool]:
        """(the period in which a state continues, whether some of its samples were used already)."""
        if state is None:
            return 0, False
        position = self._position(state)
        over = self._samples(position.epoch) - position.used
        return (position.epoch, True) if over > 0 else (position.epoch + 1, False)

    def batches(self, rank: int, world: int, size: int, state: State | None) -> Iterator[tuple[Batch, State]]:
        """Yield a rank's batches, period after period; a state may come from other ranks, another size, or less data.

        Raises:
            UsageError: a period has too few samples for one step, or the state is of other periods.
            CorruptFile: the state is of other data.
        """
        self.check_sizes(size * world)
        (first, _), start = self.within(state), self.checked(state)
        for period in range(first, self.periods) if self.only is None else [self.only]:
            if start is not None and start.epoch != period:
                start = None
            yield from self._pass(period, start, rank, world, size)

    def checked(self, state: State | None) -> Position | None:
        """The position of a state within its period; None if a period begins there.

        Raises:
            UsageError: the state is of other periods, or of another order.
            CorruptFile: the state is of other data.
        """
        period, begun = self.within(state)
        if state is None or not begun:
            return None
        start = self._position(state)
        self._of_pass(period).check_position(start, self.beginning(self.dataset, period))
        return start

    def check_sizes(self, step: int) -> None:
        """Raise UsageError if a period has fewer samples than a step takes, unless incomplete steps are kept."""
        self._check_size(int(np.diff(self.edges).argmin()), step)

    def _check_size(self, period: int, step: int) -> None:
        samples = self._of_period(period)
        if self.data.last == "drop" and samples < step:
            raise UsageError(
                f"period {period} has {samples:,} samples ({int(self.edges[period]):,} to "
                f"{int(self.edges[period + 1]) - 1:,}), and a step takes {step:,}; give longer data.periods, a smaller "
                "batch size, or data.last: keep"
            )

    def notes(self, sizes: BatchSizes, world: int, state: State | None) -> list[str]:
        """Lines on the number of periods, and on samples that are left out."""
        found, step = np.diff(self.edges), sizes.largest * world
        between = f"{found.min():,} to {found.max():,}" if found.min() < found.max() else f"{found[0]:,}"
        notes = [f"data.train: {self.dataset.note}"] if self.dataset.note else []
        notes.append(f"data.periods: {self.periods} periods of {between} samples, each scored and then trained on")
        after = int(self.dataset.source.sizes().sum()) - int(self.edges[-1])
        periods = self.data.periods
        if after and periods is not None and periods.most == self.periods:
            notes.append(f"{after:,} samples come after them, and are left; data.periods.most is {periods.most}")
        elif after:
            notes.append(f"{after:,} samples are of a period that is not over; they are left until more data comes")
        beyond = [str(each) for each in (periods.score_ahead if periods else ()) if each >= self.periods]
        if beyond:
            notes.append(f"data.periods.score_ahead {', '.join(beyond)}: no period comes so late, so none is scored so")
        if periods is not None and parsed(periods.update, "data.periods.update")[0] == "auto":
            update = update_of(periods.update)
            notes.append(
                f"data.periods.update: auto learns the first {update.replayed} of them by "
                f"{', '.join(update.arms)} first, and takes what pays"
            )
        left = [self._samples(period) % step for period in range(self.periods)]
        if any(left) and self.data.last == "drop":
            notes.append(
                f"up to {max(left):,} samples fill no step of {counted(world, 'rank')} at the end of a period, and are "
                "left out; data.last: keep trains on them"
            )
        return notes

    def _pass(
        self, period: int, start: Position | None, rank: int, world: int, size: int
    ) -> Iterator[tuple[Batch, State]]:
        dataset, beginning = self._of_pass(period), self.beginning(self.dataset, period)
        start = start or beginning
        edges = {BEGINS: self._first(period), ENDS: int(self.edges[period + 1])}
        used = [(back, weight) for back, weight in enumerate(self.weights) if (weight or not back) and back <= period]
        with ExitStack() as opened:
            batches = opened.enter_context(self.opened(dataset, start, rank, world, size))
            if used == [(0, 1.0)]:
                for batch in batches:
                    yield batch, {**encode(batches.position), **edges}
                return
            parts = [batches if not back else self._again(period - back, start, rank, world, size) for back, _ in used]
            for found in zip(*parts, strict=False):
                yield _mixed(found, [weight for _, weight in used]), {**encode(batches.position), **edges}

    def _again(self, period: int, start: Position, rank: int, world: int, size: int) -> Iterator[Batch]:
        """Yield batches of an earlier period endlessly, beginning at the offset that `start` has in the new period.

        Only full steps are taken, if the period has any.
        """
        dataset, step = self.at(period), size * world
        whole = self._of_period(period) // step * step
        first = start.used % whole if whole else 0
        for _ in count():
            with dataset.batches(
                rank=rank, world_size=world, batch_size=size, seed=start.seed, shuffle=start.shuffle,
                drop_last=whole > 0, position=replace(start, used=first), together=start.together, window=start.window,
                epoch=start.epoch,
            ) as batches:  # fmt: skip
                yield from batches
            first = 0

    def _of_pass(self, period: int) -> Dataset:
        return self._slice(self._first(period), int(self.edges[period + 1]))

    def _first(self, period: int) -> int:
        return int(self.edges[max(0, period - self.window + 1)])

    def _samples(self, period: int) -> int:
        """Number of samples of a pass."""
        return int(self.edges[period + 1]) - self._first(period)

    def _of_period(self, period: int) -> int:
        return int(self.edges[period + 1] - self.edges[period])

    def _slice(self, first: int, last: int) -> Dataset:
        return Dataset(SlicedSource(self.dataset.source, first, last))

    def _position(self, state: State) -> Position:
        """The position of a state, with the current digest of the data.

        Raises:
            UsageError: the state is of other periods, or of a run without periods.
            CorruptFile: the state is of other data, or damaged.
        """
        if BEGINS not in state:
            raise UsageError(
                "the checkpoint is of a run without data.periods, which takes samples from anywhere in the data; give "
                "another output folder, or leave data.periods out"
            )
        plain = {key: value for key, value in state.items() if key not in (BEGINS, ENDS)}
        position, source = decode(Position, plain, "the position of the data"), self.dataset.source
        earlier = source.earlier() if isinstance(source, GrowingSource) else {}
        if position.dataset != source.digest and position.dataset not in earlier:
            raise CorruptFile(
                f"the position is of other data (digest {position.dataset}, this data has {source.digest}); give the "
                "data that was used before, with more behind it or not, or another output folder"
            )
        there = position.epoch < self.periods
        here = [self._first(position.epoch), int(self.edges[position.epoch + 1])] if there else []
        first, last = state[BEGINS], state.get(ENDS)
        if type(first) is not int or type(last) is not int:
            raise CorruptFile(
                f"the position of the data is of samples {str(first)[:40]!r} to {str(last)[:40]!r}, and these are "
                "whole numbers; it is damaged"
            )
        if here != [first, last]:
            raise UsageError(
                f"the checkpoint is of period {position.epoch}, trained on samples {first:,} to "
                f"{last - 1:,}, and here {_range(here)}; give data.periods as they were, or another output "
                "folder"
            )
        return replace(position, dataset=source.digest)


def _range(edges: list[int]) -> str:
    return f"it is trained on samples {edges[0]:,} to {edges[1] - 1:,}" if edges else "there is no such period"


def _mixed(parts: tuple[Batch, ...], weights: list[float]) -> Batch:
    """Join batches to one whose mean weighted loss is the weighted sum of the mean losses of the batches."""
    scaled = [np.full(len(part), weight * len(parts), np.float32) for part, weight in zip(parts, weights, strict=True)]
    corrupt = sum(part.corrupt for part in parts)
    return replace(concatenated(parts), loss_weights=np.concatenate(scaled), corrupt=corrupt)


def in_periods(dataset: Dataset, run: Run) -> PeriodSource:
    """The dataset as a stream, with the window of the run's update; UsageError if it has too few periods."""
    data = run.data
    assert data.periods is not None
    check_together(data_parts(run))
    edges, update = edges_of(dataset.source, data.periods), update_of(data.periods.update)
    least = max(update.window, update.mixed, update.least, getattr(update, "replayed", 0) + 1)
    if least > len(edges) - 1:
        raise UsageError(
            f"data.periods.update needs {least} periods, and the data has {len(edges) - 1}; give it fewer, or shorter "
            "periods"
        )
    if (nearest := min(data.periods.score_ahead)) > len(edges) - 2:
        raise UsageError(
            f"data.periods.score_ahead is {nearest} or more, and the data has {len(edges) - 1} periods, so that none "
            f"would be scored after one that was trained; give {len(edges) - 2} or less"
        )
    return PeriodSource(dataset, data, run.order_seed, output=Path(run.output), edges=edges, window=update.window)
