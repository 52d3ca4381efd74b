"""Predicts the step of a job: a captured one, also under another plan, or one of a described model.

A captured step can calibrate the machine with which a described model is predicted.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsmith._types import Source, record
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs.fetches import disk_fetches
from recsmith.errors import UsageError
from recsmith.planning.simulate import price_plan
from recsmith.plans import Plan, load_plan
from recsmith.prediction.fetching import with_fetches
from recsmith.prediction.formulas import formula_graph
from recsmith.prediction.graph import Graph
from recsmith.prediction.history_memory import memory_notes
from recsmith.prediction.kernels import LOOKUPS, Kernels, geometric_error
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.models import HISTORIES, SPARSE, Model, load_model
from recsmith.prediction.models.build import TYPES, model_graph, with_embeddings
from recsmith.prediction.overheads import Overheads, extract_overheads
from recsmith.prediction.predict import Prediction, no_latency, predict_graph
from recsmith.prediction.repricing import held_tables, reprice
from recsmith.prediction.traces import Captured, load_capture
from recsmith.prediction.what_if import Latency, WhatIf, check_carried, on_cluster
from recsmith.sharding import UVM, UVM_CACHING
from recsmith.units import format_time

LEAST_SHARE = 0.01  # share of the kernels' time below which a kind has no factor of its own


@record
class Calibration:
    """A corrected machine, and its corrections. errors: geometric mean errors of kernels, `before` and `after`."""

    machine: Machine
    factors: dict[str, float]
    before: float
    after: float


def calibrate(machine: Machine, graph: Graph, source: str) -> Calibration:
    """Correct a machine by a captured graph.

    A kind's factor is its measured seconds over its predicted ones, summed over the kernels of the kind, so that its
    total becomes right. Kinds with little or no time in the graph take the factor of all its kernels.
    """
    events = [event for _, event in graph.kernels() if event.kernel is not None]
    kernels = [event.kernel for event in events if event.kernel is not None]
    measured = np.maximum([event.work_s or event.seconds for event in events], 1e-9)
    predicted = machine.kernels.seconds(kernels)
    whole = float(measured.sum() / predicted.sum()) if kernels else 1.0
    factors = dict.fromkeys((*machine.kernels.models, "other"), whole)
    kinds = np.array([kernel.kind for kernel in kernels])
    for kind in sorted(set(kinds.tolist())):
        chosen = kinds == kind
        if measured[chosen].sum() >= LEAST_SHARE * measured.sum():
            factors[kind] = float(measured[chosen].sum() / predicted[chosen].sum())
    old = machine.kernels.factors
    corrected = Kernels(machine.kernels.models, {kind: old.get(kind, 1.0) * each for kind, each in factors.items()})
    heavy = measured >= LEAST_SHARE / 10 * measured.sum()
    made = replace(machine, kernels=corrected, overheads=_merged(machine.overheads, extract_overheads([graph], source)),
                   comm_factors=_comm_factors(machine, graph))  # fmt: skip
    return Calibration(machine=made, factors=factors | made.comm_factors,
                       before=geometric_error(predicted[heavy], measured[heavy]),
                       after=geometric_error(corrected.seconds(kernels)[heavy], measured[heavy]))  # fmt: skip


def _merged(known: Overheads, own: Overheads) -> Overheads:
    """The capture's overheads; for operators that it lacks the machine's, scaled by the ratio of both means."""
    mine, theirs = own.by_key(), known.by_key()
    kept = list(own.overheads)
    for each in known.overheads:
        if (each.term, each.operator) not in mine:
            scale = mine[each.term, ""] / theirs[each.term, ""] if theirs[each.term, ""] > 0 else 1.0
            kept.append(replace(each, mean_s=each.mean_s * scale, spread_s=each.spread_s * scale))
    return Overheads(source=own.source, overheads=tuple(kept))


def _comm_factors(machine: Machine, graph: Graph) -> dict[str, float]:
    """Measured over predicted seconds of collectives by name, for those whose curve the machine has."""
    sums: dict[str, list[float]] = {}
    for made in graph.collectives:
        curve = machine.curve(made.name, len(made.ranks))
        if curve is not None:
            both = sums.setdefault(made.name, [0.0, 0.0])
            both[0] += made.seconds
            both[1] += machine.collective_s(made.name, made.bytes, len(made.ranks))
    factors = dict(machine.comm_factors)
    return factors | {name: factors.get(name, 1.0) * real / max(said, 1e-12) for name, (real, said) in sums.items()}


def predict_model(
    model: Model | Source, *, plan: Plan | Source | None = None, ranks: int = 1, batches: Sequence[int] = (),
    machine: Machine | Source = "cpu", calibrate_by: Source | None = None, cost_model: str | None = None,
    cluster: Cluster | Source | None = None, what_ifs: tuple[WhatIf, ...] = (),
) -> list[tuple[int, Prediction]]:  # fmt: skip
    """(batch size, predicted step) of a described model, for each of the batch sizes per rank, or for its own.

    Args:
        model: a model, or the file that describes it.
        plan: of the model's tables, if it has some; its cluster gives the number of ranks.
        ranks: number of ranks of a model without a plan.
        batches: batch sizes per rank.
        machine: name of a shipped machine, or a file of `recsmith learn kernels`.
        calibrate_by: folder of a captured step that corrects the machine.
        cost_model: prices embedding kernels, instead of the machine.
        cluster: other cluster for which the step is scaled, in proportion to the figures of the plan's own.
        what_ifs: changes of the step before it is predicted.

    Raises:
        UsageError: model and plan do not fit together, or there are no figures for this number of ranks.
    """
    made = model if isinstance(model, Model) else load_model(model)
    known = machine if isinstance(machine, Machine) else load_machine(str(machine))
    loaded = None if plan is None else load_plan(plan)
    if ranks < 1 or any(batch < 1 for batch in batches):
        raise UsageError(f"ranks are {ranks} and batch sizes {list(batches)}; all must be at least 1")
    if cost_model is not None and loaded is None:
        raise UsageError("--cost-model prices the embedding tables of a plan; add --plan, or leave it out")
    if cluster is not None and loaded is None:
        raise UsageError("--cluster carries the step over from its plan's cluster; add --plan, or leave it out")
    other = None if cluster is None else load_cluster(cluster)
    found: list[tuple[int, Prediction]] = []
    corrected = None if calibrate_by is None else calibrate(known, load_capture(calibrate_by).graph, str(calibrate_by))
    for batch in batches or (None,):
        now = _step(
            made,
            corrected.machine if corrected else known,
            loaded,
            ranks,
            batch,
            cost_model,
            other,
            what_ifs,
            corrected,
        )
        size = batch or (loaded.workload.batch_size if loaded else made.batch_size)
        if corrected is not None:
            before = _step(made, known, loaded, ranks, batch, cost_model, other, what_ifs, None)
            now = _with_note(now, before, corrected)
        found.append((size, now))
    return found


def _step(
    model: Model, machine: Machine, plan: Plan | None, ranks: int, batch: int | None, cost_model: str | None,
    cluster: Cluster | None, what_ifs: tuple[WhatIf, ...], corrected: Calibration | None,
) -> Prediction:  # fmt: skip
    if plan is not None and by_formulas(model, machine, plan):
        if cluster is not None:
            check_carried(plan.cluster.world_size, plan.cluster, cluster)
            plan = replace(plan, cluster=cluster, digest="")
        graph, error = formula_graph(model, plan, batch, cost_model)
        return _predicted(graph, no_latency, plan, batch, None, what_ifs, (error, *memory_notes(model, plan, batch)))
    graph = model_graph(model, machine, plan=plan, ranks=ranks, batch=batch)
    if plan is not None and cost_model is not None:
        workload = replace(plan.workload, batch_size=batch or plan.workload.batch_size)
        cost = price_plan(replace(plan, workload=workload, digest=""), cost_model).per_device
        factors = corrected.machine.kernels.factors if corrected else {}
        disks = disk_fetches(plan, batch)
        waits = disks.seconds if disks else (0.0,) * len(cost)  # the graph has them already
        graph = with_embeddings(
            graph, [max(0.0, each.forward_compute_s - wait) * factors.get("embedding_forward", 1.0)
                    for each, wait in zip(cost, waits, strict=True)],
            [each.backward_compute_s * factors.get("embedding_backward", 1.0) for each in cost],
        )  # fmt: skip
    priced = () if cost_model is None else LOOKUPS
    unknown = machine.kernels.unknown(
        [event.kernel for _, event in graph.kernels() if event.kernel and event.kernel.kind not in priced]
    )
    notes = tuple(f"{count} kernels of kind {kind} have no model here; their bytes price them"
                  for kind, count in unknown.items())  # fmt: skip
    return _predicted(graph, machine.latency_of, plan, batch, cluster, what_ifs, notes)


def by_formulas(model: Model, machine: Machine, plan: Plan) -> bool:
    """Whether formulas must predict a model's step under a plan, because no template or no machine covers it.

    Templates cover pooled fp32 tables of one width that are whole or cut by columns, on CPUs or on the GPU of the
    machine.
    """
    on_gpu, tables = plan.cluster.device.kind != "cpu", plan.workload.tables
    flat = any(not table.pooled for table in tables)
    cut = any(each.sharding_type not in TYPES for each in plan.placements)
    return model.kind in SPARSE and ((on_gpu and not machine.on_gpu) or model.kind in HISTORIES or (cut and not flat))


def _predicted(
    graph: Graph, latency: Latency, plan: Plan | None, batch: int | None, cluster: Cluster | None,
    what_ifs: tuple[WhatIf, ...], notes: tuple[str, ...],
) -> Prediction:  # fmt: skip
    """The predicted step of a graph under a plan: scaled to a cluster if one is given, with the reads from disks."""
    if cluster is not None and plan is not None:
        graph, carried = on_cluster(graph, plan.cluster, cluster, latency)
        notes = (*notes, carried)
    graph, fetched = with_fetches(graph, plan, batch)
    return predict_graph(graph, what_ifs, (*notes, *fetched), latency)


def _with_note(now: Prediction, before: Prediction, corrected: Calibration) -> Prediction:
    note = (
        f"calibrated: {before.step_s * 1e3:.4g} ms before, {now.step_s * 1e3:.4g} ms after; its kernels were off by "
        f"{corrected.before:.1%} (geometric mean) and are by {corrected.after:.1%}"
    )
    return replace(now, notes=(*now.notes, note))


HELD_UP = 0.15  # share of the measured step that a prediction may lack before a reason is looked for


def predict_capture(
    folder: Source, *, plan: Plan | Source | None = None, batches: Sequence[int] = (),
    machine: Machine | Source = "cpu", cluster: Cluster | Source | None = None, what_ifs: tuple[WhatIf, ...] = (),
) -> list[tuple[int, Prediction]]:  # fmt: skip
    """(batch size, predicted step) of a captured step, for each of the batch sizes; (0, step) if nothing is changed.

    Args:
        folder: the folder of the capture.
        plan: another plan of the captured tables.
        batches: batch sizes per rank.
        machine: its proportions scale what changes; absolute times are the captured ones.
        cluster: other cluster for which the step is scaled, in proportion to the figures of the plan's own.
        what_ifs: changes of the step before it is predicted.

    Raises:
        UsageError: the plan is of other tables or ranks, or the step's lookups are not of a kind that can be scaled;
            a cluster is given without a plan, or has other ranks than the step.
    """
    captured = load_capture(folder)
    if cluster is not None and plan is None:
        raise UsageError("--cluster carries the step over from its plan's cluster; add --plan, the plan it ran under")
    notes = (*captured.notes, *held_up(captured))
    if plan is None and not batches:
        return [(0, predict_graph(captured.graph, what_ifs, notes))]
    if any(batch < 1 for batch in batches):
        raise UsageError(f"batch sizes are {list(batches)}; all must be at least 1")
    known = machine if isinstance(machine, Machine) else load_machine(str(machine))
    if captured.graph.on_gpu and not known.on_gpu:
        raise UsageError(
            f"the capture is of a GPU, and the machine is a CPU ({known.card.device}), whose proportions are others; "
            "name a GPU's by --machine FILE, which recsmith learn kernels makes of times like samples/h200/kernels.json"
        )
    loaded = None if plan is None else load_plan(plan)
    other = None if cluster is None else load_cluster(cluster)
    _, own = held_tables(captured.graph)
    before = predict_graph(captured.graph).step_s
    note = f"as it was captured, the step of {own:,} samples a rank is predicted at {format_time(before)}"
    if captured.graph.measured_s is not None:
        note += f"; measured without the profiler: {format_time(captured.graph.measured_s)}"
    notes = (*notes, *in_host_memory(loaded, captured.graph.on_gpu))
    graphs = ((batch or own, reprice(captured.graph, known, plan=loaded, batch=batch)) for batch in batches or (None,))
    return [
        (size, _predicted(graph, known.latency_of, loaded, size, other, what_ifs, (*notes, note)))
        for size, graph in graphs
    ]


def in_host_memory(plan: Plan | None, on_gpu: bool) -> tuple[str, ...]:
    """A note that lookups are priced as captured, if a plan puts tables of a GPU's job into host memory."""
    places = [] if plan is None or not on_gpu else plan.placements
    names = sorted({each.compute_kernel for each in places if each.compute_kernel in (UVM.name, UVM_CACHING.name)})
    if not names:
        return ()
    return (
        f"the plan has tables under {' and '.join(names)}, and their lookups are predicted as fast as those that were "
        "captured; where those were in device memory, the step takes longer than is said here: capture one under such "
        "a plan",
    )


def held_up(captured: Captured) -> tuple[str, ...]:
    """Why a step is predicted much too short, if a rank's host thread was kept off its core; () for a GPU's step.

    Such times are in the measured step and not in the predicted one, which counts the thread's own work and its waits
    for collectives.
    """
    slowest = max(captured.abouts, key=lambda about: about.plain_step_s)
    step, measured = predict_graph(captured.graph).step_s, slowest.plain_step_s
    if captured.graph.on_gpu or slowest.plain_host_s is None or measured - step < HELD_UP * measured:
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
