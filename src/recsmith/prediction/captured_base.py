"""The step of a captured job as the base of advice: its seconds, and a check that the capture is of that job.

The whole step of a run is predicted part by part (job_step.py). A capture says how far off each part is on the machine
where it was taken. A change of a part is then priced with the same factor.
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

GRADIENTS = "all_reduce"  # the collective that sums the gradients of dense layers
LEAST = 1e-9  # seconds of a part at or below which it counts as not predicted or not captured


@noun
class StepFactors:
    """Captured over predicted seconds of each part of a step, and a sentence on the capture.

    tables: lookups, their updates and the exchanges between ranks for them. gradients: of dense layers, across ranks.
    layers: these layers and their optimizer. rest: reading data, and the trainer's own work. off: difference between
    the captured trace and the measured step, as a share of the step.
    """

    tables: float
    gradients: float
    layers: float
    rest: float
    about: str
    off: float = 0.0

    def corrected(self, step: JobStep) -> JobStep:
        """A predicted step with each part multiplied by its factor."""
        return replace(
            step, embeddings_s=step.embeddings_s * self.tables, gradients_s=step.gradients_s * self.gradients,
            layers_s=step.layers_s * self.layers, optimizer_s=step.optimizer_s * self.layers,
            reading_s=step.reading_s * self.rest, trainer_s=step.trainer_s * self.rest, error=max(step.error, self.off),
        )  # fmt: skip


@noun
class CapturedBase:
    """step_s: seconds of a whole step, measured if the capture has that, else predicted. about: the same in a sentence.

    off: relative difference between the trace's prediction and that step.
    """

    step_s: float
    about: str
    off: float = 0.0


def captured_base(folder: Source, tables: Workload, cluster: Cluster) -> CapturedBase:
    """The captured step of a job with these tables on this number of devices.

    Raises:
        UsageError: the folder is no capture, or one with another number of ranks, other tables or another batch size.
    """
    return base_of(load_capture(folder).graph, tables, cluster)


def base_of(graph: Graph, tables: Workload, cluster: Cluster, batch_option: str = "--batch-size {}") -> CapturedBase:
    """As `captured_base`, from a captured graph. batch_option: the option that sets a batch size, for an error."""
    checked = _checked(graph, tables, cluster, batch_option)
    predicted, measured = predict_graph(graph).step_s, graph.measured_s
    if measured is None:
        return CapturedBase(
            step_s=predicted, about=f"captured: a step is predicted at {format_time(predicted)}{checked}"
        )
    text = f"captured: a step took {format_time(measured)}, and its trace says {format_time(predicted)}"
    off = abs(predicted / measured - 1)
    return CapturedBase(step_s=measured, about=f"{text}, {off:.0%} off{checked}", off=off)


def step_factors(folder: Source, tables: Workload, cluster: Cluster, step: JobStep) -> StepFactors:
    """Captured over predicted seconds of each part of a run's step, from a capture of that run.

    Args:
        folder: the folder of the capture.
        tables: the tables of the run's plan.
        cluster: the cluster of the plan.
        step: the predicted step of the run.

    Raises:
        UsageError: the folder is no capture, or the capture is of another job.
    """
    graph = load_capture(folder).graph
    return factors_of(graph, base_of(graph, tables, cluster, "--set data.batch_size={}"), step)


def factors_of(graph: Graph, base: CapturedBase, step: JobStep) -> StepFactors:
    """As `step_factors`, from a captured graph and the base that was made from it."""
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
        tables=tables, gradients=across, layers=dense, rest=others, about=f"{base.about}; {parts}", off=base.off
    )


def _slowest(graph: Graph, lookups: bool) -> float:
    """Kernel seconds of the slowest rank: of lookups, or of all other kernels."""
    sums = [0.0] * len(graph.ranks)
    for rank, event in graph.kernels():
        if (event.term in LOOKUPS) is lookups:
            sums[rank] += event.work_s or event.seconds
    return max(sums)


def _checked(graph: Graph, tables: Workload, cluster: Cluster, batch_option: str) -> str:
    """A note on what could not be checked of a capture, or ''; UsageError if the capture is of another job."""
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
