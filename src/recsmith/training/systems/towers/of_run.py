"""Which tables of a run are a tower, what towers refuse, and which plans they can be trained under; without torch.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024, arXiv 2403.00877). A tower is the tables of a host. What it sends
to other hosts has passed a small module of its own, which leaves `1 / ratio` of the columns.
"""

from dataclasses import replace

from recsmith._components import NAME
from recsmith.data import DataSchema
from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.plans import load_plan
from recsmith.plans.towers import placed_towers
from recsmith.prediction.job_step import numbers_of
from recsmith.prediction.towers import TowerSteps, tower_steps
from recsmith.training.job.layer_shapes import shapes_of
from recsmith.training.job.run_step import plain_step, planned_as_run
from recsmith.training.run import MADE_HERE, Run, RunModel
from recsmith.training.systems.towers.settings import AUTO_RATIO, TOWERS, WHERE, Towers, towers_of


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
