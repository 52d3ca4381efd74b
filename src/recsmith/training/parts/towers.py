"""Tables in towers, as a run names them and as a part of it: what does not go with them; without torch."""

from typing import Any, Literal

from recsmith._components import parsed
from recsmith._types import noun
from recsmith.analyses.towers import tower_rules
from recsmith.errors import UsageError, check_rules
from recsmith.files import decode_part, did_you_mean
from recsmith.plans import Plan
from recsmith.plans.towers import ON_A_HOST, check_ratio
from recsmith.problems import TableRule
from recsmith.training.parts.rows import SplitHalves, TablesInFile
from recsmith.training.parts.run import (
    FactoredLayers,
    FewerUnits,
    LayersByStep,
    Messages,
    NarrowLayers,
    OwnTables,
    PlannedTables,
    Sequences,
    not_as_plain,
)
from recsmith.training.run import RunModel

TOWERS = "towers"
FIELD = "model.table_module"
WHERE = f"{FIELD} (towers)"
AUTO_RATIO = 4  # the largest that cost no AUC that five seeds show (docs/benchmarks/towers.md)


@noun
class Towers:
    """How the tables of a run are towers.

    ratio: columns of a tower's tables for each column that leaves it; 1: all leave it, and nothing is learned; auto: 4
    where that pays by the plan file's links, else plain tables. towers: names of the tables of each; none: those of the
    run's plan file. module: what a tower learns; linear, or cross: a cross layer of `rank` before the linear one; none:
    cross for dlrm_dcn, whose layers are such, and linear for others.
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


def towers_of(model: RunModel) -> Towers | None:
    """The towers of a model; None where it has none; UsageError where a setting is wrong."""
    if model.table_module is None:
        return None
    name, settings = parsed(model.table_module, "model.table_module")
    return decode_part(Towers, settings, FIELD) if name == TOWERS else None


@noun
class TowersOfHosts:
    """Tables in towers, of which each host of a job has one."""

    towers: Towers
    label: str = "model.table_module: towers"

    def refuses(self, other: Any, /) -> str | None:
        """What would build the tables too; what towers do not look up, keep or send; plans that tear one apart."""
        built = OwnTables().refuses(other)
        if built is not None:
            return built.replace("model.table_module", self.label)
        if isinstance(other, Sequences):
            return f"table '{other.table}' has pooling none, which towers do not have; pool it, or leave towers out"
        if isinstance(other, TablesInFile | SplitHalves):
            return f"{other.label} does not go with towers yet; leave rows out, or model.table_module"
        if isinstance(other, FactoredLayers | NarrowLayers | LayersByStep | FewerUnits):
            instead = {LayersByStep: "write pipeline: base", FewerUnits: "leave it out"}.get(type(other), "use adam")
            return f"{other.label} treats dense layers as those of all ranks, and towers are those of a host; {instead}"
        if isinstance(other, Messages):
            of_int8 = "comms ask for int8, which towers do not send back yet; use fp16 or bf16"
            return not_as_plain(other.comms, "towers", of_int8)
        return self._refused_plan(other.plan) if isinstance(other, PlannedTables) else None

    def _refused_plan(self, plan: Plan) -> str | None:
        """Why a plan does not have each tower on a host of its own; on one host all is well."""
        hosts, local = plan.cluster.hosts, plan.cluster.local_world_size
        if hosts == 1:
            return None
        if hosts != len(self.towers.towers):
            what = "more towers than hosts" if len(self.towers.towers) > hosts else "fewer towers than hosts"
            return (
                f"there are {what}: {len(self.towers.towers)} towers, and the plan is for {hosts} hosts; give as many, "
                "or train on one host"
            )
        at = {name: host for host, tower in enumerate(self.towers.towers) for name in tower}
        for placement in plan.placements:
            if placement.sharding_type not in ON_A_HOST:
                return (
                    f"table '{placement.table}' is {placement.sharding_type} in the plan, which crosses hosts, and it "
                    f"is of a tower; use a plan of {', '.join(ON_A_HOST)}"
                )
            odd = next((rank for rank in placement.ranks if rank // local != at.get(placement.table)), None)
            if odd is not None:
                return (
                    f"table '{placement.table}' of tower {at.get(placement.table)} is on rank {odd} in the plan, which "
                    f"is of host {odd // local}; plan with --towers, or give towers as the plan has them"
                )
        return None
