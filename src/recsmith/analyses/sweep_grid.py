"""Which clusters and batches a sweep visits: all are checked before the first is planned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from recsmith.analyses.scaling import Fixed
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.files import Source


@dataclass(frozen=True)
class Spot:
    """What one point plans for. per_host: devices of a full host; batch_size: local.

    cluster: the whole job's. group_size: devices of a sharding group, None for a job of one group.
    """

    per_host: int
    cluster: Cluster
    batch_size: int
    group_size: int | None = None


def grid_of(
    sources: Sequence[Cluster | Source],
    devices: Sequence[int],
    fixed: Fixed,
    sizes: Sequence[int],
    group_sizes: Sequence[int] | None = None,
) -> list[Spot]:
    """Every cluster at every batch, group size and number of devices, in this order; all grow, duplicates are gone.

    Raises:
        UsageError: a list is empty, a name unknown, a count below 1, or no whole number of hosts, or a global batch
            that it does not divide.
    """
    templates = _templates(sources)
    counts = _counts(devices, "number of devices")
    clusters = [[_resized(template, count) for count in counts] for template in templates]
    batches = _counts(sizes, "batch size" if fixed == "batch_size" else "global batch")
    if fixed == "global_batch_size":
        for batch in batches:
            _check_divides(batch, counts)
    groups = [None] if group_sizes is None else _counts(group_sizes, "group size")
    return [
        Spot(template.local_world_size, cluster, batch if fixed == "batch_size" else batch // cluster.world_size, group)
        for template, row in zip(templates, clusters, strict=True)
        for batch in batches
        for group in groups
        for cluster in row
    ]


def _counts(values: Sequence[int], what: str) -> list[int]:
    """Whole numbers in order, once each."""
    wrong = next((each for each in cast(Sequence[object], values) if not isinstance(each, int) or each < 1), None)
    if wrong is not None:
        raise UsageError(f"{what} {wrong!r} cannot be; give whole numbers of at least 1")
    if not values:
        raise UsageError(f"a sweep needs at least one {what}; give one or more")
    return sorted(set(values))


def _templates(sources: Sequence[Cluster | Source]) -> list[Cluster]:
    """The hosts that clusters are made of, once each; name and number of devices tell them apart."""
    templates = list(dict.fromkeys(_host_of(load_cluster(source)) for source in sources))
    if not templates:
        raise UsageError("a sweep needs at least one device; name for example h100")
    names = [(each.device.name, each.local_world_size) for each in templates]
    twin = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twin:
        raise UsageError(f"two clusters of the sweep are called '{twin[0]}'; give their devices names of their own")
    return templates


def _host_of(cluster: Cluster) -> Cluster:
    """One host of a cluster whose devices are alike."""
    if cluster.replication is not None:
        raise UsageError(
            f"the cluster of '{cluster.device.name}' is a sharding group of a 2D job; give a sweep the job's hosts, "
            "and the group sizes (--group-size)"
        )
    if isinstance(cluster.hbm_bytes, tuple):
        raise UsageError(
            f"the cluster of '{cluster.device.name}' lists the memory of each rank, which other numbers of devices "
            "cannot keep; give one figure for all (--hbm)"
        )
    return replace(cluster, hosts=1)


def _resized(host: Cluster, count: int) -> Cluster:
    """The cluster of so many devices: a part of one host, or whole hosts."""
    local = host.local_world_size
    if count <= local:
        return replace(host, local_world_size=count)
    if count % local:
        less, common = count - count % local, math.gcd(count, local)
        other = f", or for hosts of {common} (--per-host)" if common > 1 else ""
        raise UsageError(
            f"{count} devices are not whole hosts of {local} '{host.device.name}'; "
            f"ask for {less} or {less + local} devices{other}"
        )
    return replace(host, hosts=count // local)


def _check_divides(batch: int, counts: Sequence[int]) -> None:
    odd = next((count for count in counts if batch % count), None)
    if odd:
        whole = math.lcm(*counts)
        less = batch - batch % whole
        near = f"{less} or {less + whole}" if less else f"{whole}"
        raise UsageError(
            f"a global batch of {batch} samples is no multiple of {odd} devices; a batch of {near} suits all counts"
        )
