"""Counts the lookups of batches in each table: ids, bags, and how often rows are read within a batch.

The KeyedJaggedTensors of a batch are found by a search of its members, down to two levels.

values (I,)  ids of one table in one batch      rows, reads (U,)  its distinct ids, and how often each is read
bins (17,)   number of rows by their reads: (0,1], (1,2], (2,4] ... (16384,32768], >32768
blocks (2, K)  number of reads, and of distinct ids, in each of K equal blocks of rows
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature, Table
from recsmith.workloads.access import NUM_REUSE_BINS
from recsmith.workloads.busiest_shares import BusiestShares
from recsmith.workloads.row_blocks import blocks_of

DEPTH = 2  # levels of a batch that are searched: its members, and theirs. A deeper search takes longer; not tuned
MOST_NAMES = 20  # number of names that an error lists: a few lines of a terminal
_LEAVES = (str, bytes, type, torch.Tensor, nn.Module)


@dataclass(frozen=True)
class Jagged:
    """A KeyedJaggedTensor of a batch, with the expression that reaches it and the position of each key.

    place: the expression, such as `batch.sparse[0]`. index: position of each key in bags and offsets. bags: number of
    bags of each key. offsets: where the ids of each key begin in values, and where the last key's end.
    """

    place: str
    values: torch.Tensor
    weighted: bool
    samples: int
    index: dict[str, int]
    bags: list[int]
    offsets: list[int]

    def ids(self, key: str) -> torch.Tensor:
        """Ids of a key, (I,)."""
        i = self.index[key]
        return self.values[self.offsets[i] : self.offsets[i + 1]]


def _read_jagged(place: str, jagged: KeyedJaggedTensor) -> Jagged:
    bags = jagged.stride_per_key()
    return Jagged(
        place=place,
        values=jagged.values(),
        weighted=jagged.weights_or_none() is not None,
        samples=jagged.stride(),
        index={key: i for i, key in enumerate(jagged.keys())},
        bags=bags,
        offsets=jagged.offset_per_key() if any(bags) else [0] * (len(bags) + 1),
    )


def find_jagged(batch: object, number: int) -> list[Jagged]:
    """The KeyedJaggedTensors of batch `number`, each once, in the order of the search; UsageError if there is none."""
    found: dict[int, tuple[str, KeyedJaggedTensor]] = {}
    types: dict[str, None] = {}
    for place, value in _search("batch", batch, DEPTH):
        types[type(value).__name__] = None
        if isinstance(value, KeyedJaggedTensor):
            found.setdefault(id(value), (place, value))
    if not found:
        raise UsageError(
            f"batch {number} holds no KeyedJaggedTensor at its top or {DEPTH} levels deep; types seen: "
            f"{listed(list(types))}; give observe the tensors, such as (batch.features.sparse for batch in loader)"
        )
    return [_read_jagged(place, value) for place, value in found.values()]


def _search(place: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    """A value and its members down to `depth` levels, each with the expression that reaches it."""
    yield place, value
    if depth and not isinstance(value, KeyedJaggedTensor):
        for step, member in _members(value):
            yield from _search(place + step, member, depth - 1)


def _members(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, _LEAVES):
        return []
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", member) for key, member in value.items()]
    if isinstance(value, tuple | list):
        return [(f"[{i}]", member) for i, member in enumerate(value)]
    if is_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)]
    return [(f".{name}", member) for name, member in getattr(value, "__dict__", {}).items()]


def listed(names: Sequence[str]) -> str:
    """The first MOST_NAMES names, separated by commas, and the number of further ones."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


_EDGES = 2 ** torch.arange(NUM_REUSE_BINS - 1)  # reads at the upper ends of all bins but the last: 1, 2, 4 ... 32768


class AccessCounts:
    """Counts of all batches' lookups so far, by table; their size does not grow with the number of batches."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables
        self.batches = 0
        self.samples = 0
        self.keys: set[str] = set()
        self.ids: Counter[tuple[str, str]] = Counter()  # by table and feature
        self.bags: Counter[tuple[str, str]] = Counter()
        self.bins = {table.name: torch.zeros(NUM_REUSE_BINS, dtype=torch.int64) for table in tables}
        self.blocks = {
            table.name: torch.zeros(2, blocks_of(table.num_embeddings), dtype=torch.int64) for table in tables
        }
        self.busiest = {table.name: BusiestShares() for table in tables}
        self.weighted = {table.name for table in tables if table.weighted}
        self.wanted = {feature.name for table in tables for feature in table.features}

    def add(self, batch: object) -> None:
        """Count one more batch."""
        found = find_jagged(batch, self.batches)
        self.batches += 1
        self.samples += max((jagged.samples for jagged in found if self.wanted & jagged.index.keys()), default=0)
        self.keys.update(key for jagged in found for key in jagged.index)
        with _one_thread():
            for table in self.tables:
                self._add_table(table, found)

    def to_raw(self) -> dict[str, Any]:
        """The counts as plain data, for `add_raw` on another rank."""
        return {
            "batches": self.batches, "samples": self.samples, "keys": sorted(self.keys),
            "weighted": sorted(self.weighted), "bins": {name: bins.tolist() for name, bins in self.bins.items()},
            "blocks": {name: blocks.tolist() for name, blocks in self.blocks.items()},
            "busiest": {name: busiest.to_raw() for name, busiest in self.busiest.items()},
            "ids": [[*key, count] for key, count in self.ids.items()],
            "bags": [[*key, count] for key, count in self.bags.items()],
        }  # fmt: skip

    def add_raw(self, counts: dict[str, Any]) -> None:
        """Add the counts of another rank."""
        self.batches += counts["batches"]
        self.samples += counts["samples"]
        self.keys.update(counts["keys"])
        self.weighted.update(counts["weighted"])
        for name, bins in counts["bins"].items():
            self.bins[name] += torch.tensor(bins)
            self.blocks[name] += torch.tensor(counts["blocks"][name])
            self.busiest[name].merge(BusiestShares.from_raw(counts["busiest"][name]))
        for mine, theirs in ((self.ids, counts["ids"]), (self.bags, counts["bags"])):
            mine.update({(table, feature): count for table, feature, count in theirs})

    def _add_table(self, table: Table, found: Sequence[Jagged]) -> None:
        parts: list[torch.Tensor] = []
        for feature in table.features:
            jagged = _that_holds(feature, table, found)
            if jagged is None:
                continue
            ids = jagged.ids(feature.name)
            self.ids[table.name, feature.name] += len(ids)
            self.bags[table.name, feature.name] += jagged.bags[jagged.index[feature.name]]
            if len(ids):
                parts.append(ids)
            if jagged.weighted and not table.pooled:
                self.weighted.add(table.name)
        if parts:
            ids = torch.cat(parts) if len(parts) > 1 else parts[0]
            rows, reads = _rows_read(ids, table)
            self.busiest[table.name].add(ids.cpu().numpy(), table.num_embeddings)
            self.bins[table.name] += _bins(reads)
            self.blocks[table.name] += _blocks(rows, reads, table)

    def check(self) -> None:
        """Raise UsageError if the batches do not suffice: there is none, none has a certain feature, or no samples."""
        if not self.batches:
            raise UsageError("batches is empty; give at least one batch (an iterator that was read before is used up)")
        for table in self.tables:
            for feature in table.features:
                if feature.name not in self.keys:
                    raise UsageError(
                        f"feature '{feature.name}' of table '{table.name}' is in none of the {self.batches} batches; "
                        f"keys seen: {listed(sorted(self.keys))}; name it alike in the data and in the model"
                    )
        if not self.samples:
            raise UsageError(f"the {self.batches} batches hold no samples; give batches with at least one")

    def measured(self, table: Table) -> Table:
        """The table with the counted pooling factors, poolings and access profile."""
        features = tuple(self._measured(table, feature) for feature in table.features)
        return replace(table, features=features, access=self._access(table))

    def _measured(self, table: Table, feature: Feature) -> Feature:
        ids, bags = self.ids[table.name, feature.name], self.bags[table.name, feature.name]
        return replace(
            feature,
            pooling_factor=ids / bags if bags else 0.0,
            num_poolings=bags / self.samples,
            weighted=table.name in self.weighted,
        )

    def _access(self, table: Table) -> AccessProfile | None:
        bins: list[int] = self.bins[table.name].tolist()
        lookups, unique = sum(self.ids[table.name, feature.name] for feature in table.features), sum(bins)
        if not lookups:
            return None
        return AccessProfile(
            reuse_bins=tuple(rows / unique for rows in bins),
            lookups=max(1, round(lookups / self.batches)),
            unique_rows=max(1, round(unique / self.batches)),
            block_lookups=tuple(map(float, self.blocks[table.name][0].tolist())),
            block_unique_rows=tuple(map(float, self.blocks[table.name][1].tolist())),
            busiest_lookups=self.busiest[table.name].mean,
            busiest_deviation=self.busiest[table.name].deviation,
        )


def _that_holds(feature: Feature, table: Table, found: Sequence[Jagged]) -> Jagged | None:
    """The tensor of a batch that holds a feature; if several do, the one that is weighted as the table is."""
    holders = [jagged for jagged in found if feature.name in jagged.index]
    if len(holders) > 1:
        holders = [jagged for jagged in holders if jagged.weighted == table.weighted] or holders
    if len(holders) > 1:
        places = listed([jagged.place for jagged in holders])
        raise UsageError(
            f"feature '{feature.name}' of table '{table.name}' stands in several KeyedJaggedTensors of a batch: "
            f"{places}; give observe those that the model reads, such as ({holders[0].place} for batch in loader)"
        )
    return holders[0] if holders else None


def _rows_read(ids: torch.Tensor, table: Table) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of a table that one batch reads, ascending, and how often it reads each; both (U,)."""
    if ids.is_floating_point():
        raise UsageError(f"ids of table '{table.name}' are {ids.dtype}; ids must be whole numbers, such as torch.int64")
    rows, reads = torch.unique(ids, return_counts=True)  # sorted
    for bad in (int(rows[0]), int(rows[-1])):
        if not 0 <= bad < table.num_embeddings:
            raise UsageError(
                f"id {bad} is outside table '{table.name}', which has {table.num_embeddings} rows (ids 0 to "
                f"{table.num_embeddings - 1}); hash or remap the ids as training does, or make the table larger"
            )
    return rows, reads


def _bins(reads: torch.Tensor) -> torch.Tensor:
    """Number of rows in each bin of reads, (17,)."""
    return torch.bincount(torch.bucketize(reads, _EDGES.to(reads.device)), minlength=NUM_REUSE_BINS).cpu()


def _blocks(rows: torch.Tensor, reads: torch.Tensor, table: Table) -> torch.Tensor:
    """Number of reads, and of distinct rows, in each block of rows, (2, K)."""
    count = blocks_of(table.num_embeddings)
    block = rows.to(torch.int64) * count // table.num_embeddings
    made = torch.zeros(2, count, dtype=torch.int64, device=rows.device)
    return made.index_add_(1, block, torch.stack([reads, torch.ones_like(reads)])).cpu()


@contextmanager
def _one_thread() -> Generator[None]:
    """Make torch sort in one thread: with two, and cores busy with loader workers, it took 40 times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
