"""Results of a sweep: a point for each cluster and batch, and the knee, beyond which more devices no longer pay.

The knee is that of Eager, Zahorjan and Lazowska, "Speedup versus efficiency in parallel systems" (IEEE Transactions on
Computers 38(3), 1989): the count at which the ratio of efficiency to execution time is largest. For n devices that take
t seconds per sample, efficiency is 1 / (n t) and time is t, so the knee has the least n t^2. In words: f times the
devices pay as long as they give more than sqrt(f) times the samples per second; doubling pays above 1.41.
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
    """One cluster and batch: the figures of its plan, or the reason why it has none.

    per_host: devices of a full host; a single host may have fewer. batch_size: samples per device and step;
    global_batch_size: samples of all devices and a step.
    outcome: 'planned'; 'infeasible' (proved); 'not_found' (by a search that proves nothing); or 'refused' (tables have
    no legal placement on this many devices). error: why there is no plan.
    total_s, bound_s, gap: seconds, bound and gap of the plan's step, which covers the embeddings. memory_share: largest
    fraction of a device's memory in use. device_s_per_step: devices x step; device_s_per_million: device seconds for a
    million samples. elapsed_s: seconds to make the plan, including the bound. truncated: whether a limit or Ctrl-C
    ended its search early.
    group_size: devices of the 2D job's sharding group that the plan is for. sync_s: seconds that the synchronisation of
    replicas adds to a step on the slowest rank, by cost model `analytic`.
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
    """The number of devices beyond which more no longer pay, for one device type and one batch.

    size: the batch that the sweep keeps fixed. next_devices: the next larger count with a plan; None if the knee is the
    largest count, and then more may pay. next_speedup: its samples per second / those of the knee. pays_from: the
    speedup above which it would pay. fewest: whether the knee is the smallest count with a plan. proven: whether no
    plan at another count can be the knee. group_size: group size of the series in a sweep of 2D jobs.
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
    """The fewest devices whose step is at most limit_s, for one device type and one batch; devices is None if none is.

    size: the batch that the sweep keeps fixed. total_s: seconds of the step. fewer: the next smaller count, if it was
    planned for; else None. proven: whether it is proved that this smaller count has no plan with such a step.
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
    """Points in order of device type, batch and number of devices, and the knees among them.

    fixed: which batch is kept while the number of devices grows. left: number of points that Ctrl-C left undone.
    plans: plans by digest. fewest: the answer of each series, in a sweep that looks for the fewest devices.
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
    """The points, with knees marked, and the knees; a series with fewer than two plans has none."""
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
    """The quantity that is least at the knee: devices x (seconds per sample)^2."""
    return _price_at(point, point.total_s or 0.0)


def _price_at(point: Point, step_s: float) -> float:
    return point.devices * (step_s / point.global_batch_size) ** 2


def _proven(best: Point, series: Sequence[Point]) -> bool:
    """Whether the knee would be the same even if every other count had a plan as cheap as its bound."""
    rivals = [point for point in series if point is not best and point.outcome in ("planned", "not_found")]
    return all(point.bound_s is not None and _price_at(point, point.bound_s) >= _price(best) for point in rivals)


def _speedup(before: Point, after: Point) -> float | None:
    if before.samples_per_s is None or after.samples_per_s is None:
        return None
    return after.samples_per_s / before.samples_per_s
