"""Whether this machine can train a plan, and what of the plan it trains."""

from dataclasses import replace
from pathlib import Path

from recsmith._process import proc_bytes
from recsmith.errors import UsageError
from recsmith.plans import Placement, Plan
from recsmith.sharding import HOST_KERNELS
from recsmith.units import format_size
from recsmith.workloads import Table
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

MOST_RANKS = 16  # processes of one machine; trade-off: more could run, but share its cores
RANK_BYTES = 450 << 20  # resident in a rank before it has tables: torch, FBGEMM, TorchRec
DATA_TYPES = ("fp32", "fp16")  # that FBGEMM trains on CPU


def runnable(plan: Plan, batch_size: int | None) -> Plan:
    """The plan as the local job trains it: one batch size, one bag per sample and feature, no pipeline."""
    workload = plan.workload
    workload = replace(
        workload,
        batch_size=batch_size or workload.batch_size,
        pipeline="none",
        tables=tuple(_one_bag(table) for table in workload.tables),
    )
    return replace(plan, workload=workload)


def _one_bag(table: Table) -> Table:
    features = tuple(
        replace(f, pooling_factor=f.pooling_factor * f.num_poolings, num_poolings=1.0, batch_size=None)
        for f in table.features
    )
    return replace(table, features=features)


def check_plan(plan: Plan) -> None:
    """UsageError where the plan's ranks, optimizer, data types or kernels cannot be trained here."""
    world = plan.cluster.job_world_size
    if world > MOST_RANKS:
        raise UsageError(
            f"the plan has {world} ranks; this machine runs at most {MOST_RANKS}: plan for a smaller cluster, such as "
            f"{plan.cluster.device.name}:{min(MOST_RANKS, plan.cluster.local_world_size)}"
        )
    if plan.workload.optimizer not in CPU_OPTIMIZERS:
        trained = ", ".join(CPU_OPTIMIZERS)
        raise UsageError(f"the plan's optimizer is {plan.workload.optimizer}; verify trains {trained}")
    tables = {table.name: table for table in plan.workload.tables}
    for placement in plan.placements:
        _check_placement(tables[placement.table], placement)
    if not Path("/proc/self/clear_refs").exists():
        raise UsageError("verify reads peak memory from /proc/self, which this system does not have; run it on Linux")


def _check_placement(table: Table, placement: Placement) -> None:
    where = f"table '{table.name}'"
    if table.data_type not in DATA_TYPES:
        raise UsageError(f"{where} is {table.data_type}; FBGEMM trains {', '.join(DATA_TYPES)} on CPU: plan with those")
    if placement.compute_kernel in HOST_KERNELS:
        raise UsageError(f"{where} uses {placement.compute_kernel}, which needs a GPU; plan with --kernels fused,dense")
    if placement.sharding_type == "data_parallel" and not table.pooled:
        raise UsageError(
            f"{where} is a data_parallel sequence, which FBGEMM pools on CPU; plan without data_parallel (--types)"
        )


def check_memory(predicted: list[int]) -> None:
    """UsageError where ranks that need so many bytes each for embeddings do not fit into this machine's memory."""
    needed = sum(predicted) + RANK_BYTES * len(predicted)
    free = proc_bytes("meminfo", "MemAvailable")
    if needed > free:
        raise UsageError(
            f"the plan's {len(predicted)} ranks need {format_size(needed)} on this machine, which has "
            f"{format_size(free)} available; lower --batch-size, or verify a plan of smaller tables"
        )
