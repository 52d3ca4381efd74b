"""What a sweep says: a point for each cluster and batch, and the knee, after which more devices no longer pay.

The knee is that of Eager, Zahorjan and Lazowska, "Speedup versus efficiency in parallel systems" (IEEE Transactions on
Computers 38(3), 1989): the count at which the ratio of efficiency to execution time is largest. Efficiency is 1 / (n t)
and time t, for n devices that take t seconds a sample, so the knee has the least n t^2. In words: f times the devices
pay as long as they give more than sqrt(f) times the samples a second, and doubling pays above 1.41.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from recsmith._types import noun
from recsmith.plans import Plan
from recsmith.workloads import Workload

Fixed = Literal["batch_size", "global_batch_size"]
PointOutcome = Literal["planned", "infeasible", "not_found", "refused"]


@noun
class Point:
    """One cluster and batch: what its plan costs, or why it has none.

    per_host: devices of a full host; one host may hold fewer. batch_size: samples per device and step;
    global_batch_size: of all devices.
    outcome: 'planned'; 'infeasible', proved; 'not_found' by a search that proves nothing; or 'refused', where tables
    have no legal placement on so many devices. error: why there is no plan.
    total_s, bound_s, gap: of the plan's step; its embedding part, as everywhere. memory_share: largest share of a
    device's memory in use. device_s_per_step: devices x step; device_s_per_million: the same for a million samples.
    elapsed_s: to make the plan, bound included. truncated: a limit or Ctrl-C cut its search short.
    group_size: devices of a sharding group of a 2D job, which the plan is for. sync_s: what the synchronisation of its
    replicas adds to a step on the rank where it takes longest, as cost model `analytic` has it.
    """

    device: str
    per_host: int
    devices: int
    hosts: int
    batch_size: int
    global_batch_size: int
    outcome: PointOutcome
    error: str | None
    digest: str | None
    total_s: float | None
    bound_s: float | None
    gap: float | None
    memory_share: float | None
    samples_per_s: float | None
    device_s_per_step: float | None
    device_s_per_million: float | None
    elapsed_s: float
    truncated: bool
    knee: bool
    group_size: int | None = None
    sync_s: float | None = None


@noun
class Knee:
    """Where more devices stop to pay, on one device type at one batch: `size` is the batch that the sweep keeps fixed.

    next_devices: the next larger count with a plan, None where the knee is the largest; more may pay then.
    next_speedup: its samples a second over the knee's. pays_from: what that would have to exceed to pay.
    fewest: the knee is the smallest count with a plan. proven: at no other count can any plan take its place.
    group_size: of the series, in a sweep of 2D jobs.
    """

    device: str
    per_host: int
    size: int
    devices: int
    next_devices: int | None
    next_speedup: float | None
    pays_from: float | None
    fewest: bool
    proven: bool
    group_size: int | None = None


@noun
class Fewest:
    """The fewest devices whose step is at most limit_s, on one device type at one batch; devices is None where none is.

    size: the batch that the sweep keeps fixed. total_s: of the step. fewer: the next smaller count that was asked for,
    None where there is none. proven: that count has no plan whose step is so short.
    """

    device: str
    per_host: int
    size: int
    limit_s: float
    devices: int | None
    hosts: int | None
    total_s: float | None
    fewer: int | None
    proven: bool
    group_size: int | None = None


@noun
class Sweep:
    """Points by device type, batch and number of devices, in this order, and the knees among them.

    fixed: which batch stays the same while the devices grow. left: points that were not done, for Ctrl-C came first.
    plans: by the digests of their points. fewest: of each series, in a sweep that looks for the fewest devices.
    """

    workload: Workload
    planner: str
    cost_model: str
    space: str
    fixed: Fixed
    points: tuple[Point, ...]
    knees: tuple[Knee, ...]
    left: int
    plans: dict[str, Plan]
    fewest: tuple[Fewest, ...] = ()


def with_knees(points: Sequence[Point], fixed: Fixed) -> tuple[tuple[Point, ...], tuple[Knee, ...]]:
    """The points, knees marked, and the knees; a series of fewer than two plans has none."""
    marked: list[Point] = []
    knees: list[Knee] = []
    for _, group in groupby(points, key=lambda point: _series(point, fixed)):
        series = list(group)
        planned = [point for point in series if point.outcome == "planned"]
        best = min(planned, key=_price) if len(planned) > 1 else None
        marked += [replace(point, knee=point is best) for point in series]
        if best:
            knees.append(_knee(best, series, planned, fixed))
    return tuple(marked), tuple(knees)


def _series(point: Point, fixed: Fixed) -> tuple[str, int, int, int | None]:
    size = point.batch_size if fixed == "batch_size" else point.global_batch_size
    return point.device, point.per_host, size, point.group_size


def _knee(best: Point, series: Sequence[Point], planned: Sequence[Point], fixed: Fixed) -> Knee:
    device, per_host, size, group_size = _series(best, fixed)
    larger = next((point for point in planned if point.devices > best.devices), None)
    return Knee(
        device=device, per_host=per_host, size=size, devices=best.devices,
        next_devices=larger.devices if larger else None,
        next_speedup=_speedup(best, larger) if larger else None,
        pays_from=(larger.devices / best.devices) ** 0.5 if larger else None,
        fewest=best is planned[0],
        proven=_proven(best, series), group_size=group_size,
    )  # fmt: skip


def _price(point: Point) -> float:
    """What the knee has least of: devices x (seconds a sample)^2."""
    return _price_at(point, point.total_s or 0.0)


def _price_at(point: Point, step_s: float) -> float:
    return point.devices * (step_s / point.global_batch_size) ** 2


def _proven(best: Point, series: Sequence[Point]) -> bool:
    """Whether the knee stands even if every other count had a plan as cheap as its bound."""
    rivals = [point for point in series if point is not best and point.outcome in ("planned", "not_found")]
    return all(point.bound_s is not None and _price_at(point, point.bound_s) >= _price(best) for point in rivals)


def _speedup(before: Point, after: Point) -> float | None:
    if before.samples_per_s is None or after.samples_per_s is None:
        return None
    return after.samples_per_s / before.samples_per_s
