"""The trade-off of replanning: seconds of a step over the bytes that are moved, and the point that pays most.

A move costs, once, the time in which the device that receives most bytes receives them over one link. A shorter step
saves its difference in each of the steps that are left.
"""

from collections.abc import Callable, Sequence
from typing import Unpack, cast

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.errors import NoPlanFound, UsageError
from recsmith.files import Source
from recsmith.planners import Planner
from recsmith.planning import SearchArguments, SearchOptions, find_planner
from recsmith.planning.changed_problem import ChangedProblem
from recsmith.planning.replan import Replanned, Replanning
from recsmith.planning.simulate import load_priced
from recsmith.plans import Plan
from recsmith.problems import Constraints
from recsmith.workloads import Workload

LIMITS = ("0%", "1%", "2%", "5%", "10%", "20%", "50%", "100%")  # of the weights of tables in both plans


@noun
class CurvePoint:
    """The plan for one limit of moved bytes, or the error if no plan was found that moves so little.

    total_s: seconds of the remaining steps and of the move; None if the number of steps is not known.
    """

    max_moved_bytes: int
    replanned: Replanned | None
    error: str | None = None
    total_s: float | None = None


@noun
class ReplanCurve:
    """Plans for rising limits of moved bytes, and the one that pays most if the number of steps left is known.

    link_bandwidth: bytes per second at which a device receives weights. recommended: the index of a point, or None.
    """

    points: tuple[CurvePoint, ...]
    link_bandwidth: float
    steps_left: int | None = None
    recommended: int | None = None

    @property
    def best(self) -> Replanned:
        """The recommended plan; without a recommendation, the plan of the highest limit that has one."""
        if self.recommended is not None:
            return cast(Replanned, self.points[self.recommended].replanned)
        return next(point.replanned for point in reversed(self.points) if point.replanned is not None)


def replan_curve(
    old: Plan | Source,
    workload: Workload | Source | None = None,
    cluster: Cluster | Source | None = None,
    *,
    limits: Sequence[int | str] = LIMITS,
    steps_left: int | None = None,
    link_bandwidth: float | None = None,
    planner: str | Planner = "auto",
    constraints: Constraints | Source | None = None,
    on_point: Callable[[CurvePoint], None] | None = None,
    **search: Unpack[SearchArguments],
) -> ReplanCurve:
    """Plans of `replan` for several limits of moved bytes; each is no worse than the plans of lower limits.

    Args:
        old: the running plan, or its file.
        workload: the current workload; that of the old plan by default.
        cluster: the current cluster; that of the old plan by default.
        limits: limits of moved bytes, as `max_moved` of `replan`.
        steps_left: steps that the job still has to run; if given, the point at which these steps and the move together
            take least time is recommended.
        link_bandwidth: bytes per second at which a device receives weights; by default those of the link between hosts,
            or of the link within the host if there is only one.
        planner: a name, or a planner object.
        constraints: Constraints, or a file of them.
        on_point: called with each point.
        **search: as in `plan`.

    Raises:
        UsageError: a name, value or file breaks a rule.
        NoPlanFound: no limit has a plan; the message is the last one's.
    """
    if steps_left is not None and steps_left < 1:
        raise UsageError(f"{steps_left} steps are left; give at least 1, or leave it out")
    options = SearchOptions(**search)
    changed = ChangedProblem.of(load_priced(old), workload, cluster, constraints, options)
    replanning = Replanning(changed, find_planner(planner), options)
    speed = _speed(changed.problem.cluster, link_bandwidth)
    points: list[CurvePoint] = []
    best: Replanned | None = None
    for limit in sorted({changed.bytes_of(limit) for limit in limits}):
        point = _point(replanning, limit, best, steps_left, speed)
        best = point.replanned or best
        points.append(point)
        if on_point is not None:
            on_point(point)
    if best is None:
        raise NoPlanFound(points[-1].error or "no limits were given")
    return ReplanCurve(
        points=tuple(points), link_bandwidth=speed, steps_left=steps_left, recommended=_recommended(points)
    )


def _speed(cluster: Cluster, link_bandwidth: float | None) -> float:
    if link_bandwidth is None:
        return cluster.ring_bandwidth
    if not link_bandwidth >= 1:
        raise UsageError(f"the link carries {link_bandwidth} bytes a second; it must carry at least 1")
    return link_bandwidth


def _point(
    replanning: Replanning, limit: int, best: Replanned | None, steps_left: int | None, speed: float
) -> CurvePoint:
    try:
        found = replanning.within(limit, best)
    except NoPlanFound as error:
        return CurvePoint(max_moved_bytes=limit, replanned=None, error=str(error))
    moving_s = found.slowest_receives_bytes / speed
    total = None if steps_left is None else moving_s + steps_left * found.result.plan.cost.step_s
    return CurvePoint(max_moved_bytes=limit, replanned=found, total_s=total)


def _recommended(points: Sequence[CurvePoint]) -> int | None:
    known = [(point.total_s, number) for number, point in enumerate(points) if point.total_s is not None]
    return min(known)[1] if known else None
