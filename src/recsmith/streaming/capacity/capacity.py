"""Computes how many rows a stream's tables need, by reading it in bounded memory, and forecasts a longer stream."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data import Dataset
from recsmith.errors import UsageError, check_rules
from recsmith.files import did_you_mean
from recsmith.streaming.capacity.caches import check_policies
from recsmith.streaming.capacity.distances import previous
from recsmith.streaming.capacity.forecast import Forecast, forecast
from recsmith.streaming.capacity.id_sample import MOST, IdSample, Sampled
from recsmith.streaming.capacity.reads import DEVIATIONS, TableReads
from recsmith.workloads.workload import LARGEST_COUNT, wrong_name

SIZES = 8  # table sizes for which served shares are computed
SMALLEST = 0.5  # the smallest size serves this share of what an unbounded table serves
PARTS = 10  # parts of the stream after which different ids are counted
LEAST_MOST = 2**14  # least number of lookups kept per feature, however many features there are
KEPT_BYTES = 48  # bytes of memory per kept lookup, at the peak while the sample is thinned
POLICIES = ("lru", "lfu", "age")


@noun
class PolicyRows:
    """What tables serve under an eviction policy.

    served: share of all lookups that is served, by table size. rows: number of rows that serve the requested share.
    low, high: bounds of its interval; equal to rows if all lookups were counted.
    """

    policy: str
    served: tuple[float, ...]
    rows: int
    low: int
    high: int

    def __post_init__(self) -> None:
        check_policies((self.policy,))
        check_rules(
            None
            if min((self.rows, self.low, self.high)) >= 0 and self.rows
            else f"rows of policy {self.policy} are {self.rows}, {self.low} to {self.high}; they are 1 or more",
            None
            if all(0 <= share <= 1 for share in self.served)
            else f"policy {self.policy} serves shares outside 0 to 1",
        )


@noun
class FeatureCapacity:
    """The table that the stream of a feature needs.

    lookups: number of lookups read. sampled: share of ids that were sampled; 1: all. distinct: number of different ids.
    over_time: number of different ids after each tenth of the lookups. new_share: share of the last tenth's lookups
    whose id had not occurred before. reachable: share of all lookups that an unbounded table serves. sizes: table
    sizes. forecast: forecast of the whole stream, if only its beginning was read. untold: why there is no forecast.
    """

    feature: str
    lookups: int
    sampled: float
    distinct: int
    over_time: tuple[int, ...]
    new_share: float
    reachable: float
    sizes: tuple[int, ...]
    policies: tuple[PolicyRows, ...]
    forecast: Forecast | None = None
    untold: str = ""

    def __post_init__(self) -> None:
        rows = {} if self.forecast is None else self.forecast.rows
        check_rules(
            wrong_name(self.feature, "feature"),
            None
            if self.lookups >= 1 and self.policies
            else f"feature '{self.feature}' has {self.lookups} lookups and {len(self.policies)} policies; one at least",
            None
            if self.sizes
            and min(self.sizes) >= 1
            and all(len(each.served) == len(self.sizes) for each in self.policies)
            else f"feature '{self.feature}' has sizes {list(self.sizes)}; each is 1 or more, with a share by policy",
            None
            if self.forecast is None or all(1 <= rows.get(each.policy, 0) < LARGEST_COUNT for each in self.policies)
            else f"the forecast of feature '{self.feature}' has no rows, 1 or more, of a policy",
        )

    @property
    def needed(self) -> int:
        """Rows needed under the first policy: for the whole stream if there is a forecast, else for what was read."""
        first = self.policies[0]
        return first.rows if self.forecast is None else math.ceil(self.forecast.rows[first.policy])


@noun
class Capacity:
    """The tables that a stream's features need.

    samples: number of samples read. whole: samples of the whole stream, if that is longer. serve: share of what an
    unbounded table serves that tables should serve. admit: how often an id must have been seen to get a row. stopped:
    whether reading was interrupted. by_law: whether figures come from a law that was fitted to a job's sketches, and
    not from reading data.
    """

    source: str
    samples: int
    whole: int | None
    serve: float
    admit: int
    features: tuple[FeatureCapacity, ...]
    stopped: bool = False
    by_law: bool = False


@noun
class Asked:
    """What to compute of a stream. features: names of features; empty: all. serve, admit: as in Capacity.

    samples: largest number of samples to read; None: all. whole: samples of the whole stream to forecast. memory: bytes
    of memory for the sampled lookups.
    """

    features: tuple[str, ...] = ()
    policies: tuple[str, ...] = POLICIES
    serve: float = 0.99
    admit: int = 1
    samples: int | None = None
    whole: int | None = None
    memory: int = 2**28

    def __post_init__(self) -> None:
        check_policies(self.policies)
        check_rules(
            None
            if 0 < self.serve < 1
            else f"serve is {self.serve:g}, and it is a share above 0 and below 1: no bounded table serves all lookups "
            "while new ids come; ask for 0.99",
            None if self.admit >= 1 else f"admit is {self.admit}; an id gets a row when it was seen once or more",
        )


class StreamReader:
    """Reads the samples of a dataset in order, and samples lookups from which needed rows are computed."""

    def __init__(self, dataset: Dataset, asked: Asked) -> None:
        known = dataset.schema.feature_names
        strange = next((each for each in asked.features if each not in known), None)
        if strange is not None:
            raise UsageError(f"the data has no feature '{strange}'{did_you_mean(strange, list(known))}")
        self.dataset, self.asked, self.samples = dataset, asked, 0
        names = asked.features or tuple(known)
        if not names:
            raise UsageError("the data has no features, so there are no rows to predict")
        most = min(MOST, max(LEAST_MOST, asked.memory // KEPT_BYTES // len(names)))
        self.kept = {name: IdSample(most) for name in names}

    def read(self, on_progress: Callable[[int], None] = lambda _: None) -> bool:
        """Read all samples, or as many as were requested; returns False if Ctrl-C interrupted it."""
        wanted = math.inf if self.asked.samples is None else self.asked.samples
        try:
            for block in range(len(self.dataset.source.sizes())):
                if self.samples >= wanted:
                    break
                samples = self.dataset.source.read(block).whole()
                if len(samples) > wanted - self.samples:
                    samples = samples.take(np.arange(int(wanted - self.samples)))
                for name, kept in self.kept.items():
                    kept.add(samples.ids[name].values)
                self.samples += len(samples)
                on_progress(self.samples)
        except KeyboardInterrupt:
            return False
        return True

    def capacity(self, source: str, *, stopped: bool = False) -> Capacity:
        """The tables that the samples read so far need. source: name of the data. stopped: whether reading was stopped.

        Raises:
            UsageError: nothing was read.
        """
        if not self.samples:
            raise UsageError("no sample was read, so nothing is known of ids; name data that has some")
        whole = self.asked.whole
        if whole is None and (self.asked.samples or stopped):
            whole = self.dataset.num_samples
        if whole is not None and whole <= self.samples:
            whole = None
        streams = {name: kept.sampled() for name, kept in self.kept.items()}
        return Capacity(
            source=source, samples=self.samples, whole=whole, serve=self.asked.serve, admit=self.asked.admit,
            features=features_of(streams, self.asked, 1.0 if whole is None else whole / self.samples), stopped=stopped,
        )  # fmt: skip


def features_of(streams: Mapping[str, Sampled], asked: Asked, longer: float) -> tuple[FeatureCapacity, ...]:
    """The tables that streams need, by feature. longer: length of the whole stream / length that was read."""
    return tuple(_feature(name, each, asked, longer) for name, each in streams.items() if each.lookups)


def _feature(name: str, sampled: Sampled, asked: Asked, longer: float) -> FeatureCapacity:
    reads = TableReads(sampled, asked.admit)
    sizes, over_time = _sizes(reads), _over_time(sampled)
    made, untold = None, ""
    if longer > 1:
        try:
            made = forecast(
                sampled, round(sampled.lookups * longer), asked.policies, serve=asked.serve, admit=asked.admit
            )  # fmt: skip
        except UsageError as error:
            untold = str(error)
    last = sampled.lookups - sampled.lookups * (PARTS - 1) // PARTS
    return FeatureCapacity(
        feature=name, lookups=sampled.lookups, sampled=sampled.rate, distinct=round(reads.distinct),
        over_time=over_time, new_share=min(1.0, (over_time[-1] - over_time[-2]) / max(last, 1)),
        reachable=reads.reachable / sampled.lookups, sizes=sizes,
        policies=tuple(_policy(each, reads, asked.serve, sizes) for each in asked.policies), forecast=made,
        untold=untold,
    )  # fmt: skip


def _policy(policy: str, reads: TableReads, serve: float, sizes: Sequence[int]) -> PolicyRows:
    rows = reads.rows(policy, serve)
    off = DEVIATIONS * reads.deviation(policy, serve)
    return PolicyRows(
        policy=policy, served=tuple(reads.served(policy, size) for size in sizes), rows=math.ceil(rows),
        low=math.ceil(rows * math.exp(-off)), high=math.ceil(rows * math.exp(off)),
    )  # fmt: skip


def _sizes(reads: TableReads) -> tuple[int, ...]:
    """Table sizes up to the number of different ids, evenly spaced in their logarithm and rounded to two digits."""
    low, high = TableReads(reads.sampled).rows("lru", SMALLEST), max(1.0, reads.distinct)
    spaced = np.geomspace(max(1.0, min(low, high / 64)), high, SIZES)
    rounded = {round(each, 1 - math.floor(math.log10(each))) for each in spaced.tolist()[:-1]}
    return tuple(sorted({*(max(1, int(each)) for each in rounded if each < high), math.ceil(high)}))


def _over_time(sampled: Sampled) -> tuple[int, ...]:
    """Number of different ids after each tenth of the lookups."""
    first: Ints = sampled.places[previous(sampled.ids) < 0]
    ends = np.arange(1, PARTS + 1) * sampled.lookups // PARTS
    return tuple(np.round(np.searchsorted(first, ends) / sampled.rate + sampled.hot_rows).astype(np.int64).tolist())
