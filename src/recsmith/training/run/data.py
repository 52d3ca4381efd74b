"""The data section of a run: where samples come from, and how many samples a step trains on."""

from dataclasses import dataclass
from typing import Any, Literal, cast

from recsmith._types import noun
from recsmith.data.order import WINDOW
from recsmith.errors import LARGEST_SEED, UsageError, check_rules, outside
from recsmith.feeding.engines import EngineName
from recsmith.training.listed import DataKeys
from recsmith.training.seams.keys import keys_of_systems

LIKE = "like"  # key of data.test that says which mapping it copies
MOST_SAMPLES = 2**31  # largest number of samples in a step
MOST_EPOCHS, MOST_WORKERS = 2**20, 1024


@dataclass(frozen=True)
class BatchSizes:
    """Samples per rank of each step, as a schedule over the steps done so far.

    ((0, 1024), (1000, 4096)): 1,024 samples in each of the first 1,000 steps, and 4,096 in all later steps.
    """

    changes: tuple[tuple[int, int], ...]

    @property
    def largest(self) -> int:
        """Samples of the largest step, for which memory is planned."""
        return max(size for _, size in self.changes)

    def at(self, step: int) -> tuple[int, int | None]:
        """(samples of the step after `step` steps, steps until the size changes); None if it does not change again."""
        size = next(size for first, size in reversed(self.changes) if first <= step)
        ends = next((first for first, _ in self.changes if first > step), None)
        return size, None if ends is None else ends - step

    def steps(self, samples: int, epochs: int, ranks: int, *, keep: bool = False, step: int = 0) -> int:
        """Total steps once `epochs` more epochs are done, starting after `step` steps.

        keep: whether the samples that do not fill a step at the end of an epoch are trained in a smaller one, or left
        out.
        """
        for epoch in range(epochs):
            made, left = self.epoch(step, samples, ranks)
            if self.at(step)[1] is None:  # and so are all that follow
                return step + (epochs - epoch) * (made + (keep and left > 0))
            step += made + (keep and left > 0)
        return step

    def epoch(self, step: int, samples: int, ranks: int) -> tuple[int, int]:
        """(full steps of an epoch that begins after `step` steps, samples left over at its end)."""
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
    """A change of the batch size after some steps.

    after_steps: number of steps of the run before the change. size: the new batch_size, or the new global_batch_size if
    the run gives that.
    """

    after_steps: int
    size: int

    def __post_init__(self) -> None:
        check_rules(
            outside("data.batch_changes: after_steps", self.after_steps, 1),
            outside("data.batch_changes: size", self.size, 1, MOST_SAMPLES),
        )


def _like(train: Any, test: Any) -> Any:
    """data.test, with `like: train` replaced by the mapping of data.train and the keys of data.test put over it."""
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
    rank and step. global_batch_size: samples per step of all ranks together, instead of batch_size, so that a run means
    the same on another number of ranks. batch_changes: other batch sizes after some steps, such as larger ones once the
    loss falls slowly. epochs: passes over train. shuffle: whether samples are read in an order drawn from the run's
    seed. last: `drop` leaves out the samples that do not fill a step at the end of an epoch; `keep` trains on them in a
    smaller step.

    keep_together: number of consecutive samples that stay together when shuffled, such as the samples of a session,
    whose features repeat. window: samples that are shuffled together; a smaller window needs less memory. feed:
    processes of each rank that read, transform and batch samples, a number or auto; none: a thread of the trainer
    (docs/feed.md). engine: where the feed's processes run, on this machine or on a Ray cluster. ray_address: address of
    the cluster's head, 'host:port'; none: the address in RAY_ADDRESS, or a Ray on this machine that ends with the run.
    seed: seed of the order of samples; none: the run's seed.
    """

    train: Any
    test: Any = None
    batch_size: int = 1024  # trade-off: larger batches use devices better, and need another learning rate
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
        """Samples of the largest step, of each rank, or of all ranks together if global_batch_size is given."""
        return max(size for _, size in self._sizes)

    def batch_sizes(self, ranks: int) -> BatchSizes:
        """Samples per rank of each step on `ranks` ranks; UsageError if a batch cannot be divided evenly among them."""
        if self.global_batch_size is None:
            return BatchSizes(self._sizes)
        for first, size in self._sizes:
            if size % ranks:
                key = f"data.batch_changes: size {size}" if first else f"data.global_batch_size {size}"
                raise UsageError(f"{key} cannot be shared evenly by {ranks} ranks; give a multiple of {ranks}")
        return BatchSizes(tuple((first, size // ranks) for first, size in self._sizes))

    def local_batch_size(self, ranks: int) -> int:
        """Samples per rank of the largest step; UsageError if a batch cannot be divided evenly among the ranks."""
        return self.batch_sizes(ranks).largest

    @property
    def _sizes(self) -> tuple[tuple[int, int], ...]:
        changes = ((change.after_steps, change.size) for change in self.batch_changes)
        return ((0, self.global_batch_size or self.batch_size), *changes)
