"""Towers in a plan: the tables of each host, if every table is on one host (docs/towers.md)."""

from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans.plan import Placement

# sharding types that can keep a table on one host
ON_A_HOST = ("table_wise", "column_wise", "table_column_wise", "table_row_wise")


def plan_command(hosts: int | None = None) -> str:
    """The command that makes a plan with one tower per host, as part of a sentence. hosts: their number if known."""
    count = "HOSTS" if hosts is None else hosts
    return f"`recsmith plan RUN.yaml --cluster CLUSTER --towers {count} -o plan.json` gives each host one"


def hosts_of(placement: Placement, cluster: Cluster) -> list[int]:
    """The hosts that hold a part of the table."""
    return sorted({rank // cluster.local_world_size for rank in placement.ranks})


def placed_towers(placements: Sequence[Placement], cluster: Cluster) -> tuple[tuple[str, ...], ...]:
    """The tables of each host.

    Raises:
        PlanMismatch: a table is on several hosts, or a host has none.
    """
    towers: list[list[str]] = [[] for _ in range(cluster.hosts)]
    for placement in placements:
        hosts = hosts_of(placement, cluster)
        if len(hosts) > 1:
            raise PlanMismatch(
                f"the plan has table '{placement.table}' on {len(hosts)} hosts, and a tower is the tables of one; "
                f"{plan_command(cluster.hosts)}"
            )
        towers[hosts[0]].append(placement.table)
    lacking = next((host for host, tower in enumerate(towers) if not tower), None)
    if lacking is not None:
        raise PlanMismatch(
            f"the plan has no table on host {lacking}, whose tower would be empty; {plan_command(cluster.hosts)}"
        )
    return tuple(map(tuple, towers))


def check_ratio(ratio: int, columns: dict[str, int], where: str) -> None:
    """Raise UsageError if a ratio does not divide a table's columns. columns: by table. where: message prefix."""
    for name, wide in columns.items():
        if wide % ratio:
            why = "leaves no column" if wide < ratio else "does not divide its columns"
            raise UsageError(
                f"{where}: table '{name}' has {wide} columns, and ratio {ratio} {why}; give a ratio that divides "
                f"{wide}, or tables of more columns"
            )


def check_towers(towers: Sequence[Sequence[str]], placements: Sequence[Placement], cluster: Cluster) -> None:
    """Raise PlanMismatch if the towers that a plan names are not the tables of its hosts; a plan may name none."""
    if not towers:
        return
    placed = placed_towers(placements, cluster)
    for host, (named, there) in enumerate(zip(towers, placed, strict=False)):
        odd = min(set(named) ^ set(there), default=None)
        if odd is not None:
            where = "is placed elsewhere" if odd in named else "is placed there too"
            raise PlanMismatch(f"tower {host} is the tables of host {host}, and '{odd}' {where}; plan again")
    if len(towers) != len(placed):
        raise PlanMismatch(f"the plan names {len(towers)} towers for {len(placed)} hosts; each has one: plan again")
