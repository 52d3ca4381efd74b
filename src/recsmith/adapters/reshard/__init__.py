"""Moves a checkpoint of torch.distributed.checkpoint from the shards of one plan to those of another (docs/replan.md).

    report = reshard("step-1000", "old.json", "new.json", "step-1000-new")      # reshard.py

This module has the nouns of the report. layout: positions of a plan's shards; table_entries: which entries of a
checkpoint belong to a table, and how optimizers name them; sources -> moves: the source of each shard of the new
checkpoint; collisions: rows at which managed-collision tables may be split; partial, writing: the folder that grows
until it is complete, and its contents. Only writing imports torch.
"""

from recsmith._types import record

EXACT = "exact"


@record
class ReshardProgress:
    """Progress of a run: bytes written so far, and bytes in total."""

    done: int
    total: int


@record
class StateChange:
    """A state of a table's optimizer, and how resharding changed it.

    change: 'exact' (bit for bit equal), 'replicated' (a column piece was split), 'averaged' (pieces were merged; mean
    weighted by width), 'reset' (another kind of optimizer updates the table now: zeros), 'new' (of a new table: zeros).
    """

    name: str
    change: str


@record
class TableChange:
    """A table: its sharding types before and after (None: not in that plan), bytes of weights and state, its states."""

    table: str
    before: str | None
    after: str | None
    bytes: int
    states: tuple[StateChange, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether no value of an old table has changed."""
        return all(state.change in (EXACT, "new") for state in self.states)


@record
class Resharded:
    """The report of `reshard`: tables by name, number of entries copied unchanged, bytes written, fingerprint.

    resumed_bytes: the part of these bytes that an earlier, interrupted run had written.
    """

    output: str
    tables: tuple[TableChange, ...]
    untouched: int
    written_bytes: int
    resumed_bytes: int
    fingerprint: str

    @property
    def inexact(self) -> tuple[TableChange, ...]:
        """Tables whose state is not bit for bit equal to the old one."""
        return tuple(each for each in self.tables if not each.exact)
