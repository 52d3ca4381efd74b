"""What a rank sees of its own step: sums of predictions, ids, dense columns and times, as one vector.

The sums of all ranks are reduced while training continues, and read at the next look; counts of ids are gathered.
"""

import statistics
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from recsmith._random import mixed
from recsmith.data import Batch
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.streaming.column_sums import ColumnSums
from recsmith.streaming.hot_sets import HotSet, added_up, packed, unpacked
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.repeats import SeenSamples
from recsmith.training.job.job import TrainingJob
from recsmith.training.job.rank_times import DenseTimer
from recsmith.training.losses.settings import number_tasks
from recsmith.training.step_clock import STEPS
from recsmith.training.watchers.protocol import Seen

WORDS = 2.0**64  # number of different hashes
IDS_SALT = np.uint64(0xD1B54A32D192ED03)  # selects other samples than those whose repeats are counted


def layout_of(job: TrainingJob) -> JobLayout:
    """The names and ranks of a job, and the share of a feature's lookups on each rank under its plan."""
    schema, ranks = job.source.schema, dist.get_world_size()
    by_feature = dict[str, list[str]]()
    for table in job.plan.workload.tables:
        for each in table.features:
            by_feature.setdefault(each.name, []).append(table.name)
    names = tuple(each.name for each in schema.features)
    shares = tuple(_shares_of(job.plan, by_feature.get(name, [name]), ranks) for name in names)
    return JobLayout(names, tuple(schema.dense), ranks, shares, tuple(schema.labels))


def _shares_of(plan: Plan, tables: list[str], ranks: int) -> tuple[float, ...]:
    """The share of a feature's lookups on each rank, averaged over all tables that look it up."""
    of_each = [_shares(plan, table, ranks) for table in tables]
    return tuple(sum(parts) / len(of_each) for parts in zip(*of_each, strict=True))


def _shares(plan: Plan, table: str, ranks: int) -> tuple[float, ...]:
    """The share of a table's lookups on each rank. Parts of split rows count as equally read."""
    placed = next((each for each in plan.placements if each.table == table), None)
    if placed is None or not placed.ranks or placed.sharding_type == "data_parallel":
        return (1 / ranks,) * ranks
    widths = placed.widths if len(placed.widths) == len(placed.ranks) else (1,) * len(placed.ranks)
    made = [0.0] * ranks
    for rank, width in zip(placed.ranks, widths, strict=True):
        made[rank] += width / sum(widths)
    return tuple(made)


class RankView:
    """A rank's view of its steps. `step` is called for each step, and `add` at each look."""

    def __init__(self, job: TrainingJob, layout: JobLayout, ids: int) -> None:
        self.layout, self.rank = layout, dist.get_rank()
        self.timer = DenseTimer(job.sharded.model, job.sharded.device)
        whole = job.batch_size * layout.ranks
        lengths = [each.pooling_factor or 1.0 for each in job.source.schema.features]
        self._bounds = [min(1.0, ids / (whole * max(length, 1.0))) * WORDS for length in lengths]
        self._chances = chances_of(job, layout)
        self._parameters = [each for each in job.sharded.model.parameters() if each.requires_grad]
        self._last = STEPS.now()
        self._steps: list[tuple[float, float, float]] = []  # of each step: seconds, waiting, own work

    def step(self, seen: Seen) -> None:
        """Record the times of a step."""
        now, own = STEPS.now(), self.timer.seconds + seen.waited_s
        self._steps.append((now - self._last, seen.waited_s, own))
        self._last, self.timer.seconds = now, 0.0

    def add(self, seen: Seen, samples: Batch, sums: JobSums, hot: dict[str, HotSet], sketches: Any) -> None:
        """Add this rank's batch to a look's sums. hot: sets to count, by feature. sketches: SketchFiles or None."""
        outcome = seen.outcome
        count = len(samples)
        sums["samples"], sums["loss"] = count, seen.loss * count
        pair = (outcome.logits, outcome.labels)
        logits, labels = (each.detach().double().cpu().numpy()[:count, self._chances] for each in pair)
        sums.add_predictions(logits, np.where(np.isnan(labels), 1 / (1 + np.exp(-logits)), labels))
        if self.rank == 0:
            sums["gradient"] = self._gradient_norm()
            sums["dense_rate"], sums["sparse_rate"] = rates(seen.job)
        self._add_ids(sums, samples, hot, sketches)
        if self._steps:
            sums.ranks[self.rank] = [statistics.median(part) for part in zip(*self._steps, strict=True)]
        self._steps = []

    def _add_ids(self, sums: JobSums, samples: Batch, hot: dict[str, HotSet], sketches: Any) -> None:
        hashes = mixed(mixed(samples.sample_ids.astype(np.uint64) ^ IDS_SALT)).astype(np.float64)
        for row, name in enumerate(self.layout.features):
            bags = samples.ids[name]
            part = bags.take(np.flatnonzero(hashes < self._bounds[row]))
            watched = hot.get(name)
            hits = 0 if watched is None else watched.count(part.values)
            sums.add_ids(row, part.values, hits)
            if watched is not None and not watched.chosen:
                sums.features[row, 2] = 0  # nothing to judge before the set is chosen
            if sketches is not None:
                sketches.add(name, bags.lengths, part.values, part.lengths)

    def _gradient_norm(self) -> float:
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        if not gradients:
            return 0.0
        return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients])))


def chances_of(job: TrainingJob, layout: JobLayout) -> list[int]:
    """Indices of the labels that are predicted as probabilities, not as numbers."""
    said = number_tasks(job.run.model.tasks, job.source.schema)
    return [at for at, name in enumerate(layout.labels) if name not in said]


def columns_of(job: TrainingJob, layout: JobLayout, every: int) -> ColumnSums:
    """The sums of the columns of a job's batches on this rank."""
    lengths = [each.pooling_factor or 1.0 for each in job.source.schema.features]
    return ColumnSums(layout, lengths, job.batch_size * layout.ranks, every, chances_of(job, layout))


def merged_bits(bits: Any, group: Any) -> Any:
    """Combine bits over ranks: those that any rank has set."""
    found = torch.from_numpy(bits.copy())
    dist.all_reduce(found, op=dist.ReduceOp.MAX, group=group)
    return found.numpy()


def rates(job: TrainingJob) -> tuple[float, float]:
    """The learning rates of dense layers and of tables; 0 if there are none."""
    parts: list[tuple[str, Any]] = job.sharded.optimizer.optimizers
    found = {name: part.param_groups[0]["lr"] for name, part in parts if part.param_groups}
    return float(found.get("dense", 0.0)), float(found.get("sparse", found.get("copied", 0.0)))


Item = TypeVar("Item")


class SumsOnTheirWay:
    """The sums of one look: sent at that look and read at the next one, when they have long arrived."""

    def __init__(self) -> None:
        self._step = 0
        self._sums: JobSums | None = None
        self._work: dist.Work | None = None

    def send(self, step: int, sums: JobSums, group: Any) -> None:
        """Start to reduce sums over all ranks."""
        self._step, self._sums = step, sums
        self._work = dist.all_reduce(torch.from_numpy(sums.vector), group=group, async_op=True)

    def take(self) -> tuple[int, JobSums] | None:
        """(step, sums of all ranks), or None if none were sent."""
        self._arrived()
        found, self._sums = self._sums, None
        return None if found is None else (self._step, found)

    def _arrived(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None

    def to_raw(self) -> Raw | None:
        """The sums as JSON data, after they have arrived; None if none were sent."""
        self._arrived()
        return None if self._sums is None else {"step": self._step, "sums": self._sums.to_raw()}

    def from_raw(self, raw: Raw | None, layout: JobLayout) -> None:
        """Continue from saved sums; if the number of ranks differs, times are omitted."""
        if raw is None:
            return
        self._step, self._sums = raw["step"], JobSums(layout)
        self._sums.take(raw["sums"])


def gathered(mine: Item, group: Any) -> list[Item]:
    """One object from each rank, in rank order. All ranks must call this."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine, group=group)
    return found


def choose_full(hot: Mapping[str, HotSet], group: Any) -> None:
    """Choose hot sets that have collected enough ids, from the ids of all ranks."""
    full = {name: each for name, each in hot.items() if each.full}
    for name, parts in _collected(full, group).items() if full else ():
        full[name].choose(*added_up(parts))


def counts_of_all(hot: Mapping[str, HotSet], group: Any) -> dict[str, list[str]]:
    """Ids and counts that all ranks collected for hot sets that are not chosen yet, packed, by feature."""
    open_ = {name: each for name, each in hot.items() if not each.chosen}
    return {name: [packed(part) for part in added_up(parts)] for name, parts in _collected(open_, group).items()}


def _collected(hot: Mapping[str, HotSet], group: Any) -> dict[str, list[Any]]:
    """(ids, counts) of every rank, by feature."""
    mine = {name: [packed(part) for part in each.collected()] for name, each in hot.items()}
    ranks = gathered(mine, group)
    return {name: [tuple(unpacked(text) for text in each[name]) for each in ranks] for name in mine}


def samples_of(raw: list[Raw], rank: int, ranks: int, most: int) -> SeenSamples:
    """The samples that a rank has seen, from saved states: its own, or all if the number of ranks changed."""
    alike = len(raw) == ranks
    found = SeenSamples(most=most)
    for number, part in enumerate(raw):
        if not alike or number == rank:
            each = SeenSamples(most=most)
            each.from_raw(part)
            found.take_in(each)
    if not alike and rank:
        found.take()  # rank 0 reports these counts
    return found
