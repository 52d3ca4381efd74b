"""FBGEMM's kernel on the slots of caches, with the whole tables in a file, on CPU.

A kernel maps the ids of a batch to slots. Many threads read the rows that a cache lacks, since most of that is waiting
for the disk, and rows that leave a cache are written to a log of each table.

A row that leaves a cache is a small part of a page of the disk. Writing it in its place would cost a page read and a
page write. In a log, rows that leave together share pages, sixteen rows of 64 columns each. A full log is merged into
the table in the order of rows, in one pass (O'Neil et al., "The log-structured merge-tree", Acta Informatica 33(4),
1996). An index in memory says which row is where in the log.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from recsmith._types import Ints
from recsmith.errors import UsageError
from recsmith.sharding.memory import LOG_PART, OWN_PER_COUNT, OWN_PER_ROW, OWN_PER_SLOT
from recsmith.training.step_clock import STEPS
from recsmith.training.systems.tiers.cache import RowCache, ScratchFile, check_memory

AT_HOME = -1
BROUGHT_AT_ONCE = 2**18  # rows in memory at once while a log is merged into the table: 64 MiB of 64 columns


def log_rows(rows: int) -> int:
    """How many rows the log of a table can hold."""
    return max(1, rows // LOG_PART)


class LoggedRows:
    """Rows of a table with their optimizer state: in their own places (`home`), or in a log.

    home, log: for weights and each state, one tensor with a row for each row of the table, and one for each place of
    the log.
    """

    def __init__(self, home: Sequence[torch.Tensor], log: Sequence[torch.Tensor]) -> None:
        self.home, self.log = home, log
        self.at: Any = np.full(len(home[0]), AT_HOME, np.int32)
        self.end = 0

    def read(self, rows: Ints) -> list[torch.Tensor]:
        """The weights and states of these rows, one tensor for each."""
        at = self.at[rows]
        logged = np.flatnonzero(at != AT_HOME)
        of_log, places = torch.from_numpy(at[logged].astype(np.int64)), torch.from_numpy(logged)
        found: list[torch.Tensor] = []
        if len(logged) == len(rows):
            return [log.index_select(0, of_log) for log in self.log]
        own = np.flatnonzero(at == AT_HOME)
        of_home, there = torch.from_numpy(rows[own]), torch.from_numpy(own)
        for home, log in zip(self.home, self.log, strict=True):
            if not len(logged):
                found.append(home.index_select(0, of_home))
                continue
            made = torch.empty((len(rows), *home.shape[1:]), dtype=home.dtype)
            made.index_copy_(0, there, home.index_select(0, of_home))
            made.index_copy_(0, places, log.index_select(0, of_log))
            found.append(made)
        return found

    def has_room(self, count: int) -> bool:
        """Whether the log has room for this many more rows."""
        return self.end + count <= len(self.log[0])

    def write(self, rows: Ints, values: Sequence[torch.Tensor]) -> None:
        """Append distinct rows to the log, which must have room for them."""
        end = self.end + len(rows)
        for log, value in zip(self.log, values, strict=True):
            log[self.end : end] = value
        self.at[rows] = np.arange(self.end, end)
        self.end = end

    def write_home(self, rows: Ints, values: Sequence[torch.Tensor]) -> None:
        """Write distinct rows into their own places in the table."""
        of_home = torch.from_numpy(rows)
        for home, value in zip(self.home, values, strict=True):
            home.index_copy_(0, of_home, value)
        self.at[rows] = AT_HOME

    def bring_home(self) -> None:
        """Write the rows of the log into their own places in the table, and empty the log."""
        rows = np.flatnonzero(self.at != AT_HOME)
        rows = rows[np.argsort(self.at[rows])]  # in the order of the log, which is read from end to end
        for first in range(0, len(rows), BROUGHT_AT_ONCE):
            some = rows[first : first + BROUGHT_AT_ONCE]
            values, order = self.read(some), np.argsort(some)
            self.write_home(some[order], [value[torch.from_numpy(order)] for value in values])
        self.end = 0


READERS = 16  # threads that read and write the file; they mostly wait for the disk
AT_LEAST = 64  # rows moved by one thread; for fewer, another thread does not pay
Moved = tuple[int, Any, Any]  # table number, row numbers in order, their slots


class Fetched(NamedTuple):
    """A batch whose rows are in slots. indices: its ids. slots: of each id. held: slots in use, of each table."""

    indices: torch.Tensor
    slots: torch.Tensor
    held: list[Any]


class TieredTables(SplitTableBatchedEmbeddingBagsCodegen):
    """FBGEMM's kernel on the slots of caches, with the whole tables in a file.

    names, rows, columns: of the shards of its tables. caches: the share of each table's rows that is in memory. least:
    the least number of rows in each cache. profiles: for each table, batches whose reads decide which rows stay
    (cache.py); 0 keeps the rows that were read last.
    """

    def __init__(self, *, names: list[str], rows: list[int], columns: list[int], caches: list[float], folder: str,
                 profiles: list[int], feature_table_map: list[int], least: list[int] | None = None,
                 **given: Any) -> None:  # fmt: skip
        slots = [
            max(1, min(count, max(round(count * cache), most)))
            for count, cache, most in zip(rows, caches, least or [1] * len(rows), strict=True)
        ]
        specs = [
            (count, width, EmbeddingLocation.HOST, ComputeDevice.CPU)
            for count, width in zip(slots, columns, strict=True)
        ]
        check_memory(_cache_bytes(rows, columns, slots, given.get("optimizer"), profiles))
        super().__init__(specs, feature_table_map=feature_table_map, table_names=names, **given)
        here = [
            [weights, *states]
            for weights, states in zip(
                super().split_embedding_weights(), super().split_optimizer_states() or [[] for _ in rows], strict=True
            )
        ]
        # Views without autograd's count of versions: a thread writes into them while a backward pass runs.
        self._here = [[torch.from_numpy(each.numpy()) for each in parts] for parts in here]
        sizes = [(count, log_rows(count)) for count in rows]  # at home, and in the log
        shapes = [(n, *part.shape[1:]) for both, parts in zip(sizes, here, strict=True) for n in both for part in parts]
        self.file = ScratchFile(folder, shapes)
        arrays = map(torch.from_numpy, self.file.arrays)
        self._rows = [LoggedRows([next(arrays) for _ in parts], [next(arrays) for _ in parts]) for parts in here]
        self.caches = [RowCache(*each) for each in zip(names, rows, slots, profiles, strict=True)]
        self._features = feature_table_map
        self._ahead: deque[Future[Fetched]] = deque()
        self._training: list[Any] = [np.zeros(0, np.int64) for _ in rows]
        self._readers, self._thread = ThreadPoolExecutor(READERS), ThreadPoolExecutor(1)
        self.prefetch_pipeline = True  # what TorchRec asks for before it calls `prefetch`
        self.lookups, self.missed, self.waited_s = 0, 0, 0.0

    def split_embedding_weights(self) -> list[torch.Tensor]:
        """The weights of the whole tables, as they are in the file."""
        return [table.home[0] for table in self._rows]

    def split_optimizer_states(self) -> list[list[torch.Tensor]]:
        """The optimizer state of all rows, as it is in the file."""
        return [list(table.home[1:]) for table in self._rows if len(table.home) > 1]

    def prefetch(self, indices: torch.Tensor, offsets: torch.Tensor, *_: Any, **__: Any) -> None:
        """Fetch the rows of the next batch in a thread, while this batch trains."""
        busy = [self._training]
        self._ahead.append(self._thread.submit(self._fetch, indices, offsets, busy, STEPS.runs))

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        """Look up rows by their ids. If `prefetch` has not fetched them, fetch them now."""
        if named.get("batch_size_per_feature_per_rank") is not None:
            raise UsageError("rows: tiered does not take features of other batch sizes (data.deduplicate); drop one")
        begun = STEPS.now()
        ahead = self._ahead[0].result() if self._ahead else None
        if ahead is not None and torch.equal(ahead.indices, indices):
            self._ahead.popleft()
            fetched = ahead
        else:
            fetched = self._fetch(indices, offsets, [ahead.held] if ahead else [], STEPS.runs)
        self.waited_s += STEPS.now() - begun
        self._training = fetched.held
        if torch.is_grad_enabled():
            for cache, slots in zip(self.caches, fetched.held, strict=True):
                cache.changed[slots] = True
        return super().forward(fetched.slots, offsets, *given, **named)

    def overwrite(self, table: int, rows: Ints, weights: torch.Tensor) -> None:
        """Set the weights of distinct rows of a table, in cache or file, and their optimizer state to zero."""
        cache, values = self.caches[table], [weights.to(self._here[table][0].dtype)]
        values += [part.new_zeros(len(rows), *part.shape[1:]) for part in self._here[table][1:]]
        slots = cache.slot_of[rows].astype(np.int64)
        here, home = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        for part, value in zip(self._here[table], values, strict=True):
            part.index_copy_(0, torch.from_numpy(slots[here]), value[torch.from_numpy(here)])
        cache.changed[slots[here]] = True
        self._rows[table].write_home(rows[home], [value[torch.from_numpy(home)] for value in values])

    def flush(self) -> None:
        """Write all changed rows to the file."""
        for future in self._ahead:
            future.result()
        self.file.expect(random=False)
        for each in [self._readers.submit(table.bring_home) for table in self._rows]:
            each.result()
        self._together(self._settle, [(t, *cache.settled()) for t, cache in enumerate(self.caches)])

    def forget(self) -> None:
        """Write changed rows to the file and empty the caches, since a caller is about to write into the file."""
        self.flush()
        self._ahead.clear()
        for cache in self.caches:
            cache.empty()
        self._training = [slots[:0] for slots in self._training]

    def _fetch(self, indices: torch.Tensor, offsets: torch.Tensor, busy: list[list[Any]], counted: bool) -> Fetched:
        """The slots of all ids of a batch, after its missing rows were read.

        busy: for each batch in use, the slots of each table that must keep their rows. counted: whether these lookups
        are of a training step, which `lookups` and `missed` count, and not of an evaluation.
        """
        self.file.expect(random=True)
        ids = indices.numpy()
        bags = (len(offsets) - 1) // len(self._features)
        bounds = offsets[::bags].tolist() if bags else [0] * (len(self._features) + 1)
        slots, held = np.empty(len(ids), np.int64), list[Any]()
        leaving, coming = list[Moved](), list[Moved]()
        for t, cache in enumerate(self.caches):
            first = self._features.index(t)
            part = slice(bounds[first], bounds[first + self._features.count(t)])
            rows, places, reads = np.unique(ids[part], return_inverse=True, return_counts=True)
            moves = cache.place(rows, [slots_of[t] for slots_of in busy], reads)
            order = np.argsort(moves.left_rows)
            leaving.append((t, moves.left_rows[order], moves.left_slots[order]))
            coming.append((t, moves.read_rows, moves.read_slots))
            slots[part] = moves.slots[places]
            held.append(moves.slots)
            if counted:
                missed = np.zeros(len(cache.row_of), dtype=bool)
                missed[moves.read_slots] = True
                self.lookups, self.missed = self.lookups + len(places), self.missed + int(missed[slots[part]].sum())
        for each in [self._readers.submit(self._leave, *moved) for moved in leaving if len(moved[1])]:
            each.result()  # wait for these first: rows that are read next take their slots
        self.file.expect(random=True)
        self._together(self._bring, coming)
        return Fetched(indices, torch.from_numpy(slots), held)

    def _together(self, move: Callable[[int, Any, Any], None], moves: Iterable[Moved]) -> None:
        """Move rows of tables with all threads, each a contiguous part of the rows."""
        under_way: list[Future[None]] = []
        for table, rows, slots in moves:
            pieces = max(1, min(READERS, len(rows) // AT_LEAST))
            for some in zip(np.array_split(rows, pieces), np.array_split(slots, pieces), strict=True):
                under_way.append(self._readers.submit(move, table, *some))
        for each in under_way:
            each.result()

    def _bring(self, table: int, rows: Any, slots: Any) -> None:
        """Copy rows and their state from the file into slots."""
        if len(rows):
            of_cache = torch.from_numpy(slots)
            for here, value in zip(self._here[table], self._rows[table].read(rows), strict=True):
                here.index_copy_(0, of_cache, value)

    def _leave(self, table: int, rows: Any, slots: Any) -> None:
        """Copy rows that leave their slots to the log; one thread per table."""
        stored, values = self._rows[table], self._in(table, slots)
        if not stored.has_room(len(rows)):
            self.file.expect(random=False)
            stored.bring_home()
        if stored.has_room(len(rows)):
            stored.write(rows, values)
        else:
            stored.write_home(rows, values)

    def _settle(self, table: int, rows: Any, slots: Any) -> None:
        """Copy rows from slots into their own places in the table."""
        if len(rows):
            self._rows[table].write_home(rows, self._in(table, slots))

    def _in(self, table: int, slots: Any) -> list[torch.Tensor]:
        """Weights and states in these slots, one tensor for each."""
        return [here.index_select(0, torch.from_numpy(slots)) for here in self._here[table]]


def _cache_bytes(
    rows: list[int], columns: list[int], slots: list[int], optimizer: Any, profiles: list[int]
) -> int:  # fmt: skip
    """Bytes of slots with weights and optimizer state, and of what caches record for each slot and each row."""
    state = {EmbOptimType.EXACT_ADAGRAD: columns, EmbOptimType.EXACT_ROWWISE_ADAGRAD: [1] * len(columns)}
    kept = state.get(optimizer, [0] * len(columns))
    each = [4 * (width + more) + OWN_PER_SLOT for width, more in zip(columns, kept, strict=True)]
    of_rows = sum(
        count * (OWN_PER_ROW + OWN_PER_COUNT * (profile > 0)) for count, profile in zip(rows, profiles, strict=True)
    )
    return of_rows + sum(count * size for count, size in zip(slots, each, strict=True))
