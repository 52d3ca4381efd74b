"""Sketches of the ids of one feature: how many different ones, which are read most, how long bags are; mergeable.

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
LG_DISTINCT = 12  # HyperLogLog of 4,096 registers: the number of different ids is off by 1.6 % (one deviation)
LG_FREQUENT = 10  # frequent items keep up to 768 ids: a count is off by at most 3.5 / 1,024 of all ids
LENGTH_K = 200  # KLL of bag lengths: ranks of quantiles are off by 1.3 %
MOST = 2**63  # ids, and counts of them, are below that
HASHES, BUCKETS = 4, 1024  # count-min: a count is too high by at most 2.72 / 1,024 of all ids, in 98 of 100 cases

COUNTED = (HASHES, BUCKETS, 9001)  # with the seed of datasketches, from which its hashes follow


def library() -> Any:
    """The datasketches package; MissingExtra where it is not installed."""
    try:
        import datasketches
    except ImportError:
        raise MissingExtra(f"sketches need datasketches: {WATCHING}") from None
    return datasketches


class IdSketch:
    """What a stream of bags of ids looks like, in 30 to 80 kB, however long it is. Those of ranks and hours merge.

    bags, lookups: exact counts of what was seen; `sketched` of these ids went into the sketches. of_lookups: of the
    stream in the same time, of which each batch that was seen stands for `every`.
    rows: of the table whose ids they are; None: not known. blocks_of: rows of the table whose reads are counted by
    equal blocks, until an id is none of them; None: they are not counted.
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
        self.busiest = BusiestShares()  # of what came at once

    def count(self, bags: int, lookups: int) -> None:
        """Count bags and their ids that are not sketched, or will be in part; UsageError where a count is negative."""
        if bags < 0 or lookups < 0:
            raise UsageError(f"{bags:,} bags of {lookups:,} ids cannot be counted; give numbers of 0 or more")
        self.bags, self.lookups = self.bags + bags, self.lookups + lookups
        self.of_lookups += lookups * self._every

    def update(self, values: Ints, lengths: npt.NDArray[np.integer[Any]]) -> None:
        """Sketch the ids (n,) of bags of these lengths (b,), an unbiased part of what `count` counts.

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
        """Add what another one has seen; reads by block of rows go on where both counted them in as many blocks."""
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
        """How many sketched lookups read each of equal blocks of the table's rows; none where these are not known."""
        return self._blocks.tolist()

    @property
    def distinct(self) -> float:
        """How many different ids were sketched, about (standard error 1.6 %)."""
        return float(self._distinct.get_estimate())

    def distinct_with(self, *others: "IdSketch") -> float:
        """How many different ids were sketched here and in others together."""
        together = _union(self._library, self._distinct, *(each._distinct for each in others))
        return float(together.get_estimate())

    def new_share(self, before: "IdSketch") -> float:
        """How many of the ids here are different from each other and from all of a sketch before, a lookup."""
        return max(0.0, self.distinct_with(before) - before.distinct) / max(self.sketched, 1)

    def frequent(self, most: int = 256) -> list[tuple[int, float]]:
        """The ids that are read most, each with its share of lookups, the most read first."""
        found = self._frequent.get_frequent_items(self._library.NO_FALSE_NEGATIVES)
        between = ((int(item), (low + high) / 2) for item, _, low, high in found)
        counts = sorted(between, key=lambda each: (-each[1], each[0]))
        return [(item, count / max(self.sketched, 1)) for item, count in counts[:most]]

    def heavy(self) -> list[float]:
        """How often ids were sketched whose counts are known within a factor of 3; the most read first."""
        found = self._frequent.get_frequent_items(self._library.NO_FALSE_NEGATIVES)
        return sorted(((low + high) / 2 for _, _, low, high in found if high <= 3 * low), reverse=True)

    @property
    def unseen(self) -> float:
        """The most that an id of which no count is known can have been sketched."""
        return self._frequent.epsilon * self.sketched

    def share_in(self, hot: Ints) -> float:
        """Share of the sketched lookups that read one of these ids, by count-min: never too low."""
        counts = sum(float(self._counts.get_estimate(int(item))) for item in hot)
        return min(1.0, counts / max(self.sketched, 1))

    def length(self, rank: float) -> int:
        """The bag length at a rank of 0 .. 1, such as the median at 0.5; 0 where nothing was sketched."""
        return 0 if self._lengths.is_empty() else int(self._lengths.get_quantile(rank))

    def to_raw(self) -> Raw:
        """JSON data, of which `from_raw` makes it again."""
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
        """The sketch of `to_raw`. source: the data, for errors.

        Raises:
            CorruptFile: it is damaged, or of another version.
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
        """ValueError where parts are of other sizes or streams, which would not merge, or count what cannot be."""
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
    """The HyperLogLog of all ids of some."""
    union = package.hll_union(LG_DISTINCT)
    for sketch in sketches:
        union.update(sketch)
    return union.get_result(package.HLL_8)
