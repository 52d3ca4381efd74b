"""Settings of tables with raw ids; without torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.workloads.dynamic import Dynamic, Eviction
from recsmith.workloads.patterns import check_fit, fits

LEAST_ROWS = 2  # row 0 for unknown ids, and one more
KEY = "model.dynamic"


@noun
class DynamicRule:
    """Tables whose ids are raw numbers from an unbounded set, which share a bounded number of rows.

    tables: a name, or a pattern such as 'user*'; if several rules fit a table, the first counts. rows: of each table;
    none: the number in `model.tables` or the data. admit: how often an id must be seen to get a row, including the
    current time; until then it reads row 0. evict: which id loses its row to a new one, among ids that are not in the
    batch: `lfu` the one seen least often, `lru` the one not seen for the longest time, `age` the one that has had its
    row for the longest time; `none` keeps all. ids: folder of the ids that have rows; set only in the card of a trained
    model.
    """

    tables: str
    rows: int | None = None
    admit: int = 1
    evict: Eviction = "lru"
    ids: str | None = None

    def __post_init__(self) -> None:
        check_rules(
            None
            if self.rows is None or LEAST_ROWS <= self.rows < 2**31
            else f"{KEY}: rows of '{self.tables}' is {self.rows}; a table of raw ids has {LEAST_ROWS} to {2**31 - 1:,} "
            "rows on a rank, of which row 0 is that of unknown ids",
        )
        _ = self.dynamic

    @property
    def dynamic(self) -> Dynamic:
        """The admission and eviction rule."""
        return Dynamic(admit=self.admit, evict=self.evict)

    def said(self) -> str:
        """The rule in words."""
        return f"admit {self.admit}, evict {self.evict}"


def rule_of(model: Any, table: str) -> DynamicRule | None:
    """The rule of a table with raw ids; None if the ids of the table are row numbers."""
    return next((each for each in model.dynamic if fits(each.tables, table)), None)


def dynamic_tables(model: Any, tables: Iterable[str]) -> dict[str, DynamicRule]:
    """The rules of those of these tables that have raw ids."""
    found = ((name, rule_of(model, name)) for name in tables)
    return {name: rule for name, rule in found if rule is not None}


def sizes(model: Any, of_data: Mapping[str, int | None]) -> dict[str, int | None]:
    """Number of rows of each feature's table, from the rules for raw ids; None if `model.tables` has the number.

    of_data: number of ids of each feature in the data.

    Raises:
        UsageError: a rule fits no table, or has other rows than `model.tables`.
    """
    named = {table.name: table for table in model.tables}
    found = dict(of_data)
    rules = dynamic_tables(model, named or of_data)
    if named:
        check_own_features(rules, {name: table.features or (name,) for name, table in named.items()})
    check_fit(KEY, [each.tables for each in model.dynamic], list(named or of_data))
    for name, rule in rules.items():
        table = named.get(name)
        if table is None:
            found[name] = rule.rows or of_data[name]
            continue
        if rule.rows not in (None, table.num_embeddings):
            raise UsageError(
                f"{KEY}: '{name}' has {rule.rows:,} rows, and {table.num_embeddings:,} in model.tables; leave rows out"
            )
        found |= dict.fromkeys(table.features or (name,))
    return found


def check_own_features(rules: Iterable[str], features: Mapping[str, Iterable[str]]) -> None:
    """Raise UsageError if two tables look up one feature of raw ids. rules: tables of raw ids. features: by table."""
    owner = {feature: table for table in rules for feature in features[table]}
    for table, of_table in features.items():
        odd = next((each for each in of_table if owner.get(each, table) != table), None)
        if odd is not None:
            raise UsageError(
                f"{KEY}: table '{table}' looks up feature '{odd}', too, whose raw ids have their rows in "
                f"'{owner[odd]}'; give each feature of raw ids one table"
            )
