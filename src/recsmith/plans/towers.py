"""Towers in a plan: the tables of each host, where every table stays on one (docs/towers.md)."""

from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans.plan import Placement

ON_A_HOST = ("table_wise", "column_wise", "table_column_wise", "table_row_wise")  # types that can stay on one host


def plan_command(hosts: int | None = None) -> str:
    """What makes a plan with a tower on each host, as a sentence says it. hosts: as far as they are known."""
    count = "HOSTS" if hosts is None else hosts
    return f"`recsmith plan RUN.yaml --cluster CLUSTER --towers {count} -o plan.json` gives each host one"


def hosts_of(placement: Placement, cluster: Cluster) -> list[int]:
    """The hosts on which a table is."""
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
    """UsageError where a ratio does not divide the columns of a table. columns: by table. where: it is named."""
    for name, wide in columns.items():
        if wide % ratio:
            why = "leaves no column" if wide < ratio else "does not divide its columns"
            raise UsageError(
                f"{where}: table '{name}' has {wide} columns, and ratio {ratio} {why}; give a ratio that divides "
                f"{wide}, or tables of more columns"
            )


def check_towers(towers: Sequence[Sequence[str]], placements: Sequence[Placement], cluster: Cluster) -> None:
    """PlanMismatch where the towers that a plan names are not the tables of its hosts; a plan may name none."""
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
