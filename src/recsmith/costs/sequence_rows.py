"""Seconds of a rank for the rows of sequence tables, in addition to the kernels and links of a plan.

They are equal on every rank and under every plan, so they are kept separate from the step (StepCost.sequences_s), and
only decide whether ids are deduplicated: a rank then finds its equal ids, and copies rows back to each id. On CPU they
include the time that TorchRec and gloo take to send a row and its gradient, which links stated in bytes per second
leave out.

On CUDA FBGEMM counts the different ids of a table on one thread block, and of several tables in parallel. Rows are
copied back by torch.index_select. Sources: samples/h200-production/sequences.jsonl (H200, fits off by 1 to 40 %, in the
median); on CPU, jobs of two ranks with 98 % repeated ids and 16 and 128 columns (benchmarks/dedup.py), over the
machine's factor.
"""

from recsmith.clusters import Cluster
from recsmith.problems.modes import Demand
from recsmith.sharding.memory import OUTPUT_BYTES
from recsmith.workloads import Workload

CPU_SEND_S = 7.5e-9  # per number of a row, and of its gradient, sent between ranks
CPU_FIND_S, CPU_GIVE_S = 8.4e-8, 2.4e-9  # per id of the batch, and per number of its row, both directions
CUDA_CALLS_S, CUDA_FIND_S = 2.6e-4, 9.35e-9  # seconds for all calls; per id of the table with most ids
MEASURED_BANDWIDTH = 4.8e12  # bytes per second of the H200's memory
CUDA_GIVE_S, CUDA_TAKE_ROW_S = 3.0e-12, 1.0e-12  # per byte of all rows, both directions; of different rows


def sequence_seconds(workload: Workload, cluster: Cluster) -> float:
    """Seconds of a step in addition to its plan; 0 without sequence tables, and on GPUs without deduplication."""
    tables = tuple(table for table in workload.tables if not table.pooled)
    on_cpu, once = cluster.device.kind == "cpu", workload.index_dedup == "on"
    if not tables or not (on_cpu or once):
        return 0.0
    demand = Demand.of(workload, tables)
    ids, sent = demand.ids * demand.repeats, float((demand.ids * demand.dim).sum())
    numbers = float((ids * demand.dim).sum())
    if on_cpu:
        given = float(ids.sum()) * CPU_FIND_S + numbers * CPU_GIVE_S if once else 0.0
        linked = 2 * OUTPUT_BYTES / cluster.links.intra_host_bandwidth  # part that plans are priced with
        return given + (sent * max(0.0, CPU_SEND_S - linked) if cluster.world_size > 1 else 0.0)
    slower = MEASURED_BANDWIDTH / cluster.device.hbm_bandwidth
    moved = numbers * CUDA_GIVE_S + sent * CUDA_TAKE_ROW_S
    return CUDA_CALLS_S + float(ids.max()) * CUDA_FIND_S + slower * OUTPUT_BYTES * moved
