"""Counts of lookups and evictions of raw ids while a job trains."""

from typing import Any

import torch
import torch.distributed as dist

from recsmith.files import Raw
from recsmith.training.job.job import TrainingJob
from recsmith.training.seams.in_jobs import Attached
from recsmith.training.systems.dynamic.tables import maps_in
from recsmith.workloads import Dynamic


class CountedIds(Attached):
    """Passes the step to a job's maps, and collects what they counted since the last log line. seed: of the run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lookups, self.served, self.evicted = 0, 0, 0  # of all ranks, up to the last log line
        self._behind: int | None = None  # steps of earlier trainings, in which the ids of rows were last seen

    def before_step(self, job: TrainingJob) -> None:
        """Pass the number of the next step and the seed to the maps; called on all ranks."""
        found = maps_in(job.sharded.model)
        if self._behind is None:
            seen = [int(table.last.max(initial=0)) for maps in found for table in maps.tables.values()]
            newest = torch.tensor(max(seen, default=0))
            dist.all_reduce(newest, dist.ReduceOp.MAX)
            self._behind = max(0, int(newest) - job.progress.step)
        for maps in found:
            maps.seed, maps.step = self.seed, self._behind + job.progress.step

    def line(self, job: TrainingJob) -> tuple[Raw, str]:
        """(facts, words) of a log line: ids with a row, rows, and lookups and evictions since the last line."""
        found = maps_in(job.sharded.model)
        tables = [(name, table) for maps in found for name, table in maps.tables.items()]
        lookups, served = sum(maps.lookups for maps in found), sum(maps.served for maps in found)
        sums = torch.tensor([lookups, served, *(table.count for _, table in tables)], dtype=torch.int64)
        dist.all_reduce(sums)
        evicted = sum(maps.evicted for maps in found)  # the same on all ranks
        for maps in found:
            maps.lookups, maps.served, maps.evicted = 0, 0, 0
        lookups, served, *ids = sums.tolist()
        self.lookups, self.served, self.evicted = self.lookups + lookups, self.served + served, self.evicted + evicted
        rows, share = sum(table.rows - 1 for _, table in tables), served / max(lookups, 1)
        full = [f"'{name}'" for (name, table), count in zip(tables, ids, strict=True)
                if table.dynamic.evict == "none" and count == table.rows - 1]  # fmt: skip
        unserved = (
            f"; new ids of {', '.join(full)} read row 0, for all rows are taken and evict is none" if full else ""
        )
        facts = {"dynamic_ids": sum(ids), "dynamic_rows": rows, "dynamic_served": share, "dynamic_evicted": evicted}
        return (
            facts,
            f"{sum(ids):,} ids in {rows:,} rows, {share:.1%} of lookups served, {evicted:,} rows given anew{unserved}",
        )

    def brought_line(self, job: Any) -> str:
        """A line on the whole job: share of lookups that found a row, ids with a row, and rows given to other ids."""
        facts, _ = self.line(job)
        return (
            f"dynamic: {self.served / max(self.lookups, 1):.1%} of lookups found a row of their own; "
            f"{facts['dynamic_ids']:,} ids have one of {facts['dynamic_rows']:,}, and {self.evicted:,} were given anew"
        )

    def dynamic_tables(self, job: Any) -> dict[str, Dynamic]:
        """The rules of admission and eviction, by table with raw ids."""
        return {name: table.dynamic for maps in maps_in(job.sharded.model) for name, table in maps.tables.items()}

    def evicted_shares(self, job: Any) -> dict[str, float]:
        """By table, rows taken from other ids over lookups, since the last call; of all ranks."""
        found = maps_in(job.sharded.model)
        given = {name: maps.given_anew[name] for maps in found for name in maps.tables}  # the same on all ranks
        lookups = torch.tensor([maps.read[name] for maps in found for name in maps.tables], dtype=torch.int64)
        dist.all_reduce(lookups, group=job.agreement.group)
        for maps in found:
            maps.read.clear()
            maps.given_anew.clear()
        return {name: given[name] / max(count, 1) for name, count in zip(given, lookups.tolist(), strict=True)}
