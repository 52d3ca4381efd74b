"""The step of a captured job as the base of advice on its tables: what it took, and whether it is of that job."""

from recsmith._types import Source, noun
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.prediction.graph import Graph
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.repricing import CLOSE, held_tables
from recsmith.prediction.traces import load_capture
from recsmith.units import format_time
from recsmith.workloads import Workload


@noun
class CapturedBase:
    """step_s: seconds of a whole step, measured where the capture says so, else predicted. told: in a sentence."""

    step_s: float
    told: str


def captured_base(folder: Source, tables: Workload, cluster: Cluster) -> CapturedBase:
    """The step of a capture of a job with these tables on as many devices.

    Raises:
        UsageError: it is no capture, or one of another number of ranks, of other tables or of another batch.
    """
    return base_of(load_capture(folder).graph, tables, cluster)


def base_of(graph: Graph, tables: Workload, cluster: Cluster) -> CapturedBase:
    """The same for a captured graph."""
    checked = _checked(graph, tables, cluster)
    predicted, measured = predict_graph(graph).step_s, graph.measured_s
    if measured is None:
        return CapturedBase(
            step_s=predicted, told=f"captured: a step is predicted at {format_time(predicted)}{checked}"
        )
    told = f"captured: a step took {format_time(measured)}, and its trace says {format_time(predicted)}"
    return CapturedBase(step_s=measured, told=f"{told}, {abs(predicted / measured - 1):.0%} off{checked}")


def _checked(graph: Graph, tables: Workload, cluster: Cluster) -> str:
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
            f"the capture is of {batch:,} samples a rank, and the tables of {tables.batch_size:,}; give --batch-size "
            f"{batch}, or capture a step of that batch"
        )
    return ""
