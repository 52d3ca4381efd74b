"""Predicts a described model: its graph from templates, priced by a machine, and corrected by a captured step."""

from collections.abc import Sequence

from recsmith._types import Source
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, load_plan
from recsmith.prediction.calibration import Calibration, calibrate
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.models.build import model_graph, with_embeddings
from recsmith.prediction.models.description import Model, load_model
from recsmith.prediction.other_cluster import on_cluster
from recsmith.prediction.predict import Prediction, predict_graph
from recsmith.prediction.traces import load_capture
from recsmith.prediction.what_if import WhatIf


def predict_model(
    model: Model | Source, *, plan: Plan | Source | None = None, ranks: int = 1, batches: Sequence[int] = (),
    machine: Machine | Source = "cpu", calibrate_by: Source | None = None, cost_model: str | None = None,
    cluster: Cluster | Source | None = None, what_ifs: tuple[WhatIf, ...] = (),
) -> list[tuple[int, Prediction]]:  # fmt: skip
    """(batch, step) of a described model, for each of some batch sizes a rank, or for its own.

    plan: of its tables, for models that have some; it says how many ranks there are. ranks: of other models. machine: a
    name that ships, or a file of `recsmith learn kernels`. calibrate_by: a captured step that corrects the machine.
    cost_model: that prices embedding kernels, instead of the machine. cluster: that the step is carried over to, in
    proportion to the figures of the plan's own.

    Raises:
        UsageError: model and plan do not fit together, or nothing is known about so many ranks.
    """
    made = model if isinstance(model, Model) else load_model(model)
    known = machine if isinstance(machine, Machine) else load_machine(str(machine))
    told = plan if plan is None or isinstance(plan, Plan) else load_plan(plan)
    if ranks < 1 or any(batch < 1 for batch in batches):
        raise UsageError(f"ranks are {ranks} and batch sizes {list(batches)}; all must be at least 1")
    if cost_model is not None and told is None:
        raise UsageError("--cost-model prices the embedding tables of a plan; add --plan, or leave it out")
    if cluster is not None and told is None:
        raise UsageError("--cluster carries the step over from its plan's cluster; add --plan, or leave it out")
    other = None if cluster is None else load_cluster(cluster)
    found: list[tuple[int, Prediction]] = []
    corrected = None if calibrate_by is None else calibrate(known, load_capture(calibrate_by).graph, str(calibrate_by))
    for batch in batches or (None,):
        now = _step(
            made, corrected.machine if corrected else known, told, ranks, batch, cost_model, other, what_ifs, corrected
        )
        size = batch or (told.workload.batch_size if told else made.batch_size)
        if corrected is not None:
            before = _step(made, known, told, ranks, batch, cost_model, other, what_ifs, None)
            now = _with_note(now, before, corrected)
        found.append((size, now))
    return found


def _step(
    model: Model, machine: Machine, plan: Plan | None, ranks: int, batch: int | None, cost_model: str | None,
    cluster: Cluster | None, what_ifs: tuple[WhatIf, ...], corrected: Calibration | None,
) -> Prediction:  # fmt: skip
    graph = model_graph(model, machine, plan=plan, ranks=ranks, batch=batch)
    if plan is not None and cost_model is not None:
        from dataclasses import replace

        workload = replace(plan.workload, batch_size=batch or plan.workload.batch_size)
        cost = simulate(replace(plan, workload=workload, digest=""), cost_model).cost.per_device
        factors = corrected.machine.kernels.factors if corrected else {}
        graph = with_embeddings(
            graph, [each.forward_compute_s * factors.get("embedding_forward", 1.0) for each in cost],
            [each.backward_compute_s * factors.get("embedding_backward", 1.0) for each in cost],
        )  # fmt: skip
    unknown = machine.kernels.unknown([event.kernel for _, event in graph.kernels() if event.kernel])
    notes = tuple(f"{count} kernels of kind {kind} have no model here; their bytes price them"
                  for kind, count in unknown.items())  # fmt: skip
    if cluster is not None and plan is not None:
        graph, carried = on_cluster(graph, plan.cluster, cluster, machine.latency_of)
        notes = (*notes, carried)
    return predict_graph(graph, what_ifs, notes, machine.latency_of)


def _with_note(now: Prediction, before: Prediction, corrected: Calibration) -> Prediction:
    from dataclasses import replace

    note = (
        f"calibrated: {before.step_s * 1e3:.4g} ms before, {now.step_s * 1e3:.4g} ms after; its kernels were off by "
        f"{corrected.before:.1%} (geometric mean) and are by {corrected.after:.1%}"
    )
    return replace(now, notes=(*now.notes, note))
