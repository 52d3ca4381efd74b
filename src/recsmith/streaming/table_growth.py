"""Watches how dynamic tables, whose ids have no bound, fill up in a running job, and forecasts the rows they need.

One rank samples the ids of a batch every few steps in bounded memory, and fits a law to them (capacity/law.py). The
job's lookups are extrapolated from those it saw by the steps between two looks and the number of ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from recsmith._types import Ints, noun
from recsmith.errors import UsageError
from recsmith.streaming.capacity.fitting import fit, seen
from recsmith.streaming.capacity.id_sample import IdSample
from recsmith.streaming.capacity.law import IdLaw
from recsmith.workloads import Table

SERVE = 0.99  # share of the lookups an unbounded table would serve, that a table's rows should serve
KEPT = 2**16  # sampled lookups kept per table: a megabyte
FEWEST = 5000  # seen lookups from which a forecast is made
MORE = 1.1  # requested rows / needed rows; the next request comes when more rows are needed than were requested
HORIZON = 2  # forecast up to this many times the current step, if the total number of steps is not known
POINTS = 200  # points in time, up to the end, at which the needed rows are computed


@noun
class TableFill:
    """How a dynamic table fills up.

    new_share: share of current lookups with ids that occur for the first time. needed: rows that serve 99 % of what an
    unbounded table serves, at step `until`, the end. enough_until: the step until which the table's rows serve that
    much; None: to the end.
    """

    table: str
    rows: int
    new_share: float
    needed: int
    until: int
    enough_until: int | None

    @property
    def ask(self) -> int:
        """Rows to request: a tenth more than are needed."""
        return round(self.needed * MORE)

    def because(self, step: int, evicted_share: float | None = None) -> str:
        """Why more rows are requested, in a sentence. evicted_share: share of lookups that evict an id, if known."""
        gone = "" if evicted_share is None else f", and {evicted_share:.2%} take the row of another id"
        when = "do not serve" if self.enough_until is None or self.enough_until <= step else (
            f"from step {self.enough_until:,} on do not serve"
        )  # fmt: skip
        return (
            f"table '{self.table}' has {self.rows:,} rows, which {when} {SERVE:.0%} of what a table without bounds "
            f"serves: that takes about {self.needed:,} at step {self.until:,}, so give it {self.ask:,}; "
            f"{self.new_share:.2%} of its lookups are of new ids{gone}"
        )


class TableGrowth:
    """Watches the ids of dynamic tables on one rank. every: number of steps from one look to the next."""

    def __init__(self, tables: Sequence[Table], every: int, ranks: int) -> None:
        self.tables = {table.name: table for table in tables if table.dynamic is not None}
        self.features = {each.name: name for name, table in self.tables.items() for each in table.features}
        self.share = 1 / (every * ranks)  # share of the job's lookups that are seen
        self._samples = {name: IdSample(KEPT) for name in self.tables}
        self._asked: dict[str, int] = {}  # requested rows by table
        self._begun: int | None = None  # step of the first look

    def add(self, step: int, ids: Mapping[str, Ints]) -> None:
        """Add the ids of a batch, by feature; features of other tables are ignored."""
        self._begun = step if self._begun is None else self._begun
        for feature, table in self.features.items():
            if feature in ids:
                self._samples[table].add(ids[feature])

    def fills(self, step: int, total_steps: int | None) -> list[TableFill]:
        """How each table fills up, for tables of which enough lookups were seen."""
        made = (self._fill(name, step, total_steps) for name in self.tables)
        return [each for each in made if each is not None]

    def asks(self, step: int, total_steps: int | None) -> list[TableFill]:
        """Tables that will run out of rows; a table is listed again only if it needs more than the last request."""
        found = list[TableFill]()
        for each in self.fills(step, total_steps):
            if each.enough_until is not None and each.needed > self._asked.get(each.table, 0):
                self._asked[each.table] = each.ask
                found.append(each)
        return found

    def _fill(self, name: str, step: int, total_steps: int | None) -> TableFill | None:
        sample, begun = self._samples[name], self._begun or 0
        if sample.lookups < FEWEST or step <= begun:
            return None
        try:
            law = self._law(sample)
        except UsageError:
            return None
        so_far = sample.lookups / self.share
        until = max(step, total_steps or HORIZON * step)
        at_end = so_far * (until - begun) / (step - begun)
        rows = self.tables[name].num_embeddings
        return TableFill(
            table=name, rows=rows, new_share=min(1.0, float(law.unread(np.array([so_far]))[0])),
            needed=max(1, round(law.rows(at_end, SERVE))), until=until,
            enough_until=_enough_until(law, rows, so_far, at_end, (step, until)),
        )  # fmt: skip

    def _law(self, sample: IdSample) -> IdLaw:
        """The law of ids, per lookup of the whole job."""
        law = fit(seen(sample.sampled())).law
        return replace(law, churn=law.churn * self.share)


def _enough_until(law: IdLaw, rows: int, so_far: float, at_end: float, steps: tuple[int, int]) -> int | None:
    """The step until which `rows` rows are enough; None: to the last step."""
    first, last = steps
    for part in np.linspace(0, 1, POINTS).tolist() if last > first else (1.0,):
        if law.rows(so_far + part * (at_end - so_far), SERVE) > rows:
            return round(first + part * (last - first))
    return None
