"""How the tables of ids without end of a running job fill: new ids, and the rows that they will need.

One rank looks at the ids of a batch in so many, keeps those of some ids in bounded memory, and fits the law of what
came (capacity/law.py). Lookups of the job are those that it saw times the batches between two looks, of all ranks.
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

SERVE = 0.99  # share of what a table without bounds serves, that its rows should serve
KEPT = 2**16  # lookups that are kept of a table: a megabyte
FEWEST = 5000  # lookups that were seen, of which something is told
MORE = 1.1  # of the rows that are needed, which are asked for; and by which they grow before they are asked for again
HORIZON = 2  # as many steps as were trained, where nobody says how many there will be
POINTS = 200  # of the way to the end, at which the rows that are needed are looked up


@noun
class TableFill:
    """How a table of ids without end fills.

    new_share: of the lookups now, those of ids that come for the first time. needed: rows that serve 99 % of what a
    table without bounds serves, at the end, which is `until`. enough_until: the step until which its rows serve that
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
        """Rows to give it: a tenth more than are needed."""
        return round(self.needed * MORE)

    def because(self, step: int, evicted_share: float | None = None) -> str:
        """Why more rows are asked for, in a sentence."""
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
    """Watches the ids of tables of ids without end, on one rank. every: steps from one look to the next."""

    def __init__(self, tables: Sequence[Table], every: int, ranks: int) -> None:
        self.tables = {table.name: table for table in tables if table.dynamic is not None}
        self.features = {each.name: name for name, table in self.tables.items() for each in table.features}
        self.share = 1 / (every * ranks)  # of the lookups of the job, that are seen
        self._samples = {name: IdSample(KEPT) for name in self.tables}
        self._asked: dict[str, int] = {}  # rows that were asked for, by table
        self._begun: int | None = None  # step of the first look

    def add(self, step: int, ids: Mapping[str, Ints]) -> None:
        """Take the ids of a batch, by feature; other features are left out."""
        self._begun = step if self._begun is None else self._begun
        for feature, table in self.features.items():
            if feature in ids:
                self._samples[table].add(ids[feature])

    def fills(self, step: int, total_steps: int | None) -> list[TableFill]:
        """How each table fills of which enough was seen."""
        made = (self._fill(name, step, total_steps) for name in self.tables)
        return [each for each in made if each is not None]

    def asks(self, step: int, total_steps: int | None) -> list[TableFill]:
        """Tables whose rows will not be enough: each once, and again where it needs a tenth more than was asked for."""
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
        """The law of the job's lookups."""
        law = fit(seen(sample.sampled())).law
        return replace(law, churn=law.churn * self.share)


def _enough_until(law: IdLaw, rows: int, so_far: float, at_end: float, steps: tuple[int, int]) -> int | None:
    """The step until which so many rows are enough; None: to the last one."""
    first, last = steps
    for part in np.linspace(0, 1, POINTS).tolist() if last > first else (1.0,):
        if law.rows(so_far + part * (at_end - so_far), SERVE) > rows:
            return round(first + part * (last - first))
    return None
