"""Assigns many jobs to several pools of devices, with numbers of hosts, so that the total cost is least.

Every job is planned on each pool for some numbers of hosts, which gives the hours and dollars of its samples there.
Each such option is a `Way`. Choosing one for each job, so that no pool is overbooked and all deadlines are kept, is a
small integer program (cp_sat_fleet.py). All jobs train at the same time.

Legend: J jobs, W options of all jobs.
"""

import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TypeVar

from recsmith._install import SOLVER
from recsmith._types import Source, noun
from recsmith.analyses.aims import HOUR_S
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import Infeasible, MissingExtra, NoPlanFound, UsageError, check_rules
from recsmith.files import decode, did_you_mean, read_raw, source_text
from recsmith.planners import Budget
from recsmith.planning.registry import find_planner
from recsmith.problems import Constraints, Space, build_problem
from recsmith.units import counted, format_size
from recsmith.workloads import Workload, load_workload

HOSTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # numbers of hosts tried for each job
PLANNER = "cost_greedy"  # a trade-off: its steps are longer than those of auto, but it takes a small part of the time
MICRO = 1e-6
Named = TypeVar("Named", "FleetJob", "Pool")


@noun
class Pool:
    """A pool of hosts that jobs share. per_host: devices of a host. price: dollars per hour of a device."""

    name: str
    device: str
    per_host: int
    hosts: int
    price: float

    def __post_init__(self) -> None:
        check_rules(
            None if self.per_host >= 1 and self.hosts >= 1
            else f"pool '{self.name}' has {self.hosts} hosts of {self.per_host} devices; both are at least 1",
            None if self.price >= 0 else f"a device of pool '{self.name}' costs {self.price}; that is 0 or more",
        )  # fmt: skip


@noun
class FleetJob:
    """A job that is waiting to train, or training.

    workload: its tables, by name or file. global_batch: samples of a step, on all devices. samples: number of samples
    left to train. deadline_h: hours in which they have to be trained; None for no deadline. rest_us: a device's
    microseconds per sample in addition to the embeddings, by device. pools: pools that it may use; None for all. pool,
    hosts: the pool and number of hosts on which it trains now.
    """

    name: str
    workload: str
    global_batch: int
    samples: float
    deadline_h: float | None = None
    rest_us: dict[str, float] | None = None
    pools: tuple[str, ...] | None = None
    pool: str | None = None
    hosts: int | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if self.global_batch >= 1 and self.samples > 0
            else f"job '{self.name}' has {self.samples:g} samples in steps of {self.global_batch}; both are above 0",
            None if self.deadline_h is None or self.deadline_h > 0
            else f"the deadline of job '{self.name}' is in {self.deadline_h} hours; that is above 0",
            None if (self.pool is None) is (self.hosts is None)
            else f"job '{self.name}' trains now on pool {self.pool} and {self.hosts} hosts; say both, or neither",
            None if all(each >= 0 for each in (self.rest_us or {}).values())
            else f"rest_us of job '{self.name}' has a number below 0",
        )  # fmt: skip


@noun
class Way:
    """An option for a job: a pool and a number of hosts. step_s: seconds of a step, embeddings and the rest.

    hours, dollars: time and cost of all its samples.
    """

    job: str
    pool: str
    hosts: int
    step_s: float
    hours: float
    dollars: float


@noun
class Assigned:
    """The option chosen for a job. cheapest: its cheapest option in time. why: the reason for the choice, in words."""

    way: Way
    cheapest: Way
    why: str


@noun
class Fleet:
    """The assignment of all jobs, and its cost. bound: proved lower bound on the dollars, among these options.

    free: number of unused hosts of each pool. ways: number of options that were compared. left_out: pairs of jobs and
    pools without any option, with the reason.
    """

    jobs: tuple[Assigned, ...]
    dollars: float
    bound: float
    free: dict[str, int]
    ways: int
    left_out: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """The most by which the dollars may exceed the least: dollars / bound - 1."""
        return self.dollars / self.bound - 1 if self.bound > 0 else 0.0


@noun
class _Jobs:
    jobs: tuple[FleetJob, ...]


@noun
class _Pools:
    pools: tuple[Pool, ...]


def load_jobs(source: Source) -> tuple[FleetJob, ...]:
    """The jobs of a file of schema recsmith/jobs/1."""
    return _named(
        decode(_Jobs, read_raw(source_text(source, "jobs"), "recsmith/jobs/1"), str(source)).jobs, "job", source
    )


def load_pools(source: Source) -> tuple[Pool, ...]:
    """The pools of a file of schema recsmith/pools/1."""
    return _named(
        decode(_Pools, read_raw(source_text(source, "pools"), "recsmith/pools/1"), str(source)).pools, "pool", source
    )


def fleet(
    jobs: Sequence[FleetJob] | Source, pools: Sequence[Pool] | Source, *, planner: str = PLANNER,
    model: str | None = None, time_limit_s: float = 10.0, on_way: Callable[[Way], object] | None = None,
) -> Fleet:  # fmt: skip
    """The cheapest assignment of jobs to pools and numbers of hosts that keeps all deadlines.

    Args:
        jobs: FleetJob, or their file.
        pools: Pool, or their file.
        planner: the planner that places the tables for each option.
        model: the cost model that prices them; None for the default.
        time_limit_s: limit of the search for the least cost, after all options are planned.
        on_way: called with each option that was planned.

    Raises:
        UsageError: a file or name breaks a rule.
        Infeasible: it is proved that a job fits nowhere in time, or that not all jobs fit together.
        MissingExtra: OR-Tools is not installed.
    """
    asked = load_jobs(jobs) if isinstance(jobs, str | PathLike) else _named(tuple(jobs), "job", "jobs")
    there = load_pools(pools) if isinstance(pools, str | PathLike) else _named(tuple(pools), "pool", "pools")
    _check_names(asked, there)
    solve = _solver()
    ways, left_out = _Ways(planner, model, on_way).of(asked, there)
    for job in asked:
        _check_ways(job, [each for each in ways if each.job == job.name], left_out)
    room = {pool.name: pool.hosts for pool in there}
    in_time = [each for each in ways if _keeps_deadline(each, asked)]
    found = solve(in_time, room, time_limit_s)
    if found is None:
        late = solve(ways, room, time_limit_s, late=[not _keeps_deadline(way, asked) for way in ways])
        raise Infeasible(_too_much(late, asked, room))
    chosen, bound = found
    free = {name: hosts - sum(way.hosts for way in chosen if way.pool == name) for name, hosts in room.items()}
    assigned = tuple(_assigned(way, ways, free, asked) for way in sorted(chosen, key=lambda way: -way.dollars))
    return Fleet(
        jobs=assigned, dollars=sum(way.dollars for way in chosen), bound=bound, free=free, ways=len(ways),
        left_out=tuple(left_out),
    )  # fmt: skip


class _Ways:
    """Plans every option once: jobs with equal tables and batch share the plan."""

    def __init__(self, planner: str, model: str | None, on_way: Callable[[Way], object] | None) -> None:
        self.planner, self.cost_model, self.on_way = planner, model, on_way
        self.workloads: dict[str, Workload] = {}
        self.steps: dict[tuple[str, str, int, int, int], float | str] = {}

    def of(self, jobs: Sequence[FleetJob], pools: Sequence[Pool]) -> tuple[list[Way], list[str]]:
        """All options; and texts on the pairs of job and pool without any, with the reason for the most hosts tried."""
        ways, left_out = list[Way](), list[str]()
        for job in jobs:
            for pool in pools:
                if job.pools is not None and pool.name not in job.pools:
                    continue
                found, why = self._of(job, pool)
                ways += found
                if not found:
                    left_out.append(f"{job.name} on {pool.name}: {why}")
        return ways, left_out

    def _of(self, job: FleetJob, pool: Pool) -> tuple[list[Way], str]:
        found, why = list[Way](), f"no number of hosts divides its {job.global_batch:,} samples"
        for hosts in [each for each in HOSTS if each <= pool.hosts]:
            devices = hosts * pool.per_host
            if job.global_batch % devices:
                continue
            step = self._step(job, pool, hosts)
            if isinstance(step, str):
                why = step
                continue
            step_s = step + (job.rest_us or {}).get(pool.device, 0.0) * MICRO * job.global_batch / devices
            hours = job.samples / job.global_batch * step_s / HOUR_S
            way = Way(job=job.name, pool=pool.name, hosts=hosts, step_s=step_s, hours=hours,
                      dollars=hours * devices * pool.price)  # fmt: skip
            if not math.isfinite(way.dollars):
                raise UsageError(
                    f"job '{job.name}' would cost {way.dollars} dollars on {counted(hosts, 'host')} of {pool.name}; "
                    "its samples, its rest_us and the price must be finite, and small enough to be multiplied"
                )
            found.append(way)
            if self.on_way is not None:
                self.on_way(way)
        return found, why

    def _step(self, job: FleetJob, pool: Pool, hosts: int) -> float | str:
        """Seconds of the embeddings in a step, or the reason why there is no plan."""
        key = job.workload, pool.device, pool.per_host, hosts, job.global_batch
        if key not in self.steps:
            if job.workload not in self.workloads:
                self.workloads[job.workload] = load_workload(job.workload)
            cluster: Cluster = load_cluster(f"{pool.device}:{pool.per_host}x{hosts}")
            tables = self.workloads[job.workload].with_batch_size(job.global_batch // cluster.world_size)
            try:
                self.steps[key] = quick_step_s(tables, cluster, self.planner, self.cost_model)
            except (Infeasible, NoPlanFound):
                size = format_size(self.workloads[job.workload].weight_bytes)
                self.steps[key] = f"its {size} of tables do not fit {hosts} hosts of it"
        return self.steps[key]


def quick_step_s(tables: Workload, cluster: Cluster, planner: str, model: str | None) -> float:
    """Seconds of the embeddings in a step, by a planner without a bound, which would take most of the time.

    Raises:
        Infeasible, NoPlanFound: the tables do not fit.
    """
    problem = build_problem(tables, cluster, Space(), Constraints())
    evaluator = cost_model(model).compile(problem)
    found = find_planner(planner).plan(problem, evaluator, seed=0, budget=Budget())
    return found.total_s + sequence_seconds(tables, cluster)


def _keeps_deadline(way: Way, jobs: Sequence[FleetJob]) -> bool:
    job = next(each for each in jobs if each.name == way.job)
    return job.deadline_h is None or way.hours <= job.deadline_h


def _check_ways(job: FleetJob, ways: Sequence[Way], left_out: Sequence[str]) -> None:
    if not ways:
        reasons = "; ".join(each for each in left_out if each.startswith(f"{job.name} on "))
        raise Infeasible(f"job '{job.name}' fits no pool: {reasons or 'it may use none'}")
    fastest = min(ways, key=lambda way: way.hours)
    if job.deadline_h is not None and fastest.hours > job.deadline_h:
        raise Infeasible(
            f"job '{job.name}' needs {fastest.hours:.1f} hours at least ({fastest.hosts} hosts of {fastest.pool}), and "
            f"its deadline is in {job.deadline_h:g}; give it more time, or fewer samples"
        )


def _too_much(late: tuple[list[Way], float] | None, jobs: Sequence[FleetJob], room: dict[str, int]) -> str:
    hosts = ", ".join(f"{count} hosts of {name}" for name, count in room.items())
    if late is None:
        return f"the {len(jobs)} jobs do not fit {hosts} at the same time; start some later, or add hosts"
    missed = [way.job for way in late[0] if not _keeps_deadline(way, jobs)]
    return (
        f"not all deadlines can be kept with {hosts}: at least {len(missed)} of {len(jobs)} jobs would be late, such "
        f"as {', '.join(missed[:3])}; give these more time, or add hosts"
    )


def _assigned(way: Way, ways: Sequence[Way], free: dict[str, int], jobs: Sequence[FleetJob]) -> Assigned:
    """A job's chosen option, with its cheapest one and the reason for the choice."""
    job = next(each for each in jobs if each.name == way.job)
    planned = [each for each in ways if each.job == way.job]
    own = [each for each in planned if _keeps_deadline(each, jobs)]
    cheapest = min(own, key=lambda each: (each.dollars, each.hosts))
    why = f"cheapest of its {len(own)} ways that end in time"
    if cheapest.dollars < way.dollars * (1 - 1e-9):
        lacks = cheapest.hosts - free[cheapest.pool] - (way.hosts if way.pool == cheapest.pool else 0)
        why = (
            f"{cheapest.hosts} hosts of {cheapest.pool} would cost ${cheapest.dollars:,.0f}, and {lacks} of them are "
            "with jobs that would lose more"
        )
    if job.pool is not None and (job.pool, job.hosts) != (way.pool, way.hosts):
        now = next((each for each in planned if (each.pool, each.hosts) == (job.pool, job.hosts)), None)
        if now is None:
            there = "which is none of its ways"
        else:
            there = f"it would cost ${now.dollars:,.0f} there" if now in own else "it would be late there"
        why += f"; now on {job.hosts} hosts of {job.pool}, {there}"
    return Assigned(way=way, cheapest=cheapest, why=why)


def _check_names(jobs: Sequence[FleetJob], pools: Sequence[Pool]) -> None:
    known = [pool.name for pool in pools]
    for job in jobs:
        for name in (*(job.pools or ()), *([] if job.pool is None else [job.pool])):
            if name not in known:
                raise UsageError(f"job '{job.name}' names pool '{name}'{did_you_mean(name, known)}")
        for device in job.rest_us or {}:
            if device not in {pool.device for pool in pools}:
                raise UsageError(f"rest_us of job '{job.name}' names device '{device}', which no pool has")


def _solver() -> Callable[..., tuple[list[Way], float] | None]:
    try:
        from recsmith.analyses.cp_sat_fleet import assign
    except ImportError:
        raise MissingExtra(f"a fleet needs OR-Tools: {SOLVER}") from None
    return assign


def _named(found: tuple[Named, ...], what: str, source: Source) -> tuple[Named, ...]:
    names = [each.name for each in found]
    if not names:
        raise UsageError(f"'{source}' has no {what}; name at least one")
    twin = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twin is not None:
        raise UsageError(f"'{source}' has two of a {what} called '{twin}'; give each a name of its own")
    return found
