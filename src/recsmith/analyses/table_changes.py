"""The changes that `recsmith advise` offers for tables on a cluster, each as an edit of tables and cluster."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from recsmith.analyses.advice import Switch
from recsmith.analyses.aims import STEP, Aim
from recsmith.analyses.sweep import grid_of
from recsmith.clusters import Cluster, load_cluster, sharding_group
from recsmith.errors import UsageError
from recsmith.workloads import Workload
from recsmith.workloads.optimizers import OptimizerName

Edit = Callable[[Workload, Cluster], tuple[Workload, Cluster]]
ROW_WISE: dict[str, OptimizerName] = {"adagrad": "rowwise_adagrad", "adam": "partial_rowwise_adam"}
NEW_PLAN = "a new plan"
QUARTERS = (1, 2, 3, 8)  # quarters of the present number of devices that are tried in its place


@dataclass(frozen=True)
class TableSwitch:
    """A switch and its change. edit: changes tables and cluster. planned: whether placements are planned again."""

    switch: Switch
    edit: Edit
    planned: bool = False


@dataclass(frozen=True)
class JobNames:
    """The user's names for the tables and the cluster, for command lines in the advice."""

    tables: str = "TABLES"
    cluster: str = "CLUSTER"


def switches_of(
    tables: Workload, cluster: Cluster, *, running: bool = False, aim: Aim = STEP, too_long: bool = False,
    named: JobNames = JobNames(),
) -> list[TableSwitch]:  # fmt: skip
    """The switches for tables on a cluster that are not on already.

    Args:
        tables: the tables and batch size of the job.
        cluster: its cluster.
        running: whether a plan is running, so that a new plan is offered.
        aim: the objective; other devices are offered if devices or money count.
        too_long: whether a step is over its limit, so that a smaller batch and more devices are offered.
        named: the user's names for tables and cluster.
    """
    whole = cluster.replication is None and not isinstance(cluster.hbm_bytes, tuple)
    found = [*([_new_plan(aim, named)] if running else []), *_other_tables(tables, cluster)]
    if whole and cluster.hosts > 1:
        parts = (2,) if aim == STEP else (2, 4)
        found += [_groups(cluster.world_size // each) for each in parts if cluster.hosts % each == 0]
    found.append(_batch("twice the batch", 2, 1, tables))
    if (aim.objective == "memory" or too_long) and not tables.batch_size % 2:
        found.append(_batch("half the batch", 1, 2, tables))
    if whole and (aim.objective == "devices" or aim.prices):
        found += [*_other_devices(tables, cluster), *_other_kinds(cluster, aim)]
    elif whole and too_long:
        found += _other_devices(tables, cluster, QUARTERS[-1:])
    return found


def _new_plan(aim: Aim, named: JobNames) -> TableSwitch:
    """A new plan for the job as it is."""
    memory = " --hbm SIZE" if aim.objective == "memory" else ""
    made = Switch(
        name=NEW_PLAN,
        change=f"recsmith plan {named.tables} --cluster {named.cluster}{memory} -o plan.json",
        quality="exact", page="how-it-works.md", edits={"plan": "new"},
    )  # fmt: skip
    return TableSwitch(made, lambda work, where: (work, where), planned=True)


def _other_tables(tables: Workload, cluster: Cluster) -> Iterator[TableSwitch]:
    """Switches of the tables' messages, lookups, data types and optimizer."""
    if cluster.world_size > 1 and tables.bytes_per_value == (None, None):
        made = Switch(
            name="fp16 and bf16 between devices",
            change="QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16) in TorchRec; in a "
            "file of tables comm_dtype: fp16 and backward_comm_dtype: bf16; in a run comms: {forward: fp16, "
            "backward: bf16}",
            quality="not measured", page="files.md", edits={"comm_dtype": "fp16", "backward_comm_dtype": "bf16"},
        )  # fmt: skip
        yield TableSwitch(made, _short_messages)
    if tables.index_dedup == "off" and not all(table.pooled for table in tables.tables):
        made = Switch(
            name="equal ids once", edits={"index_dedup": "on"},
            change="use_index_dedup=True of TorchRec's EmbeddingCollectionSharder; in a file of tables index_dedup: on",
            quality="exact but for the order in which gradients of a row are summed", page="files.md",
        )  # fmt: skip
        yield TableSwitch(made, lambda work, where: (replace(work, index_dedup="on"), where))
    if any(table.data_type == "fp32" for table in tables.tables):
        made = Switch(
            name="tables in fp16", edits={"tables.data_type": "fp16"},
            change="data_type=DataType.FP16 of every table's config in TorchRec; in a file of tables data_type: fp16",
            quality="fp16 was not measured; weights of bf16 alone lose up to 2.4 points of AUC at small learning rates",
            page="precision.md",
        )  # fmt: skip
        yield TableSwitch(made, _half_tables)
    if other := ROW_WISE.get(tables.optimizer):
        made = Switch(
            name=f"optimizer {other}", change=f"optimizer: {other}", quality="not measured", page="memory.md",
            edits={"optimizer": other},
        )  # fmt: skip
        yield TableSwitch(made, _with_optimizer(other))


def _batch(name: str, times: int, over: int, tables: Workload) -> TableSwitch:
    made = Switch(
        name=name, change=f"batch_size: {tables.batch_size * times // over}", of="the batch",
        edits={"batch_size": tables.batch_size * times // over},
        quality="not measured; learning rates have to follow, and an epoch has "
        f"{'half' if times > 1 else 'twice'} as many steps", page="sweep.md",
    )  # fmt: skip
    return TableSwitch(made, lambda work, where: (work.with_batch_size(work.batch_size * times // over), where))


def _other_devices(tables: Workload, cluster: Cluster, quarters: tuple[int, ...] = QUARTERS) -> Iterator[TableSwitch]:
    """Switches to fewer or more devices at the same global batch, in whole hosts or parts of one."""
    whole = tables.batch_size * cluster.world_size
    counts = [cluster.world_size * each // 4 for each in quarters if not cluster.world_size * each % 4]
    local = cluster.local_world_size
    for count in (each for each in counts if not whole % each and (each < local or not each % local)):
        (point,) = grid_of([cluster], [count], "global_batch_size", [whole])
        on = f"{point.cluster.device.name}:{min(count, local)}"
        on += f"x{point.cluster.hosts}" if point.cluster.hosts > 1 else ""
        made = Switch(
            name=f"{count} devices in place of {cluster.world_size}", of="devices",
            change=f"--cluster {on} --batch-size {point.batch_size}",
            edits={"cluster": on, "batch_size": point.batch_size},
            quality="exact but for the order of sums: a step is of the same samples", page="sweep.md",
        )  # fmt: skip
        yield TableSwitch(made, _with_devices(point.cluster))


def _with_devices(other: Cluster) -> Edit:
    """An edit to the other cluster's number of devices, of the present kind, at the same global batch."""

    def edit(work: Workload, where: Cluster) -> tuple[Workload, Cluster]:
        samples = work.batch_size * where.world_size
        if where.replication is not None or samples % other.world_size:
            raise UsageError(f"{samples} samples of a step are not dealt to {other.world_size} devices alike")
        return (
            work.with_batch_size(samples // other.world_size),
            replace(where, hosts=other.hosts, local_world_size=other.local_world_size),
        )

    return edit


def _other_kinds(cluster: Cluster, aim: Aim) -> Iterator[TableSwitch]:
    """Switches to equally many devices of each other kind that has a price."""
    for name in aim.prices or ():
        if name == cluster.device.name:
            continue
        shape = f"{cluster.local_world_size}x{cluster.hosts}" if cluster.hosts > 1 else f"{cluster.local_world_size}"
        other = load_cluster(f"{name}:{shape}")
        made = Switch(
            name=f"{name} in place of {cluster.device.name}", of="the kind of devices",
            change=f"--cluster {name}:{shape}", edits={"cluster": f"{name}:{shape}"},
            quality="exact but for the order of sums", page="sweep.md",
        )  # fmt: skip
        yield TableSwitch(made, _with_kind(other))


def _with_kind(other: Cluster) -> Edit:
    """An edit to equally many devices of another kind."""

    def edit(work: Workload, where: Cluster) -> tuple[Workload, Cluster]:
        if where.replication is not None:
            raise UsageError("sharding groups are made of the devices that there are; change their kind first")
        return work, replace(other, hosts=where.hosts, local_world_size=where.local_world_size)

    return edit


def _with_optimizer(name: OptimizerName) -> Edit:
    return lambda work, where: (replace(work, optimizer=name), where)


def _short_messages(work: Workload, where: Cluster) -> tuple[Workload, Cluster]:
    return replace(work, comm_dtype="fp16", backward_comm_dtype="bf16"), where


def _half_tables(work: Workload, where: Cluster) -> tuple[Workload, Cluster]:
    halves = tuple(replace(each, data_type="fp16") if each.data_type == "fp32" else each for each in work.tables)
    return replace(work, tables=halves), where


def _groups(size: int) -> TableSwitch:
    made = Switch(
        name=f"2D groups of {size} devices", of="sharding groups",
        change=f"--group-size {size} of `recsmith plan`, and sharding_group_size={size} of TorchRec's DMPCollection",
        edits={"group_size": size},
        quality="exact where groups synchronise after every step", page="how-it-works.md",
    )  # fmt: skip
    return TableSwitch(made, lambda work, where: (work, sharding_group(where, size)), planned=True)
