"""Whether a run's dense layers are narrow for a time, and lines on what that costs and saves."""

from dataclasses import replace
from typing import Any

from torch import nn

from recsmith.adapters.topology import device_type
from recsmith.errors import UsageError
from recsmith.prediction.job_step import JobStep
from recsmith.training.collectives import collectives_of
from recsmith.training.job.run_step import history_work
from recsmith.training.run import Run
from recsmith.training.run.refusals import placed_parts, refusals
from recsmith.training.seams.predicting import OpenRun
from recsmith.training.sources import total_steps
from recsmith.training.systems.narrow.cost import NarrowCost, cost_line, narrow_cost, why_not
from recsmith.training.systems.narrow.settings import LEAST_UNITS, NarrowSettings
from recsmith.training.systems.narrow.units import units_of

AUTO = "auto"


def with_narrow(open_run: OpenRun) -> tuple[Run, list[str], JobStep | None]:
    """The run with model.narrow decided, lines on what it saves, and the predicted step with it.

    Raises:
        UsageError: the model has no layer that could be narrow, or a phase would be too short.
    """
    run, before, model = open_run.run, open_run.before, open_run.parts.task.model
    wanted = run.model.narrow
    if wanted == AUTO and before is not None:
        kept = before.model.narrow
        stays = f"model.narrow, which is auto, stays {'on' if kept else 'off'}, as it was"
        return _with(run, kept), [stays], open_run.step
    settings = NarrowSettings() if wanted == AUTO else wanted
    made = _with(run, settings)
    try:
        if wanted == AUTO and (refused := next(refusals(placed_parts(made, open_run.priced, device_type())), None)):
            raise UsageError(refused)
        cost, thresholded = _priced(open_run, settings)
    except UsageError as error:
        if wanted != AUTO:
            raise
        return _with(run, None), [f"model.narrow, which is auto, is left out: {error}"], open_run.step
    step = _narrowed(open_run.step, cost.saved)
    text = cost_line(settings, cost, thresholded=thresholded)
    if wanted != AUTO:
        return made, [text, *whole_layers(model, settings)], step
    if (why := why_not(cost, open_run.gain_of(step))) is not None:
        return _with(run, None), [text, f"model.narrow, which is auto, is left out: {why}"], open_run.step
    on = f"{text}; so model.narrow, which is auto, is on"
    return made, [on, *whole_layers(model, settings)], step


def _narrowed(step: JobStep | None, saved: float) -> JobStep | None:
    """The predicted step with shorter layers. saved: share of the step that is saved on average over a job."""
    return step and replace(step, layers_s=max(0.0, step.layers_s - saved * step.step_s))


def _with(run: Run, narrow: Any) -> Run:
    return replace(run, model=replace(run.model, narrow=narrow))


def _priced(open_run: OpenRun, settings: NarrowSettings) -> tuple[NarrowCost, bool]:
    """(cost and saving of narrow layers, whether only a share of their gradients crosses ranks)."""
    parts, plan = open_run.parts, open_run.priced
    model = parts.task.model
    check_units(model)
    units = [each for each in units_of(model) if each.width >= LEAST_UNITS]
    names = {name for each in units for name in (each.made_by, *each.read_by)}
    layers: dict[str, Any] = {name: model.get_submodule(name) for name in names}
    ranks = plan.cluster.world_size
    comms: Any = collectives_of(open_run.comms)
    sent = None if getattr(comms, "dense", None) is None else comms.dense_bytes(ranks, open_run.numbers)
    cost = narrow_cost(
        settings, units, {name: tuple(each.weight.shape) for name, each in layers.items()}, open_run.shapes, plan,
        open_run.step, total_steps(open_run.run, parts.source, ranks), sent, _rows_of_products(open_run),
        bf16=open_run.run.model.precision == "bf16",
    )  # fmt: skip
    return cost, sent is not None


def _rows_of_products(open_run: OpenRun) -> dict[tuple[int, int], float]:
    """Rows per sample that layers of a model of histories multiply, by layer shape; empty for other models."""
    work = history_work(open_run.run, open_run.priced, open_run.lengths)
    return {} if work is None else {(outward, inward): rows for rows, outward, inward in work.products}


def check_units(model: nn.Module) -> None:
    """Raise UsageError if no layer of a model has hidden units that could be left out."""
    linear = [name for name, each in model.named_modules() if isinstance(each, nn.Linear)]
    if not linear:
        raise UsageError("model.narrow is given, and the model has no linear layer; leave it out")
    units = units_of(model)
    if not units:
        raise UsageError(
            f"model.narrow is given, and none of the {len(linear)} linear layers makes units that activations alone "
            "pass and linear layers alone read (docs/narrow.md); leave it out"
        )
    widest = max(each.width for each in units)
    if widest < LEAST_UNITS:
        raise UsageError(
            f"model.narrow is given, and the widest hidden layer has {widest} units; it pays from {LEAST_UNITS} on: "
            "give wider layers, or leave it out"
        )


def whole_layers(model: nn.Module, settings: NarrowSettings) -> list[str]:
    """A line on the linear layers whose units all train in every step."""
    narrow = {each.made_by for each in units_of(model) if settings.kept(each.width) < each.width >= LEAST_UNITS}
    whole = [name for name, each in model.named_modules() if isinstance(each, nn.Linear) and name not in narrow]
    names = ", ".join(whole[:4]) + (", ..." if len(whole) > 4 else "")
    return [f"narrow: all units of {names} train in every step"] if whole else []
