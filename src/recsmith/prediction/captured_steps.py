"""Predicts a captured step as it was, under another plan of its tables, or at other batch sizes."""

from collections.abc import Sequence

from recsmith._types import Source
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.plans import Plan, load_plan
from recsmith.prediction.graph import Kind
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.other_cluster import on_cluster
from recsmith.prediction.predict import Prediction, predict_graph
from recsmith.prediction.repricing import held_tables, reprice
from recsmith.prediction.traces import Captured, load_capture
from recsmith.prediction.what_if import WhatIf
from recsmith.units import format_time

HELD_UP = 0.15  # share of a step that a prediction lacks from which on the reason is looked for


def predict_capture(
    folder: Source, *, plan: Plan | Source | None = None, batches: Sequence[int] = (),
    machine: Machine | Source = "cpu", cluster: Cluster | Source | None = None, what_ifs: tuple[WhatIf, ...] = (),
) -> list[tuple[int, Prediction]]:  # fmt: skip
    """(batch, step) of a captured step, for each of some batch sizes a rank; as it was without a plan and batch sizes.

    plan: that its tables should have instead. machine: whose proportions scale what changes; the captured times decide
    how fast things are. cluster: that the step is carried over to, in proportion to the figures of the plan's own. The
    batch is 0 where nothing changes.

    Raises:
        UsageError: the plan is of other tables or ranks, or the step's lookups are not of a kind that can be scaled;
            a cluster is given without a plan, or has other ranks than the step.
    """
    captured = load_capture(folder)
    if cluster is not None and plan is None:
        raise UsageError("--cluster carries the step over from its plan's cluster; add --plan, the plan it ran under")
    if plan is None and not batches:
        notes = (*captured.notes, *held_up(captured))
        return [(0, predict_graph(captured.graph, what_ifs, notes))]
    if any(batch < 1 for batch in batches):
        raise UsageError(f"batch sizes are {list(batches)}; all must be at least 1")
    known = machine if isinstance(machine, Machine) else load_machine(str(machine))
    told = plan if plan is None or isinstance(plan, Plan) else load_plan(plan)
    _, own = held_tables(captured.graph)
    before = predict_graph(captured.graph).step_s
    known_notes = (*captured.notes, *held_up(captured))
    note = f"as it was captured, the step of {own:,} samples a rank is predicted at {format_time(before)}"
    if captured.graph.measured_s is not None:
        note += f"; measured without the profiler: {format_time(captured.graph.measured_s)}"
    found: list[tuple[int, Prediction]] = []
    for batch in batches or (None,):
        graph, notes = reprice(captured.graph, known, plan=told, batch=batch), (*known_notes, note)
        if cluster is not None and told is not None:
            graph, carried = on_cluster(graph, told.cluster, load_cluster(cluster), known.latency_of)
            notes = (*notes, carried)
        found.append((batch or own, predict_graph(graph, what_ifs, notes, known.latency_of)))
    return found


def held_up(captured: Captured) -> tuple[str, ...]:
    """Why a step is predicted much too short, where a rank's host thread did not have its core; none of a GPU's step.

    Such times are in the measured step and not in the predicted one, which goes by the thread's own work and by waits
    for collectives.
    """
    on_gpu = any(event.kind == Kind.LAUNCH for tape in captured.graph.ranks for event in tape)
    slowest = max(captured.abouts, key=lambda about: about.plain_step_s)
    step, measured = predict_graph(captured.graph).step_s, slowest.plain_step_s
    if on_gpu or slowest.plain_host_s is None or measured - step < HELD_UP * measured:
        return ()
    waited = step - sum(event.seconds for event in captured.graph.ranks[slowest.rank])
    rest = measured - slowest.plain_host_s - waited
    if rest < HELD_UP * measured:
        return ()
    return (
        f"of a step of {format_time(measured)} rank {slowest.rank} worked for {format_time(slowest.plain_host_s)} and "
        f"waited for ranks for {format_time(waited)}; in the other {format_time(rest)} it waited for data, or other "
        "threads of the job and other programs had its core, which the prediction leaves out",
    )
