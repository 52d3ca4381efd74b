"""The step of a captured job as the base of advice: what it took, and whether it is of that job.

Of a run the whole step is predicted, part by part (job_step.py); a capture says how far each part is off on the machine
that it was taken on, and what changes a part is then priced by as much more or less.
"""

from dataclasses import replace

from recsmith._types import Source, noun
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.prediction.graph import Graph
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.kernels import LOOKUPS
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.repricing import CLOSE, held_tables
from recsmith.prediction.traces import load_capture
from recsmith.units import format_time
from recsmith.workloads import Workload

GRADIENTS = "all_reduce"  # the collective that sums those of dense layers
LEAST = 1e-9  # seconds of a part, where nothing of it was predicted or captured


@noun
class StepFactors:
    """Captured over predicted seconds of the parts of a step, and what a capture says in a sentence.

    tables: lookups, their updates and what crosses ranks for them. gradients: of dense layers, across ranks. layers:
    these layers and their optimizer. rest: reading, and what the trainer itself takes. off: how far the captured
    trace is from what the step took, as a share of that.
    """

    tables: float
    gradients: float
    layers: float
    rest: float
    told: str
    off: float = 0.0

    def corrected(self, step: JobStep) -> JobStep:
        """A predicted step, each part by its factor."""
        return replace(
            step, embeddings_s=step.embeddings_s * self.tables, gradients_s=step.gradients_s * self.gradients,
            layers_s=step.layers_s * self.layers, optimizer_s=step.optimizer_s * self.layers,
            reading_s=step.reading_s * self.rest, trainer_s=step.trainer_s * self.rest, error=max(step.error, self.off),
        )  # fmt: skip


@noun
class CapturedBase:
    """step_s: seconds of a whole step, measured where the capture says so, else predicted. told: in a sentence.

    off: how far the trace is from that, as a share of it.
    """

    step_s: float
    told: str
    off: float = 0.0


def captured_base(folder: Source, tables: Workload, cluster: Cluster) -> CapturedBase:
    """The step of a capture of a job with these tables on as many devices.

    Raises:
        UsageError: it is no capture, or one of another number of ranks, of other tables or of another batch.
    """
    return base_of(load_capture(folder).graph, tables, cluster)


def base_of(graph: Graph, tables: Workload, cluster: Cluster, batch_option: str = "--batch-size {}") -> CapturedBase:
    """The same for a captured graph. batch_option: with which a batch is given, for the error of another one."""
    checked = _checked(graph, tables, cluster, batch_option)
    predicted, measured = predict_graph(graph).step_s, graph.measured_s
    if measured is None:
        return CapturedBase(
            step_s=predicted, told=f"captured: a step is predicted at {format_time(predicted)}{checked}"
        )
    told = f"captured: a step took {format_time(measured)}, and its trace says {format_time(predicted)}"
    off = abs(predicted / measured - 1)
    return CapturedBase(step_s=measured, told=f"{told}, {off:.0%} off{checked}", off=off)


def step_factors(folder: Source, tables: Workload, cluster: Cluster, step: JobStep) -> StepFactors:
    """How far the predicted step of a run is off, part by part, by a capture of that run.

    Args:
        folder: of the capture.
        tables: of the run's plan.
        cluster: of it.
        step: as it is predicted.

    Raises:
        UsageError: it is no capture, or one of another job.
    """
    graph = load_capture(folder).graph
    return factors_of(graph, base_of(graph, tables, cluster, "--set data.batch_size={}"), step)


def factors_of(graph: Graph, base: CapturedBase, step: JobStep) -> StepFactors:
    """The same for a captured graph, and what it says of a step."""
    exchanged, gradients = (
        sum(each.seconds for each in graph.collectives if (each.name == GRADIENTS) is of_layers)
        for of_layers in (False, True)
    )
    lookups, layers = _slowest(graph, True), _slowest(graph, False)
    rest = max(base.step_s - lookups - exchanged - gradients - layers, 0.0)
    made = [
        ("tables", lookups + exchanged, step.embeddings_s),
        ("gradients", gradients, step.gradients_s),
        ("dense layers", layers, step.layers_s + step.optimizer_s),
        ("the rest", rest, step.reading_s + step.trainer_s),
    ]
    found = [captured / predicted if predicted > LEAST else 1.0 for _, captured, predicted in made]
    parts = ", ".join(
        f"{name} {format_time(captured)} ({format_time(predicted)} predicted)"
        for name, captured, predicted in made
        if captured > LEAST
    )
    tables, across, dense, others = found
    return StepFactors(
        tables=tables, gradients=across, layers=dense, rest=others, told=f"{base.told}; {parts}", off=base.off
    )


def _slowest(graph: Graph, lookups: bool) -> float:
    """Seconds of the kernels of the rank that has most of them: of lookups, or of all others."""
    sums = [0.0] * len(graph.ranks)
    for rank, event in graph.kernels():
        if (event.term in LOOKUPS) is lookups:
            sums[rank] += event.work_s or event.seconds
    return max(sums)


def _checked(graph: Graph, tables: Workload, cluster: Cluster, batch_option: str) -> str:
    """What could not be checked of a capture, '' where all was; UsageError where it is of another job."""
    if len(graph.ranks) != cluster.world_size:
        raise UsageError(
            f"the capture is of {len(graph.ranks)} ranks, and the job is advised on for {cluster.world_size}; "
            "capture that job, or leave the capture out"
        )
    try:
        held, batch = held_tables(graph)
    except UsageError:
        return "; whether its tables are these was not checked, for its lookups do not tell"
    have, need = sum(each.elements for each in held), sum(t.num_embeddings * t.embedding_dim for t in tables.tables)
    if abs(have - need) > CLOSE * have:
        raise UsageError(
            f"the capture is of another model: its tables have {have:,.0f} elements, and these {need:,.0f}; capture a "
            "step of this job"
        )
    if batch != tables.batch_size:
        raise UsageError(
            f"the capture is of {batch:,} samples a rank, and the tables of {tables.batch_size:,}; give "
            f"{batch_option.format(batch)}, or capture a step of that batch"
        )
    return ""
