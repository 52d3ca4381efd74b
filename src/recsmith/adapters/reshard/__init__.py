"""Moves a checkpoint of torch.distributed.checkpoint from the shards of one plan to those of another (docs/replan.md).

    report = reshard("step-1000", "old.json", "new.json", "step-1000-new")      # reshard.py

Here are the nouns of its report. layout: where a plan's shards lie; table_entries: which entries of a checkpoint are a
table's, and how optimizers name them; sources -> moves: what each shard of the new checkpoint is made of; collisions:
where the ids of managed collisions may be parted; partial, writing: the folder that grows until it is complete, and
what is written into it. writing alone loads torch.
"""

from recsmith._types import record

EXACT = "exact"


@record
class ReshardProgress:
    """How far a run is: bytes written, and bytes in all."""

    done: int
    total: int


@record
class StateChange:
    """A state of a table's optimizer, and what became of it.

    change: 'exact' (bit for bit), 'replicated' (a column piece was split), 'averaged' (pieces were merged; weighted by
    width), 'reset' (another kind of optimizer keeps the table now: zeros), 'new' (of a new table: zeros).
    """

    name: str
    change: str


@record
class TableChange:
    """A table: how it was and is sharded (None: not there), bytes of weights and state, and its states."""

    table: str
    before: str | None
    after: str | None
    bytes: int
    states: tuple[StateChange, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing of an old table changed its value."""
        return all(state.change in (EXACT, "new") for state in self.states)


@record
class Resharded:
    """The outcome: tables by name, entries that passed through untouched, bytes that were written, fingerprint.

    resumed_bytes: of them, those that an earlier, interrupted run had written.
    """

    output: str
    tables: tuple[TableChange, ...]
    untouched: int
    written_bytes: int
    resumed_bytes: int
    fingerprint: str

    @property
    def inexact(self) -> tuple[TableChange, ...]:
        """Tables whose state is not bit for bit what it was."""
        return tuple(each for each in self.tables if not each.exact)
