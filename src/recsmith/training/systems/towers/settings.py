"""Settings of tables in towers, as a run names them; without torch."""

from typing import Any, Literal

from recsmith._components import parsed
from recsmith._types import noun
from recsmith.analyses.towers import tower_rules
from recsmith.errors import UsageError, check_rules
from recsmith.files import decode_part, did_you_mean
from recsmith.plans.towers import check_ratio
from recsmith.problems import TableRule

TOWERS = "towers"
FIELD = "model.table_module"
WHERE = f"{FIELD} (towers)"
ACROSS = "ids cross hosts by towers when their batch trains"
AUTO_RATIO = 4  # the largest ratio with no loss of AUC that five seeds show (docs/towers.md)


@noun
class Towers:
    """How the tables of a run are divided into towers.

    ratio: how many columns of a tower's tables there are for each column that leaves the tower. With 1 all columns
    leave it, and nothing is learned. With auto it is 4 if that pays by the plan file's links, and otherwise tables are
    plain. towers: names of the tables of each tower; none: as in the run's plan file. module: the layer that a tower
    learns: linear, or cross, which puts a cross layer of `rank` before the linear one. The default is cross for
    dlrm_dcn, which has such layers itself, and linear for other models. rank: the rank of that cross layer.
    """

    ratio: int | Literal["auto"]
    towers: tuple[tuple[str, ...], ...] = ()
    module: Literal["linear", "cross"] | None = None
    rank: int = 64

    def __post_init__(self) -> None:
        """Check what can be checked without knowing the tables."""
        names = [name for tower in self.towers for name in tower]
        twin = next((name for name in names if names.count(name) > 1), None)
        empty = next((number for number, tower in enumerate(self.towers) if not tower), None)
        check_rules(
            None if self.ratio == "auto" or self.ratio >= 1 else f"{FIELD}.ratio is {self.ratio}; it is at least 1",
            None if self.rank >= 1 else f"{FIELD}.rank is {self.rank}; it is at least 1",
            None if empty is None else f"{WHERE}: tower {empty} has no table; give it one, or leave it out",
            None if twin is None else f"{WHERE}: table '{twin}' is in two towers; name it in one",
        )

    @property
    def factor(self) -> int:
        """The ratio as a number: `auto` counts as AUTO_RATIO."""
        return AUTO_RATIO if self.ratio == "auto" else self.ratio

    def check_tables(self, dims: dict[str, int]) -> None:
        """Raise UsageError if towers name unknown tables, lack a table, or have tables of too few columns.

        dims: the columns of each table of the model, by name.
        """
        named = {name for tower in self.towers for name in tower}
        odd = min(named - dims.keys(), default=None)
        if odd is not None:
            raise UsageError(f"{WHERE}: '{odd}' is no table of the model{did_you_mean(odd, list(dims))}")
        odd = min(dims.keys() - named, default=None)
        if odd is not None:
            raise UsageError(f"{WHERE}: table '{odd}' is in no tower; name it in one of them")
        check_ratio(self.factor, dims, WHERE)

    def rules(self, hosts: int) -> tuple[TableRule, ...]:
        """Rules that a plan for this many hosts must keep: each tower on its host. There are none on one host."""
        return () if hosts == 1 else tower_rules(self.towers)


def towers_of(model: Any) -> Towers | None:
    """The towers of a model, or None if it has none. Raises UsageError if a setting is invalid."""
    if model.table_module is None:
        return None
    name, settings = parsed(model.table_module, "model.table_module")
    return decode_part(Towers, settings, FIELD) if name == TOWERS else None
