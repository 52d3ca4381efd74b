"""Mergeable sketches of the ids of one feature: number of different ids, most frequent ids, lengths of bags.

n ids of some bags, b bags
"""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._install import WATCHING
from recsmith._types import Ints
from recsmith.data.domain import id_outside
from recsmith.errors import CorruptFile, MissingExtra, UsageError
from recsmith.files import Raw
from recsmith.workloads.busiest_shares import BusiestShares
from recsmith.workloads.row_blocks import blocks_of as block_count
from recsmith.workloads.row_blocks import count_blocks

SCHEMA = "recsmith/id-sketch/1"
LG_DISTINCT = 12  # HyperLogLog of 4,096 registers: standard error of the number of different ids is 1.6 %
LG_FREQUENT = 10  # frequent items keep up to 768 ids: error of a count is at most 3.5 / 1,024 of all ids
LENGTH_K = 200  # KLL of bag lengths: error of quantile ranks is 1.3 %
MOST = 2**63  # ids and their counts are below this
HASHES, BUCKETS = 4, 1024  # count-min: a count is too high by at most 2.72 / 1,024 of all ids, in 98 of 100 cases

COUNTED = (HASHES, BUCKETS, 9001)  # with the seed of the hash functions in datasketches


def library() -> Any:
    """The datasketches package; MissingExtra if it is not installed."""
    try:
        import datasketches
    except ImportError:
        raise MissingExtra(f"sketches need datasketches: {WATCHING}") from None
    return datasketches


class IdSketch:
    """A summary of a stream of bags of ids in 30 to 80 kB, however long the stream is; sketches can be merged.

    bags, lookups: exact counts of seen bags and ids; `sketched` of these ids were added to the sketches. of_lookups:
    estimated ids of the whole stream in the same time, as each seen batch stands for `every` batches.
    rows: number of rows of the ids' table; None: not known. blocks_of: number of rows of the table whose reads are
    counted in equal blocks of rows, until an id is outside the table; None: not counted.
    """

    def __init__(self, rows: int | None = None, blocks_of: int | None = None, every: int = 1) -> None:
        self._rows, self._cut, self._every = MOST if rows is None else rows, blocks_of or 0, every
        self._library = made = library()
        self.bags, self.lookups, self.sketched, self.of_lookups = 0, 0, 0, 0
        self._distinct = made.hll_sketch(LG_DISTINCT, made.HLL_8)
        self._frequent = made.frequent_items_sketch(LG_FREQUENT)
        self._lengths = made.kll_ints_sketch(LENGTH_K)
        self._counts = made.count_min_sketch(HASHES, BUCKETS)
        self._blocks = np.zeros(block_count(self._cut), dtype=np.int64)
        self.busiest = BusiestShares()  # shares of the busiest block in each update

    def count(self, bags: int, lookups: int) -> None:
        """Count bags and their ids, of which `update` may sketch a part; UsageError if a count is negative."""
        if bags < 0 or lookups < 0:
            raise UsageError(f"{bags:,} bags of {lookups:,} ids cannot be counted; give numbers of 0 or more")
        self.bags, self.lookups = self.bags + bags, self.lookups + lookups
        self.of_lookups += lookups * self._every

    def update(self, values: Ints, lengths: npt.NDArray[np.integer[Any]]) -> None:
        """Sketch the ids (n,) of bags with the given lengths (b,), an unbiased sample of what `count` counts.

        Raises:
            UsageError: lengths do not add up to the ids, one is negative, or an id is no row of the table.
        """
        if len(lengths) and lengths.min() < 0:
            raise UsageError(f"a bag has {lengths.min()} ids; lengths are 0 or more")
        wrong = id_outside(values, self._rows)
        if wrong is not None:
            raise UsageError(f"the id {wrong} is no row of a table of {self._rows:,} rows, and is not sketched")
        if int(lengths.sum(dtype=np.int64)) != len(values):
            raise UsageError(f"lengths add up to {int(lengths.sum()):,}, and there are {len(values):,} ids")
        self.sketched += len(values)
        self._lengths.update(np.ascontiguousarray(lengths, np.int32))
        ids, times = np.unique(values, return_counts=True)
        if len(self._blocks) and len(ids):
            known = ids[-1] < self._cut
            self._blocks = self._blocks + count_blocks(ids, self._cut, times) if known else self._blocks[:0]
            if known:
                self.busiest.add(values, self._cut)
        distinct, frequent, counts = self._distinct.update, self._frequent.update, self._counts.update
        for value, weight in zip(ids.tolist(), times.tolist(), strict=True):
            distinct(value)
            frequent(value, weight)
            counts(value, weight)

    def merge(self, other: "IdSketch") -> None:
        """Merge another sketch into this one; counts by block of rows are dropped if the numbers of blocks differ."""
        if not self.sketched:
            self._blocks = np.zeros_like(other._blocks)
        if other.sketched:
            same = len(self._blocks) == len(other._blocks)
            self._blocks = self._blocks + other._blocks if same else self._blocks[:0]
            self.busiest.merge(other.busiest)
        self.bags, self.lookups = self.bags + other.bags, self.lookups + other.lookups
        self.sketched, self.of_lookups = self.sketched + other.sketched, self.of_lookups + other.of_lookups
        self._distinct = _union(self._library, self._distinct, other._distinct)
        self._frequent.merge(other._frequent)
        self._lengths.merge(other._lengths)
        self._counts.merge(other._counts)

    @property
    def blocks(self) -> list[int]:
        """Number of sketched lookups in each equal block of the table's rows; empty if they are not counted."""
        return self._blocks.tolist()

    @property
    def distinct(self) -> float:
        """Estimated number of different sketched ids (standard error 1.6 %)."""
        return float(self._distinct.get_estimate())

    def distinct_with(self, *others: "IdSketch") -> float:
        """Estimated number of different ids in this sketch and the others together."""
        together = _union(self._library, self._distinct, *(each._distinct for each in others))
        return float(together.get_estimate())

    def new_share(self, before: "IdSketch") -> float:
        """Number of different ids here that are not in the sketch `before`, per sketched lookup."""
        return max(0.0, self.distinct_with(before) - before.distinct) / max(self.sketched, 1)

    def frequent(self, most: int = 256) -> list[tuple[int, float]]:
        """The most read ids, each with its share of lookups, in falling order."""
        found = self._frequent.get_frequent_items(self._library.NO_FALSE_NEGATIVES)
        between = ((int(item), (low + high) / 2) for item, _, low, high in found)
        counts = sorted(between, key=lambda each: (-each[1], each[0]))
        return [(item, count / max(self.sketched, 1)) for item, count in counts[:most]]

    def heavy(self) -> list[float]:
        """The counts of ids whose counts are known within a factor of 3, in falling order."""
        found = self._frequent.get_frequent_items(self._library.NO_FALSE_NEGATIVES)
        return sorted(((low + high) / 2 for _, _, low, high in found if high <= 3 * low), reverse=True)

    @property
    def unseen(self) -> float:
        """Upper bound of the count of an id whose count is not known."""
        return self._frequent.epsilon * self.sketched

    def share_in(self, hot: Ints) -> float:
        """Share of the sketched lookups that read one of these ids, by count-min; never underestimated."""
        counts = sum(float(self._counts.get_estimate(int(item))) for item in hot)
        return min(1.0, counts / max(self.sketched, 1))

    def length(self, rank: float) -> int:
        """The quantile of bag lengths at a rank from 0 to 1, such as the median at 0.5; 0 if nothing was sketched."""
        return 0 if self._lengths.is_empty() else int(self._lengths.get_quantile(rank))

    def to_raw(self) -> Raw:
        """The sketch as JSON data, from which `from_raw` restores it."""
        serde = self._library.PyLongsSerDe()
        parts = {
            "distinct": self._distinct.serialize_compact(), "frequent": self._frequent.serialize(serde),
            "lengths": self._lengths.serialize(), "counts": self._counts.serialize(),
        }  # fmt: skip
        numbers = {"bags": self.bags, "lookups": self.lookups, "sketched": self.sketched}
        numbers |= {"of_lookups": self.of_lookups} if self.of_lookups != self.lookups else {}
        numbers |= {**self.busiest.to_raw(), "blocks": self.blocks} if self.blocks else {}
        return {"schema": SCHEMA, **numbers, **{name: base64.b64encode(each).decode() for name, each in parts.items()}}

    @classmethod
    def from_raw(cls, raw: Raw, source: str) -> "IdSketch":
        """Restore a sketch from data of `to_raw`. source: the name of the data, for errors.

        Raises:
            CorruptFile: the data is damaged, or of another version.
        """
        made = cls()
        package, serde = made._library, made._library.PyLongsSerDe()
        if raw.get("schema") != SCHEMA:
            raise CorruptFile(f"{source} has schema {raw.get('schema')!r}, not {SCHEMA}; it is of another version")
        try:
            data = {name: base64.b64decode(raw[name], validate=True) for name in PARTS}
            made.bags, made.lookups, made.sketched = (_count(raw, name) for name in ("bags", "lookups", "sketched"))
            made.of_lookups = _count(raw, "of_lookups") if "of_lookups" in raw else made.lookups
            made._distinct = package.hll_sketch.deserialize(data["distinct"])
            made._frequent = package.frequent_items_sketch.deserialize(data["frequent"], serde)
            made._lengths = package.kll_ints_sketch.deserialize(data["lengths"])
            made._counts = package.count_min_sketch.deserialize(data["counts"])
            made._blocks = np.array([_whole(each, "a block") for each in raw.get("blocks", [])], dtype=np.int64)
            made.busiest = BusiestShares.from_raw({**raw, "ids": made.sketched})
            made._check()
        except (LookupError, TypeError, ValueError, RuntimeError, MemoryError, UnicodeError) as error:
            raise CorruptFile(f"{source} holds no sketch of ids: {error}; it is damaged") from None
        return made

    def _check(self) -> None:
        """Raise ValueError if parts have other sizes, which could not be merged, or their counts are inconsistent."""
        sizes = (
            ("distinct", self._distinct.lg_config_k, LG_DISTINCT), ("lengths", self._lengths.k, LENGTH_K),
            ("counts", (self._counts.num_hashes, self._counts.num_buckets, self._counts.seed), COUNTED),
        )  # fmt: skip
        for name, found, wanted in sizes:
            if found != wanted:
                raise ValueError(f"'{name}' is of size {found}, not {wanted}")
        sums = {"frequent": self._frequent.total_weight, "counts": self._counts.total_weight}
        sums |= {"blocks": sum(self.blocks)} if self.blocks else {}
        for name, found in sums.items():
            if found != self.sketched:
                raise ValueError(f"'{name}' is of {found:g} ids, and {self.sketched:,} were sketched")
        if self.sketched > self.lookups or self.lookups > self.of_lookups or self._lengths.n > self.bags:
            raise ValueError("more was sketched than was counted")
        if not self._lengths.is_empty() and self._lengths.get_min_value() < 0:
            raise ValueError("a bag has a negative length")
        if any(item < 0 or count < 0 for item, count in self.frequent()):
            raise ValueError("an id, or a count of one, is negative")
        if not 0 <= self.distinct < float(MOST):
            raise ValueError(f"{self.distinct:g} ids are different")


def _count(raw: Raw, name: str) -> int:
    return _whole(raw[name], name)


def _whole(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value < MOST:
        raise ValueError(f"{name} is {str(value)[:40]!r}, and it is a whole number of 0 or more")
    return value


PARTS = ("distinct", "frequent", "lengths", "counts")


def _union(package: Any, *sketches: Any) -> Any:
    """The HyperLogLog sketch of the ids in all given ones."""
    union = package.hll_union(LG_DISTINCT)
    for sketch in sketches:
        union.update(sketch)
    return union.get_result(package.HLL_8)
