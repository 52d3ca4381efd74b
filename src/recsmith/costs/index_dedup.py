"""What a rank takes to look its equal ids of sequence tables up once: to find them, and to give each id its row again.

It is the same on every rank and under every plan, so it stands beside the step (StepCost.dedup_s) and decides only
whether ids are deduplicated. What that saves, fewer lookups, ids and rows on their way, is in the prices of plans.

On CUDA FBGEMM counts the different ids of a table on one thread block, and tables side by side. Rows are given back by
torch.index_select. Sources: samples/h200-production/sequences.jsonl (H200, fits off by 1 to 40 %, in the median), and
benchmarks/dedup.py costs (a CPU core, adapters/index_dedup.py).
"""

from recsmith.clusters import Cluster
from recsmith.problems.modes import Demand
from recsmith.sharding.memory import OUTPUT_BYTES
from recsmith.workloads import Workload

CPU_FIND_S = 5e-8  # of an id
CPU_GIVE_S, CPU_TAKE_S, CPU_TAKE_ROW_S = 1.2e-9, 1.3e-9, 4e-8  # of a number, forward and backward; of an id, backward
CUDA_CALLS_S, CUDA_FIND_S = 2.6e-4, 9.35e-9  # of all calls; of an id of the table that has most
MEASURED_BANDWIDTH = 4.8e12  # bytes a second of the H200's memory
CUDA_GIVE_S, CUDA_TAKE_S, CUDA_TAKE_ROW_S = 1.2e-12, 1.8e-12, 1.0e-12  # of a byte of all rows; of different ones


def dedup_seconds(workload: Workload, cluster: Cluster) -> float:
    """Seconds of a step beyond those of its plan; 0 where no ids are deduplicated."""
    tables = tuple(table for table in workload.tables if workload.deduplicates(table))
    if not tables:
        return 0.0
    demand = Demand.of(workload, tables)
    ids = demand.ids * demand.repeats
    numbers, different = float((ids * demand.dim).sum()), float((demand.ids * demand.dim).sum())
    total = float(ids.sum())
    if cluster.device.kind == "cpu":
        return total * (CPU_FIND_S + CPU_TAKE_ROW_S) + numbers * (CPU_GIVE_S + CPU_TAKE_S)
    slower = MEASURED_BANDWIDTH / (cluster.device.hbm_bandwidth or MEASURED_BANDWIDTH)
    moved = numbers * (CUDA_GIVE_S + CUDA_TAKE_S) + different * CUDA_TAKE_ROW_S
    return CUDA_CALLS_S + float(ids.max()) * CUDA_FIND_S + slower * OUTPUT_BYTES * moved
