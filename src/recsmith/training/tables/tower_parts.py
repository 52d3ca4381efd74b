"""Which tables of a run are a tower, what towers refuse, and which plans they can be trained under; without torch.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024, arXiv 2403.00877). A tower is the tables of a host. What it sends
to other hosts has passed a small module of its own, which leaves `1 / ratio` of the columns.
"""

from dataclasses import replace
from typing import Any, Literal

from recsmith._components import NAME, parsed
from recsmith._types import noun
from recsmith.analyses.towers import tower_rules
from recsmith.data import DataSchema
from recsmith.errors import UsageError, check_rules
from recsmith.files import decode_part, did_you_mean, encode
from recsmith.plans import Plan, load_plan
from recsmith.plans.towers import ON_A_HOST, check_ratio, placed_towers
from recsmith.prediction.job_step import numbers_of
from recsmith.prediction.towers import TowerSteps, tower_steps
from recsmith.problems import TableRule
from recsmith.training.layer_shapes import shapes_of
from recsmith.training.run import MADE_HERE, Run, RunModel
from recsmith.training.run_parts import (
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
from recsmith.training.run_step import plain_step, planned_as_run
from recsmith.training.stores.parts import SplitHalves, TablesInFile

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


def with_towers(run: Run, schema: DataSchema | None = None) -> Run:
    """The run with all that its towers are: with the tables of each from its plan file, where it names none.

    A ratio of auto that does not pay leaves plain tables, and so does one that cannot: without a plan file, or on one
    host. schema: of the data; without it, dense layers are not part of the step.

    Raises:
        UsageError: neither says which tables are a tower.
    """
    found = towers_of(run.model)
    if found is None:
        return run
    if found.ratio == "auto":
        steps = predicted_towers(run, schema)
        if steps is None or not steps.pays:
            return replace(run, model=replace(run.model, table_module=None))
        found = replace(found, ratio=AUTO_RATIO)
    towers = found.towers or _planned(run)
    module = found.module or ("cross" if run.model.name == "dlrm_dcn" else "linear")
    settled = {NAME: TOWERS, **encode(replace(found, towers=towers, module=module))}
    return replace(run, model=replace(run.model, table_module=settled))


def predicted_towers(run: Run, schema: DataSchema | None = None) -> TowerSteps | None:
    """What the towers of a run bring by the links of its plan file; None without one, and on one host.

    schema: of the data; None: of embeddings alone.
    """
    found = towers_of(run.model)
    if found is None or run.plan in MADE_HERE:
        return None
    plan = load_plan(run.plan)
    if plan.cluster.hosts == 1:
        return None
    plan = planned_as_run(run, plan)
    shapes = [] if schema is None else shapes_of(run.model, schema)
    step = None if schema is None else plain_step(run, plan, shapes, numbers_of(shapes))
    return tower_steps(plan, found.factor, step_s=step and step.step_s, dense=numbers_of(shapes))


def tower_lines(run: Run, schema: DataSchema | None = None) -> list[str]:
    """What is said of the towers that a run asks for: what they bring, and why auto leaves them out."""
    found = towers_of(run.model)
    if found is None:
        return []
    steps, leaves = predicted_towers(run, schema), "so ratio auto leaves plain tables"
    if steps is None:
        why = "no plan file says how fast links between hosts are" if run.plan in MADE_HERE else "all on one host"
        told = f"towers: {why}" if found.ratio == "auto" else "towers: all on one host, where nothing crosses hosts"
        return [f"{told}; {leaves}" if found.ratio == "auto" else told]
    return [f"{steps}; {leaves}" if found.ratio == "auto" and not steps.pays else str(steps)]


def _planned(run: Run) -> tuple[tuple[str, ...], ...]:
    if run.plan in MADE_HERE:
        raise UsageError(
            f"{WHERE}: nobody says which tables are a tower; give towers: [[TABLE, ...], ...], or plan with `recsmith "
            "plan --towers HOSTS` and name its file (plan: FILE)"
        )
    plan = load_plan(run.plan)
    return plan.towers or placed_towers(plan.placements, plan.cluster)


def check_same_towers(saved: RunModel, model: RunModel) -> None:
    """UsageError where a checkpoint's towers are others; those of ratio 1 learn nothing, and may be any."""
    before, now = towers_of(saved), towers_of(model)
    if (before is None or before.ratio == 1) and (now is None or now.ratio == 1):
        return
    if before != now:
        raise UsageError(
            f"the checkpoint was saved with {_said(before)}, and the run has {_said(now)}: what towers have learned "
            "fits their own tables alone; give the run the towers of the checkpoint, or another output"
        )


def _said(found: Towers | None) -> str:
    if found is None:
        return "no towers"
    tables = " | ".join(", ".join(tower[:3]) + (", ..." if len(tower) > 3 else "") for tower in found.towers[:3])
    return f"{len(found.towers)} towers of ratio {found.ratio} ({found.module or 'linear'}; {tables})"


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
