"""Settings of a stream in periods: how long a period is, and how a new one is learned; without torch."""

from typing import Any

from recsmith._components import make, unknown
from recsmith._types import Ints, noun
from recsmith.data.slices import check_time_order, edges_by_count, edges_by_samples, edges_by_time
from recsmith.data.source import BlockSource
from recsmith.errors import UsageError, check_rules
from recsmith.training.optimizers.settings import positive
from recsmith.training.seams import UPDATE


@noun
class Periods:
    """A stream of samples in periods: the current model scores each new period, and is then trained on it.

    samples: number of samples of a period. count: instead, number of periods, whose samples differ by at most one.
    column: instead, the column of the data by whose times periods are made. every: length of a period in the column's
    unit, in seconds for dates. update: how a new period is learned: incremental, from its samples alone; window, from
    the last periods; future_gradient, by weighted losses of the last periods; or a component of yours (docs/online.md).
    score_ahead: periods that a model scores, counted from the newest trained one; 1 is the next.
    most: number of periods that are used, from the first; none: all.
    """

    samples: int | None = None
    count: int | None = None
    column: str | None = None
    every: float | None = None
    update: str | dict[str, Any] = "incremental"
    score_ahead: tuple[int, ...] = (1,)
    most: int | None = None

    @property
    def mixed(self) -> int:
        """Most batches that a step takes together."""
        return make(UPDATE, self.update, where="data.periods.update").mixed

    def __post_init__(self) -> None:
        """Check that the length of a period is given exactly once, and the other settings."""
        said = [name for name in ("samples", "count", "column") if getattr(self, name) is not None]
        check_rules(
            None
            if len(said) == 1
            else f"data.periods has {' and '.join(said) or 'none of samples, count and column'}; give exactly one of "
            "samples, count and column",
            *(
                positive(f"data.periods.{name}", value)
                for name in ("samples", "count", "most")
                if (value := getattr(self, name)) is not None
            ),
            None
            if (self.column is None) == (self.every is None)
            else "data.periods.column and data.periods.every go together; give both, or samples",
            None
            if self.every is None or 0 < self.every < float("inf")
            else f"data.periods.every is {self.every}; it must be above 0",
            None
            if self.score_ahead and min(self.score_ahead) >= 1
            else "data.periods.score_ahead counts periods after the newest one that was trained; give some numbers, "
            "each 1 or more",
            None
            if len(set(self.score_ahead)) == len(self.score_ahead)
            else f"data.periods.score_ahead is {list(self.score_ahead)}, where a number stands twice; give each once",
            unknown(UPDATE, self.update, "data.periods.update"),
        )


def edges_of(source: BlockSource, periods: Periods) -> Ints:
    """The samples at which periods begin, and the end of the last one (P + 1,).

    Raises:
        UsageError: the data has no such column, is not in the order of its times, or fills fewer than two periods.
        CorruptFile: a sample has no time.
    """
    if periods.column is not None:
        assert periods.every is not None
        edges = edges_by_time(source, periods.column, periods.every)
    elif periods.samples is not None:
        edges = edges_by_samples(source, periods.samples)
    else:
        assert periods.count is not None
        if periods.count > (total := int(source.sizes().sum())):
            raise UsageError(f"data.periods.count is {periods.count:,}, and there are {total:,} samples; give fewer")
        edges = edges_by_count(source, periods.count)
    if periods.most is not None:
        edges = edges[: periods.most + 1]
    if len(edges) < 3:
        total = int(source.sizes().sum())
        raise UsageError(
            f"{total:,} samples fill {max(0, len(edges) - 1)} periods, so that none is left to score after one "
            "that was trained; give data.periods shorter ones, or more data"
        )
    if periods.column is None:
        check_time_order(source, edges)
    return edges
