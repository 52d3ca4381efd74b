"""Tables in towers, as a run names them; without torch."""

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
AUTO_RATIO = 4  # the largest that cost no AUC that five seeds show (docs/towers.md)


@noun
class Towers:
    """How the tables of a run are towers.

    ratio: columns of a tower's tables for each column that leaves it; 1: all leave it, and nothing is learned; auto: 4
    where that pays by the plan file's links, else plain tables. towers: names of the tables of each; none: those of the
    run's plan file. module: what a tower learns; linear, or cross: a cross layer of `rank` before the linear one; none:
    cross for dlrm_dcn, whose layers are such, and linear for others. rank: of that
    cross layer.
    """

    ratio: int | Literal["auto"]
    towers: tuple[tuple[str, ...], ...] = ()
    module: Literal["linear", "cross"] | None = None
    rank: int = 64

    def __post_init__(self) -> None:
        """Check what can be checked without tables."""
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
        """The ratio, once it is settled."""
        return AUTO_RATIO if self.ratio == "auto" else self.ratio

    def check_tables(self, dims: dict[str, int]) -> None:
        """UsageError where tables are not those of the towers, or have too few columns. dims: columns by name."""
        named = {name for tower in self.towers for name in tower}
        odd = min(named - dims.keys(), default=None)
        if odd is not None:
            raise UsageError(f"{WHERE}: '{odd}' is no table of the model{did_you_mean(odd, list(dims))}")
        odd = min(dims.keys() - named, default=None)
        if odd is not None:
            raise UsageError(f"{WHERE}: table '{odd}' is in no tower; name it in one of them")
        check_ratio(self.factor, dims, WHERE)

    def rules(self, hosts: int) -> tuple[TableRule, ...]:
        """What plans for so many hosts must keep: each tower on its host; nothing on one host, where all are."""
        return () if hosts == 1 else tower_rules(self.towers)


def towers_of(model: Any) -> Towers | None:
    """The towers of a model; None where it has none; UsageError where a setting is wrong."""
    if model.table_module is None:
        return None
    name, settings = parsed(model.table_module, "model.table_module")
    return decode_part(Towers, settings, FIELD) if name == TOWERS else None
