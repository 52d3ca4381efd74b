"""Data as a run file names it: where samples come from, and how many a step has."""

from dataclasses import dataclass
from typing import Any, Literal, cast

from recsmith._types import noun
from recsmith.data.order import WINDOW
from recsmith.errors import LARGEST_SEED, UsageError, check_rules, outside
from recsmith.feeding.engines import EngineName
from recsmith.training.listed import DataKeys
from recsmith.training.seams.keys import keys_of_systems

LIKE = "like"  # of data.test
MOST_SAMPLES = 2**31  # of a step
MOST_EPOCHS, MOST_WORKERS = 2**20, 1024


@dataclass(frozen=True)
class BatchSizes:
    """Sizes by the steps that were done before.

    ((0, 1024), (1000, 4096)): 1,024 samples in each of the first 1,000 steps, and 4,096 in those that follow.
    """

    changes: tuple[tuple[int, int], ...]

    @property
    def largest(self) -> int:
        """Samples of the largest step: what memory is planned for."""
        return max(size for _, size in self.changes)

    def at(self, step: int) -> tuple[int, int | None]:
        """(samples of the step that follows `step` others, steps until the size changes); None: it stays."""
        size = next(size for first, size in reversed(self.changes) if first <= step)
        ends = next((first for first, _ in self.changes if first > step), None)
        return size, None if ends is None else ends - step

    def steps(self, samples: int, epochs: int, ranks: int, *, keep: bool = False, step: int = 0) -> int:
        """Steps after so many epochs, which begin after `step` others; the last one of each is kept, or left out.

        keep: also where it is not full.
        """
        for epoch in range(epochs):
            made, left = self.epoch(step, samples, ranks)
            if self.at(step)[1] is None:  # and so are all that follow
                return step + (epochs - epoch) * (made + (keep and left > 0))
            step += made + (keep and left > 0)
        return step

    def epoch(self, step: int, samples: int, ranks: int) -> tuple[int, int]:
        """(full steps of an epoch that begins after `step` others, samples that are left then)."""
        first, left, over = step, samples, False
        while not over:
            size, more = self.at(step)
            full = left // (size * ranks)
            over = more is None or full < more
            made = full if more is None else min(full, more)
            step, left = step + made, left - made * size * ranks
        return step - first, left


@noun
class BatchChange:
    """Another batch size from a step on.

    after_steps: how many steps of the run come before. size: like batch_size or, where that is given, like
    global_batch_size.
    """

    after_steps: int
    size: int

    def __post_init__(self) -> None:
        check_rules(
            outside("data.batch_changes: after_steps", self.after_steps, 1),
            outside("data.batch_changes: size", self.size, 1, MOST_SAMPLES),
        )


def _like(train: Any, test: Any) -> Any:
    """data.test, written out where it is that of data.train with other values of some keys."""
    if not isinstance(test, dict) or LIKE not in test:
        return test
    given = cast(dict[str, Any], test)
    if given[LIKE] != "train" or not isinstance(train, dict):
        raise UsageError(
            f"data.test is like {given[LIKE]!r:.40}, which is no mapping of data.train; write like: train, where "
            "data.train names its format, or name the format here"
        )
    return {**cast(dict[str, Any], train), **{key: value for key, value in given.items() if key != LIKE}}


@noun
@keys_of_systems("data.")
class RunData(DataKeys):
    """Where samples come from. train, test: a file, a folder, or a mapping that names the format (docs/data.md).

    test may be {like: train, split: test}: the mapping of train with other values of some keys. batch_size: samples per
    rank and step. global_batch_size: of all ranks instead, so that a run means the same on another number of ranks.
    batch_changes: other sizes from some steps on, such as larger ones once the loss falls slowly. epochs: passes over
    train. shuffle: in an order drawn from the run's seed. last: `drop` leaves the samples out that fill no step at the
    end of an epoch; `keep` trains on them in a step of fewer.

    keep_together: so many samples that are stored side by side stay so when shuffled, as the samples of a session must
    whose features repeat. window: samples that are shuffled together; fewer need less memory. feed: processes of each
    rank that read, transform and batch, a number or auto; none: a thread of the trainer (docs/feed.md). engine: what
    runs them, this machine or a Ray cluster. ray_address: of the cluster's head, 'host:port'; none: that of
    RAY_ADDRESS, or a Ray of this machine that ends with the run. seed: from which the order of samples follows; none:
    the run's.
    """

    train: Any
    test: Any = None
    batch_size: int = 1024  # trade-off: larger ones use devices better, and need another learning rate
    global_batch_size: int | None = None
    batch_changes: tuple[BatchChange, ...] = ()
    epochs: int = 1
    shuffle: bool = True
    last: Literal["drop", "keep"] = "drop"
    keep_together: int = 1
    window: int = WINDOW
    feed: Literal["auto"] | int | None = None
    engine: EngineName = "local"
    ray_address: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "test", _like(self.train, self.test))
        steps = [change.after_steps for change in self.batch_changes]
        check_rules(
            outside("data.batch_size", self.batch_size, 1, MOST_SAMPLES),
            outside("data.epochs", self.epochs, 1, MOST_EPOCHS),
            outside("data.keep_together", self.keep_together, 1, MOST_SAMPLES),
            outside("data.window", self.window, 1),
            outside("data.seed", self.seed, 0, LARGEST_SEED),
            outside("data.feed", self.feed, 1, MOST_WORKERS) if isinstance(self.feed, int) else None,
            outside("data.global_batch_size", self.global_batch_size, 1, MOST_SAMPLES),
            None
            if steps == sorted(set(steps))
            else f"data.batch_changes come after steps {', '.join(map(str, steps))}; put them in order, each once",
            None
            if self.engine == "local" or self.feed is not None
            else f"data.engine is {self.engine} and there is no feed that it would run; add data.feed: auto",
            None
            if self.engine == "ray" or self.ray_address is None
            else "data.ray_address names a Ray cluster and data.engine is local; set data.engine: ray",
        )

    @property
    def largest_batch(self) -> int:
        """Samples of the largest step: of a rank, or of all of them with global_batch_size."""
        return max(size for _, size in self._sizes)

    def batch_sizes(self, ranks: int) -> BatchSizes:
        """Samples per rank of each step on so many ranks; UsageError where they cannot be shared evenly."""
        if self.global_batch_size is None:
            return BatchSizes(self._sizes)
        for first, size in self._sizes:
            if size % ranks:
                key = f"data.batch_changes: size {size}" if first else f"data.global_batch_size {size}"
                raise UsageError(f"{key} cannot be shared evenly by {ranks} ranks; give a multiple of {ranks}")
        return BatchSizes(tuple((first, size // ranks) for first, size in self._sizes))

    def local_batch_size(self, ranks: int) -> int:
        """Samples per rank of the largest step; UsageError where they cannot be shared evenly."""
        return self.batch_sizes(ranks).largest

    @property
    def _sizes(self) -> tuple[tuple[int, int], ...]:
        changes = ((change.after_steps, change.size) for change in self.batch_changes)
        return ((0, self.global_batch_size or self.batch_size), *changes)
