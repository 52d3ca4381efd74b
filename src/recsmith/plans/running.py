"""The placements of the plan that a job runs today, read from any of its forms, for the tables of a workload."""

import re
from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.files import Raw, did_you_mean, parse, read_text
from recsmith.plans.check import check_placements
from recsmith.plans.dumped import RunningPlan, RunningTable, is_dump, read_dump, read_report
from recsmith.plans.files import SCHEMA, placed_from_raw
from recsmith.plans.plan import Cache, PlacedTables, Placement, Plan
from recsmith.plans.printed import is_printed, read_printed
from recsmith.sharding import CACHED_KERNELS, KEY_VALUE, TYPE_NAMES, Span, sharding_type
from recsmith.units import counted
from recsmith.workloads import Table, Workload
from recsmith.workloads.torchrec_log import find_report, refuse_log
from recsmith.workloads.torchrec_report import VIRTUAL_KERNELS, warn_of_virtual

_TWIN = re.compile(r"#\d+$")  # suffix by which readers number tables of the same name


def load_placements(source: str, workload: Workload, cluster: Cluster) -> tuple[Placement, ...]:
    """The placements of a running plan for the tables of a workload, sorted by name.

    source: a file ('-' is stdin): a plan of RecSmith, a log with the report of TorchRec's planner, a ShardingPlan
        dumped by `json.dump(plan._serialize(), file)`, or the output of `print(plan)` or `print(plan.plan)`, alone or
        in a log. Tables are matched by name; among tables of one name by module and shape, then by their order.

    Raises:
        CorruptFile: the file has none of the four forms.
        PlanMismatch: another world size, tables that are missing, unknown or of another shape, or a plan that cannot be
            run.
    """
    text = read_text(source)
    running = running_plan(text, source)
    if running is not None:
        return _fitted(running, source, workload, cluster)
    refuse_log(text, source, "schema|plan")
    raw = parse(text, source)
    if is_dump(raw):
        return _fitted(read_dump(raw, source), source, workload, cluster)
    if raw.get("schema") != SCHEMA:
        raise CorruptFile(_unknown_form(raw, source))
    return placements_for(placed_from_raw(raw, source), source, workload, cluster)


def running_plan(text: str, source: str) -> RunningPlan | None:
    """The running plan that a text in one of TorchRec's forms describes; None if the text is in none of them.

    Raises:
        CorruptFile: a cell or a shard cannot be read. PlanMismatch: a sharding that TorchRec does not know.
    """
    report = find_report(text, source)
    if report is not None:
        return read_report(report, source)
    if is_printed(text):
        return read_printed(text, source)
    if text.lstrip()[:1] != "{" or '"plan"' not in text:
        return None
    raw = parse(text, source)
    return read_dump(raw, source) if is_dump(raw) else None


def _unknown_form(raw: Raw, source: str) -> str:
    found = f"has schema '{raw['schema']}'" if "schema" in raw else f"holds {', '.join(list(raw)[:4]) or 'nothing'}"
    return (
        f"'{source}' {found}; a running plan is a file of schema {SCHEMA}, the text that TorchRec's planner logs, a "
        "ShardingPlan dumped by json.dump(plan._serialize(), file), or the output of print(plan) or print(plan.plan)"
    )


def placements_for(
    plan: Plan | PlacedTables, source: str, workload: Workload, cluster: Cluster
) -> tuple[Placement, ...]:
    """The placements of a plan for a workload and a cluster; PlanMismatch if the plan was made for others."""
    own, other = (plan.cluster.local_world_size, plan.cluster.hosts), (cluster.local_world_size, cluster.hosts)
    if own != other:
        raise PlanMismatch(
            f"'{source}' is for {counted(own[1], 'host')} of {counted(own[0], 'device')}, "
            f"the cluster has {other[1]} of {other[0]}; name the cluster that the job runs on"
        )
    tables = {table.name: table for table in plan.workload.tables}
    for table in workload.tables:
        if table.name in tables:
            _check_shape(table, _shape(tables[table.name]), source)
    return _checked(plan.placements, source, workload, cluster)


def _checked(
    placements: Sequence[Placement], source: str, workload: Workload, cluster: Cluster
) -> tuple[Placement, ...]:
    try:
        check_placements(placements, workload, cluster)
    except PlanMismatch as error:
        raise PlanMismatch(f"'{source}': {error}") from None
    return tuple(sorted(placements, key=lambda placement: placement.table))


# --- what TorchRec says -------------------------------------------------------------------------------------------


def _fitted(running: RunningPlan, source: str, workload: Workload, cluster: Cluster) -> tuple[Placement, ...]:
    """The running plan's tables, matched with those of the workload, as placements."""
    if running.world_size not in (None, cluster.world_size):
        raise PlanMismatch(
            f"'{source}' runs on {counted(running.world_size or 0, 'rank')}, "
            f"the cluster has {counted(cluster.world_size, 'device')}; name the cluster that the job runs on, "
            "and of a 2D job the --group-size"
        )
    _check_ranks(running, source, cluster)
    virtual = [entry.table for entry in running.tables if entry.compute_kernel in VIRTUAL_KERNELS]
    planned = [entry for entry in running.tables if entry.compute_kernel not in VIRTUAL_KERNELS]
    if virtual:
        warn_of_virtual(virtual, source, others=len(planned))
    names = _Names(workload)
    placements = [_placement(entry, names.claim(entry, source), source, cluster) for entry in planned]
    return _checked(placements, source, workload, cluster)


def _check_ranks(running: RunningPlan, source: str, cluster: Cluster) -> None:
    """Refuse a plan of a 2D job in which DMPCollection has visibly renumbered the ranks to those of the job."""
    last = max((rank for entry in running.tables for rank in entry.ranks), default=0)
    if cluster.replication is not None and last >= cluster.world_size:
        raise PlanMismatch(
            f"'{source}' names rank {last}, and sharding groups of {cluster.world_size} devices have ranks 0 .. "
            f"{cluster.world_size - 1}: DMPCollection has renamed them to ranks of the job; "
            "dump or print the plan before it is given to DMPCollection"
        )


class _Names:
    """Matches entries of a running plan with tables; each table is claimed once."""

    def __init__(self, workload: Workload) -> None:
        self.claimed: set[str] = set()
        self.called: dict[str, list[Table]] = {}
        for table in workload.tables:
            own = table.name.removeprefix(f"{table.collection}.")
            for name in {own, _TWIN.sub("", own)}:
                self.called.setdefault(name, []).append(table)

    def claim(self, entry: RunningTable, source: str) -> Table:
        """The table of an entry: by name and, if several tables have it, by module and shape."""
        named = self.called.get(entry.table, [])
        left = [table for table in named if table.name not in self.claimed]
        if not left:
            again = f" {len(named) + 1} times; the workload has it {len(named)} times" if named else ""
            unknown = f", which the workload does not have{did_you_mean(entry.table, list(self.called)[:1000])}"
            raise PlanMismatch(f"'{source}' places table '{entry.table}'{again or unknown}")
        found = max(left, key=lambda table: (table.collection == entry.module, entry.shape == _shape(table)))
        self.claimed.add(found.name)
        if entry.shape is not None:
            _check_shape(found, entry.shape, source)
        return found


def _shape(table: Table) -> tuple[int, int]:
    return table.num_embeddings, table.embedding_dim


def _check_shape(table: Table, shape: tuple[int, int], source: str) -> None:
    if shape != _shape(table):
        raise PlanMismatch(
            f"'{source}': table '{table.name}' has {shape[0]} x {shape[1]} weights there and "
            f"{table.num_embeddings} x {table.embedding_dim} in the workload"
        )


def _placement(entry: RunningTable, table: Table, source: str, cluster: Cluster) -> Placement:
    if entry.sharding_type not in TYPE_NAMES:
        hint = did_you_mean(entry.sharding_type, list(TYPE_NAMES))
        raise PlanMismatch(f"'{source}': table '{table.name}' has sharding_type '{entry.sharding_type}'{hint}")
    kind = sharding_type(entry.sharding_type)
    ranks = entry.ranks or tuple(range(cluster.world_size))
    widths = entry.widths
    if not widths and kind.splits_columns:
        pieces = max(1, len(ranks) // kind.coverage(cluster))
        widths = (table.embedding_dim // pieces,) * pieces
    dropped = entry.compute_kernel == KEY_VALUE.name and cluster.device.kind == "cuda"  # TorchRec uses its own share
    cache = None if entry.load_factor is None or dropped else Cache(load_factor=entry.load_factor)
    placement = Placement(
        table=table.name, sharding_type=kind.name, compute_kernel=entry.compute_kernel,
        ranks=ranks if entry.rectangles or kind.span != Span.HOST else _by_hosts(ranks, cluster),
        widths=widths if len(widths) > 1 else (),
        cache=cache if entry.compute_kernel in CACHED_KERNELS else None,
    )  # fmt: skip
    _check_rectangles(entry, placement, table, source, cluster)
    return placement


def _by_hosts(ranks: tuple[int, ...], cluster: Cluster) -> tuple[int, ...]:
    """The ranks of whole hosts, host by host, if a report has sorted the ranks."""
    local = cluster.local_world_size
    hosts = [rank // local for rank in sorted(ranks) if rank % local == 0]
    whole = tuple(rank for host in hosts for rank in range(host * local, (host + 1) * local))
    return whole if sorted(whole) == sorted(ranks) else ranks


def _check_rectangles(entry: RunningTable, placement: Placement, table: Table, source: str, cluster: Cluster) -> None:
    """Refuse shards that the sharding type does not have: TorchRec runs some such shards, and trains garbage."""
    if not entry.rectangles:
        return
    if refusal := placement.kind.refusal(table, cluster):  # this says more than that a shard is unexpected
        raise PlanMismatch(f"'{source}': table '{table.name}' ({placement.sharding_type}): {refusal}")
    widths = placement.widths_of(table.embedding_dim)
    derived = placement.kind.shards(table, placement.ranks, widths, cluster)
    expected = {(shard.rank, shard.rows, shard.columns) for shard in derived}
    odd = next((each for each in entry.rectangles if each not in expected), None)
    if odd is not None:
        raise PlanMismatch(
            f"'{source}': table '{table.name}' ({placement.sharding_type}) has a shard on rank {odd[0]} of rows "
            f"{list(odd[1])} and columns {list(odd[2])}, which its type does not give"
        )
