"""Which tables of a run form a tower, whether that pays, and which checkpoints fit; without torch.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024, arXiv 2403.00877). A tower is the tables of a host. What it sends
to other hosts has passed a small module of its own, which leaves `1 / ratio` of the columns.
"""

from dataclasses import replace

from recsmith._components import NAME
from recsmith.analyses.towers import plan_without_towers
from recsmith.data import DataSchema
from recsmith.errors import PlanMismatch, UsageError
from recsmith.files import encode
from recsmith.plans import Plan, load_plan
from recsmith.plans.towers import placed_towers, plan_command
from recsmith.prediction.dense_shapes import Shapes, numbers_of
from recsmith.prediction.job_step import copied_numbers
from recsmith.prediction.towers import TowerSteps, tower_steps
from recsmith.training.job.layer_shapes import shapes_of
from recsmith.training.job.plan_rules import plan_limits
from recsmith.training.job.run_step import plain_step, planned_as_run
from recsmith.training.run import MADE_HERE, Run, RunModel
from recsmith.training.systems.towers.settings import AUTO_RATIO, TOWERS, WHERE, Towers, towers_of
from recsmith.units import format_time

PLAN_FIRST = f"{plan_command()}, and plan: plan.json names it"


def with_towers(run: Run, schema: DataSchema | None = None) -> Run:
    """The run with complete settings of its towers; tables of each are read from the plan file if the run names none.

    With ratio auto, tables are plain if towers do not pay or are impossible: without a plan file, or on one host.
    schema: of the data; without it, the predicted step has no dense layers.

    Raises:
        UsageError: neither the run nor the plan says which tables form a tower.
    """
    found = towers_of(run.model)
    if found is None:
        return run
    if found.ratio == "auto":
        steps, _ = outlook(run, schema)
        if steps is None or not steps.pays:
            return replace(run, model=replace(run.model, table_module=None))
        found = replace(found, ratio=AUTO_RATIO)
    towers = found.towers or _planned(run)
    module = found.module or ("cross" if run.model.name == "dlrm_dcn" else "linear")
    settled = {NAME: TOWERS, **encode(replace(found, towers=towers, module=module))}
    return replace(run, model=replace(run.model, table_module=settled))


def outlook(run: Run, schema: DataSchema | None = None) -> tuple[TowerSteps | None, str]:
    """What towers are predicted to save by the links of the run's plan file; (None, why) if that cannot be predicted.

    schema: of the data; None: the step of embeddings alone is compared.

    Raises:
        PlanMismatch, UsageError: towers are refused, and the ratio is not auto.
    """
    found = towers_of(run.model)
    if found is None:
        return None, ""
    if run.plan in MADE_HERE:
        return None, f"plan: {run.plan} knows no links between hosts; {PLAN_FIRST}"
    plan = load_plan(run.plan)
    if plan.cluster.hosts == 1:
        return None, "the plan is of one host, where nothing crosses hosts"
    plan, plain = planned_as_run(run, plan), replace(run, model=replace(run.model, table_module=None))
    shapes = [] if schema is None else shapes_of(plain.model, schema)
    try:
        under_s, own_s = (_plain_s(plain, each, shapes) for each in (plan, _plan_of_plain(plain, plan)))
        return tower_steps(plan, found.factor, step_s=under_s, dense=numbers_of(shapes), plain_s=own_s), ""
    except (PlanMismatch, UsageError) as refused:
        if found.ratio != "auto":
            raise
        return None, str(refused)


def _plain_s(plain: Run, plan: Plan, shapes: Shapes) -> float:
    """Seconds of a step without towers under a plan; of embeddings alone if there are no dense layers, or on GPUs."""
    step = plain_step(plain, plan, shapes, numbers_of(shapes) + copied_numbers(plan)) if shapes else None
    return plan.cost.step_s if step is None else step.step_s


def _plan_of_plain(plain: Run, plan: Plan) -> Plan:
    """The plan that the same run without towers would be given on the cluster of this plan."""
    limits = plan_limits(plain, None, sequences=(), device=plan.cluster.device.kind, hosts=plan.cluster.hosts)
    return plan_without_towers(plan, limits.rules)


def _other_plan(steps: TowerSteps | None) -> str:
    """The advice to plan again without towers, if auto leaves plain tables under a plan that is made for towers."""
    if steps is None or steps.plain_s >= steps.under_s:
        return ""
    return f"; plan again without --towers, for a step of {format_time(steps.plain_s)}"


def tower_lines(run: Run, schema: DataSchema | None = None) -> list[str]:
    """Lines on the towers that a run asks for: what they save and cost, or why auto leaves them out."""
    found = towers_of(run.model)
    if found is None:
        return []
    steps, why = outlook(run, schema)
    if found.ratio == "auto" and (steps is None or not steps.pays):
        text = f"towers: {why}" if steps is None else str(steps)
        return [f"{text}; so ratio auto leaves plain tables{_other_plan(steps)}"]
    return [f"towers: {why}" if steps is None else str(steps)]


def _planned(run: Run) -> tuple[tuple[str, ...], ...]:
    if run.plan in MADE_HERE:
        raise UsageError(
            f"{WHERE}: nobody says which tables are a tower: {PLAN_FIRST}; or give towers: [[TABLE, ...], ...]"
        )
    plan = load_plan(run.plan)
    return plan.towers or placed_towers(plan.placements, plan.cluster)


def check_same_towers(saved: RunModel, model: RunModel) -> None:
    """Raise UsageError if the towers of a checkpoint differ. Towers of ratio 1 learn nothing, so they may differ."""
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
