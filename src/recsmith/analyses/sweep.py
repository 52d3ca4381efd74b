"""Plans for every number of devices, device type and batch size, and finds where more devices no longer pay.

All clusters and batches are checked before the first one is planned. Each point of the grid is one `plan`, made from
scratch; limits apply to each point separately. A point without a plan holds an error and does not stop the sweep.
"""

import math
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from threading import current_thread, main_thread
from time import perf_counter
from typing import Unpack, cast

from recsmith.analyses.fewest_nodes import HOSTS, fewest_of, turns
from recsmith.analyses.scaling import Fewest, Fixed, Point, PointOutcome, Sweep, with_knees
from recsmith.clusters import Cluster, load_cluster, sharding_group
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.collectives import synchronisation_of
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.files import Source
from recsmith.planners import Planner
from recsmith.planning import SearchArguments, SearchOptions, plan_with
from recsmith.planning.registry import find_planner
from recsmith.planning.result import Result
from recsmith.problems import Constraints, Space, load_constraints
from recsmith.workloads import Workload, load_workload

OnPoint = Callable[[Point], bool | None]
MILLION = 1_000_000  # samples, the unit of device seconds in reports
OUT_OF_MEMORY = "the search ran out of memory; allow fewer types (--types), or --widths torchrec"


@dataclass(frozen=True)
class GridPoint:
    """The input of one point. per_host: devices of a full host. batch_size: samples per device and step.

    cluster: the cluster of the whole job. group_size: devices of a sharding group; None for a job of one group.
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
) -> list[GridPoint]:
    """Every combination of cluster, batch, group size and number of devices, in this order, ascending, each once.

    Raises:
        UsageError: a list is empty, a name is unknown, or a count is below 1, no whole number of hosts, or no divisor
            of a global batch.
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
        GridPoint(
            template.local_world_size, cluster, batch if fixed == "batch_size" else batch // cluster.world_size, group
        )
        for template, row in zip(templates, clusters, strict=True)
        for batch in batches
        for group in groups
        for cluster in row
    ]


def whole_hosts(sources: Sequence[Cluster | Source], fixed: Fixed, sizes: Sequence[int]) -> list[int]:
    """The numbers of devices in 1 to 64 whole hosts; only those that divide the global batches, if these are fixed.

    Raises:
        UsageError: hosts have different numbers of devices, or no count divides the batches.
    """
    per_host = sorted({each.local_world_size for each in _templates(sources)})
    if len(per_host) > 1:
        raise UsageError(f"hosts have {' and '.join(map(str, per_host))} devices; say which counts to try (--devices)")
    counts = [hosts * per_host[0] for hosts in range(1, HOSTS + 1)]
    sizes = _counts(sizes, "batch size" if fixed == "batch_size" else "global batch")
    found = [each for each in counts if fixed == "batch_size" or not any(size % each for size in sizes)]
    for size in () if found else sizes:
        _check_divides(size, counts[:1])
    return found


def _counts(values: Sequence[int], what: str) -> list[int]:
    """The sorted distinct values; UsageError unless there are some, all whole and at least 1."""
    wrong = next((each for each in cast(Sequence[object], values) if not isinstance(each, int) or each < 1), None)
    if wrong is not None:
        raise UsageError(f"{what} {wrong!r} cannot be; give whole numbers of at least 1")
    if not values:
        raise UsageError(f"a sweep needs at least one {what}; give one or more")
    return sorted(set(values))


def _templates(sources: Sequence[Cluster | Source]) -> list[Cluster]:
    """One host of each cluster, without duplicates; UsageError if two differ but have equal name and device count."""
    templates = list(dict.fromkeys(_host_of(load_cluster(source)) for source in sources))
    if not templates:
        raise UsageError("a sweep needs at least one device; name for example h100")
    names = [(each.device.name, each.local_world_size) for each in templates]
    twin = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twin:
        raise UsageError(f"two clusters of the sweep are called '{twin[0]}'; give their devices names of their own")
    return templates


def _host_of(cluster: Cluster) -> Cluster:
    """One host of a cluster; UsageError if its devices differ in memory or it is a group of a 2D job."""
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
    """A cluster of `count` devices: a part of one host, or whole hosts."""
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


def sweep(
    workload: Workload | Source,
    *,
    devices: Sequence[int] | None = None,
    device: Cluster | Source | Sequence[Cluster | Source],
    fewest_under_s: float | None = None,
    batch_sizes: Sequence[int] | None = None,
    global_batches: Sequence[int] | None = None,
    group_sizes: Sequence[int] | None = None,
    steps_per_sync: int = 1,
    use_inter_host_allreduce: bool = False,
    fully_sharded: bool = False,
    planner: str | Planner = "auto",
    constraints: Constraints | Source | None = None,
    on_point: OnPoint | None = None,
    **search: Unpack[SearchArguments],
) -> Sweep:
    """Plans for several numbers of devices, device types and batch sizes, with the cost of each, and the knees.

    Args:
        workload: a Workload, a built-in name or a file.
        devices: numbers of devices; up to one host's devices share a host, more are whole hosts. The default for
            fewest_under_s is up to 64 whole hosts, restricted to counts that divide the global batches.
        device: clusters, names ('h100', 'h100:4') or files; the sweep varies their number of hosts.
        fewest_under_s: look for the fewest devices whose step is at most this many seconds. Only the counts that this
            search needs are planned; `fewest` has the answer for each device type and batch.
        batch_sizes: samples per device and step; duplicates count once, as in all lists.
        global_batches: samples of all devices together, in place of batch_sizes; by default the workload's batch size
            per device is used.
        group_sizes: devices of a sharding group of a 2D job; by default the whole job.
        steps_per_sync: for a 2D job, as in `sharding_group`.
        use_inter_host_allreduce: for a 2D job, as in `sharding_group`.
        fully_sharded: for a 2D job, as in `sharding_group`.
        planner: a name, or a planner object.
        constraints: Constraints, or a file of them.
        on_point: called with each point; if it returns True the sweep ends, as by Ctrl-C, with the points done so far.
        **search: cost_model, seed, iterations, time_limit_s and space, as in `plan`; limits apply to each point.

    Raises:
        UsageError: a name, value or file breaks a rule, or every point was refused.
    """
    workload = load_workload(workload)
    fixed, sizes = _batches(workload, batch_sizes, global_batches)
    sources = (device,) if isinstance(device, Cluster | str | PathLike) else device
    if fewest_under_s is not None and not fewest_under_s > 0:
        raise UsageError(f"a step of {fewest_under_s} seconds cannot be; give a time above 0")
    counts = devices if devices is not None or fewest_under_s is None else whole_hosts(sources, fixed, sizes)
    grid = grid_of(sources, () if counts is None else counts, fixed, sizes, group_sizes)
    options, searcher = SearchOptions(**search), find_planner(planner)
    limits = None if constraints is None else load_constraints(constraints)
    plan_point = partial(plan_with, options, planner=searcher, constraints=limits)
    layout = partial(
        sharding_group, steps_per_sync=steps_per_sync, use_inter_host_allreduce=use_inter_host_allreduce,
        fully_sharded=fully_sharded,
    )  # fmt: skip
    model = find_cost_model(options.cost_model).name
    empty = Sweep(
        workload=workload, planner=searcher.name, cost_model=model, fixed=fixed, points=(), knees=(),
        space=(options.space or Space()).describe(), left=len(grid), plans={},
    )  # fmt: skip
    plan_at = partial(_plan_at, workload, plan_point, layout)
    if fewest_under_s is not None:
        return _with_fewest(empty, grid, plan_at, on_point, fewest_under_s)
    done: list[Done] = []
    _visit(grid, plan_at, on_point, done)
    return _with_points(empty, done)


def _plan_at(
    workload: Workload, plan_point: Callable[..., Result], layout: Callable[[Cluster, int], Cluster], at: GridPoint
) -> Result:
    cluster = at.cluster if at.group_size is None else layout(at.cluster, at.group_size)
    return plan_point(workload.with_batch_size(at.batch_size), cluster)


def _batches(
    workload: Workload, batch_sizes: Sequence[int] | None, global_batches: Sequence[int] | None
) -> tuple[Fixed, Sequence[int]]:
    """Which batch is kept while the number of devices grows, and its sizes."""
    if global_batches is None:
        return "batch_size", (workload.batch_size,) if batch_sizes is None else batch_sizes
    if batch_sizes is not None:
        raise UsageError("a sweep takes batch sizes of a device or global batches, not both; drop one of the two")
    return "global_batch_size", global_batches


# --- the points ---------------------------------------------------------------------------------------------------

Done = tuple[Point, Result | None]


def _with_points(empty: Sweep, done: Sequence[Done]) -> Sweep:
    """The sweep with these points; UsageError if all of them were refused."""
    if all(point.outcome == "refused" for point, _ in done):
        raise UsageError(done[0][0].error)
    points, knees = with_knees([point for point, _ in done], empty.fixed)
    made = [result.plan for _, result in done if result]
    return replace(
        empty, points=points, knees=knees, space=made[0].bound.space if made else empty.space,
        left=empty.left - len(points), plans={each.digest: each for each in made},
    )  # fmt: skip


def _with_fewest(
    empty: Sweep, grid: Sequence[GridPoint], search: Callable[[GridPoint], Result], on_point: OnPoint | None,
    limit_s: float,
) -> Sweep:  # fmt: skip
    """The sweep that finds the fewest devices of each series; it has only the points planned for this, and no knees."""
    done: list[Done] = []
    fewest: list[Fewest] = []
    places: list[int] = []  # index in the grid of each point of `done`
    size = len({at.cluster.world_size for at in grid})  # points of a series: all have the same counts

    def to_visit() -> Generator[GridPoint]:
        for begin in range(0, len(grid), size):
            seen: dict[int, Point] = {}
            asking = turns(size, seen, limit_s)
            try:
                while True:
                    place = next(asking)
                    places.append(begin + place)
                    yield grid[begin + place]
                    seen[place] = done[-1][0]
            except StopIteration as end:
                fewest.append(fewest_of(seen, end.value, limit_s, empty.fixed))

    _visit(to_visit(), search, on_point, done)
    found = _with_points(empty, [each for _, each in sorted(zip(places, done, strict=False), key=lambda at: at[0])])
    points = tuple(replace(point, knee=False) for point in found.points)
    return replace(found, points=points, knees=(), fewest=tuple(fewest), left=len(grid) // size - len(fewest))


def _visit(
    grid: Iterable[GridPoint], search: Callable[[GridPoint], Result], on_point: OnPoint | None, done: list[Done]
) -> None:
    """Add the points to `done` in turn, until Ctrl-C or the caller ends them; Ctrl-C before any point is raised."""
    with _noted_interrupts() as interrupts:
        try:
            for at in grid:
                done.append(_planned(at, search))
                if (on_point and on_point(done[-1][0])) or interrupts:
                    break
        except KeyboardInterrupt:
            if not done:
                raise


@contextmanager
def _noted_interrupts() -> Generator[list[int]]:
    """A list of the Ctrl-C signals so far: on Ctrl-C, a search that has a plan returns it without saying why."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or current_thread() is not main_thread():
        yield seen
        return

    def note(number: int, frame: object) -> None:
        seen.append(number)
        cast(Callable[[int, object], object], before)(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _planned(at: GridPoint, search: Callable[[GridPoint], Result]) -> Done:
    begun = perf_counter()
    try:
        result = search(at)
    except Infeasible as error:
        return _failed(at, "infeasible", str(error), perf_counter() - begun), None
    except NoPlanFound as error:
        return _failed(at, "not_found", str(error), perf_counter() - begun), None
    except MemoryError:
        return _failed(at, "not_found", OUT_OF_MEMORY, perf_counter() - begun), None
    except UsageError as error:
        return _failed(at, "refused", str(error), perf_counter() - begun), None
    return _priced(_failed(at, "planned", None, result.elapsed_s), result), result


def _failed(at: GridPoint, outcome: PointOutcome, error: str | None, elapsed_s: float) -> Point:
    """A point without the figures of a plan."""
    return Point(
        device=at.cluster.device.name, per_host=at.per_host, devices=at.cluster.world_size,
        hosts=at.cluster.hosts, batch_size=at.batch_size,
        global_batch_size=at.batch_size * at.cluster.world_size, outcome=outcome, error=error, digest=None,
        total_s=None, bound_s=None, gap=None, memory_share=None, samples_per_s=None, device_s_per_step=None,
        device_s_per_million=None, elapsed_s=elapsed_s, truncated=False, knee=False, group_size=at.group_size,
    )  # fmt: skip


def _priced(point: Point, result: Result) -> Point:
    """The point with the figures of its plan."""
    made = result.plan
    step, sync = made.cost.step_s, synchronisation_of(made)
    return replace(
        point, digest=made.digest, total_s=step, gap=made.gap,
        bound_s=made.bound.of_step(made.cost),
        memory_share=max(each.hbm_bytes / each.hbm_capacity_bytes for each in made.cost.per_device),
        samples_per_s=point.global_batch_size / step if step else None,
        device_s_per_step=point.devices * step,
        device_s_per_million=MILLION * point.devices * step / point.global_batch_size,
        truncated=result.truncated, sync_s=sync.seconds if sync else None,
    )  # fmt: skip
