"""Plans with stashed tables: searches for the memory that tables may take while nothing is stashed.

A plan is made for one reserve (docs/decisions/0055-memory-of-a-step.md). The largest reserve leaves room for
activations next to all tables, and nothing is stashed. The smallest leaves none, and tables are stashed for all that
activations need. If all copies are hidden, the smallest is best. If not, reserves in between are tried, and the
shortest step including its copies is kept: first reserves at which tables fill all ranks nearly equally, because the
rank that copies most decides. If the time of dense layers is unknown, every copy counts as exposed.
"""

from collections.abc import Callable
from dataclasses import replace

from recsmith._types import Ints
from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, UsageError
from recsmith.planning.feasibility import with_host_memory
from recsmith.planning.result import Result
from recsmith.plans import Plan
from recsmith.problems import Constraints, Space, footprint_of, problem_holding, problem_of
from recsmith.problems.dense_bytes import DenseBytes, Stashing
from recsmith.problems.footprint import memory_taken
from recsmith.problems.memory import batch_bytes
from recsmith.problems.plain_reserve import plain_dense
from recsmith.problems.stashing import StashedBytes, stashed_of
from recsmith.units import format_size, format_time
from recsmith.workloads import Workload

BETWEEN = 3  # reserves tried between the largest and the smallest, each halving the remaining range
EVEN_SLACKS = (0.01, 0.0075, 0.005, 0.0025)  # shares of tables' bytes on a device that a search may leave uneven
MOST_SEARCHES = 2 + len(EVEN_SLACKS) + BETWEEN + 1
MOSTLY = 0.5  # share of a step: if copies take more, another option to gain memory is tried too
WORTH = 1e-3  # share of a step: for a smaller gain, nothing is copied


def stashed_where_it_pays(
    workload: Workload, cluster: Cluster, limits: Constraints, plan: Callable[[Cluster, Constraints], Result],
    plan_in: Callable[[Space], Result], space: Space,
) -> Result:  # fmt: skip
    """The best of the results for several reserves.

    plan: plans for a cluster with a reserve, and constraints that contain it.
    plan_in: plans without stashing in a space other than the given one; its step is reported if copies are most of the
        best step.

    Raises:
        UsageError: tables may not be stashed on this cluster, or activations are more than the reserve.
        Infeasible: no plan exists, whatever is stashed; the message names the phase.
        NoPlanFound: none was found.
    """
    stashing = limits.stash or Stashing()
    _check(stashing, cluster, limits)
    dense = dense_of(workload, cluster, stashing)
    _check_room(dense, cluster)
    kept = replace(limits, stash=replace(stashing, dense=dense))
    least, most = dense.kept_free(batch_bytes(workload, cluster.world_size))

    def at(reserve: int) -> Result:
        return plan(cluster.with_memory(reserve_bytes=reserve), kept)

    tight: Result | None = None
    try:
        roomy: Result | None = at(most)
    except (Infeasible, NoPlanFound, UsageError):
        roomy = None
    try:
        tight = at(least)
    except Infeasible as error:
        raise Infeasible(
            f"in phase 'embedding update', in which nothing rests, {format_size(least)} of each device are for other "
            f"layers and the batch: {error}"
        ) from None
    except (NoPlanFound, PlanMismatch) as error:
        if roomy is None:
            tight = _between(at, least, most, error)
    found = [each for each in (roomy, tight) if each is not None]
    if tight is not None and exposed_copies_s(tight.plan) > 0:
        even, alike = _alike(at, tight.plan, least, most)
        found += [*alike, *_tried(at, least, even, seconds=step_with_copies)]
    best = min(found, key=lambda each: step_with_copies(each.plan))
    if roomy is not None and step_with_copies(roomy.plan) <= (1 + WORTH) * step_with_copies(best.plan):
        best = roomy
    bound = best.plan.bound if tight is None else tight.plan.bound
    made = replace(best.plan, bound=bound, gap=bound.gap(best.plan.cost.total_s))
    instead = _instead(best.plan, cluster, space, plan_in)
    return replace(
        best, plan=made, elapsed_s=sum(each.elapsed_s for each in found), left_out=(*best.left_out, *instead)
    )


def _instead(plan: Plan, cluster: Cluster, space: Space, plan_in: Callable[[Space], Result]) -> list[str]:
    """A note on caches in front of host memory, if copies are most of a plan's step and caches are faster."""
    wide = with_host_memory(space, cluster)
    if wide is None or cluster.replication is not None or exposed_copies_s(plan) < MOSTLY * step_with_copies(plan):
        return []
    try:
        found = plan_in(wide).plan
    except (Infeasible, NoPlanFound, PlanMismatch, UsageError):
        return []
    if found.cost.step_s >= step_with_copies(plan):
        return []
    return [
        f"without --stash, --kernels {','.join(wide.kernels)} keeps tables in host memory behind caches on the device: "
        f"its step is {format_time(found.cost.step_s)}, predicted"
    ]


def _check(stashing: Stashing, cluster: Cluster, limits: Constraints) -> None:
    if stashing.what != "weights" and cluster.device.kind == "cuda":
        raise UsageError(
            "stash: weights_and_state is of ranks on CPU; TorchRec 1.8 moves weights of tables alone on CUDA: "
            "take weights"
        )
    if limits.memory != "real":
        raise UsageError(
            "memory by phase of a step is known in the accounting real only; leave --stash or --memory torchrec out"
        )
    if cluster.replication is not None and not cluster.fully_sharded:
        raise UsageError(
            "TorchRec synchronises replicas of a 2D job on the device; leave --stash or --group-size out, or take "
            "--fully-sharded, by which replicas hold one copy of weights between them while dense layers work"
        )
    if cluster.fully_sharded and (stashing.what != "weights" or stashing.dense_s is not None):
        raise UsageError(
            "fully sharded replicas divide weights alone, and all of their exchange counts; leave what "
            "else rests, and the time of dense layers, out"
        )


def dense_of(workload: Workload, cluster: Cluster, stashing: Stashing) -> DenseBytes:
    """Bytes of dense layers: from the stated reserve, from a plain DLRM on GPUs, or stated activations alone.

    Raises:
        UsageError: activations are more than the reserve of which they are a part.
    """
    stated, reserve = stashing.activations, cluster.reserve_bytes
    on_cpu = cluster.device.kind == "cpu"
    estimate = None if cluster.hbm_bytes is not None or reserve is not None else plain_dense(workload, cluster)
    if estimate is not None:
        return estimate if stated is None else replace(estimate, activations=stated)
    if reserve is not None and (stated or 0) > reserve > 0:
        raise UsageError(
            f"activations of {format_size(stated or 0)} are a part of the reserve, which is {format_size(reserve)}; "
            "state a larger --reserve"
        )
    fixed = max(0, (reserve or 0) - (stated or 0))
    return DenseBytes(fixed=fixed, activations=stated or 0, batch_apart=on_cpu)


def _check_room(dense: DenseBytes, cluster: Cluster) -> None:
    """Raise Infeasible if dense layers alone do not fit, whatever is stashed."""
    room, always = min(cluster.hbm_per_rank), dense.fixed + dense.gradients
    if always + dense.activations > room:
        raise Infeasible(
            f"activations of {format_size(dense.activations)} and the {format_size(always)} of other layers need more "
            f"than the {format_size(room)} of a device, whatever rests; state fewer --activations, or take smaller "
            "batches or larger devices"
        )


def _alike(
    at: Callable[[int], Result], tight: Plan, least: int, most: int
) -> tuple[int, list[Result]]:  # fmt: skip
    """(largest reserve next to which tables as large as a plan's fit, plans for reserves near it).

    Each plan leaves less of a device uneven than the one before, until copies are hidden or a search finds no plan: the
    less is uneven, the smaller are the stashed tables that meet a rank's need.
    """
    taken = int(_table_bytes(tight).mean())
    room = min(tight.cluster.hbm_per_rank)
    found: list[Result] = []
    for slack in EVEN_SLACKS:
        reserve = min(most, room - int(taken * (1 + slack)))
        if reserve <= least:
            continue
        try:
            found.append(at(reserve))
        except (Infeasible, NoPlanFound, PlanMismatch):
            break
        if reserve == most or exposed_copies_s(found[-1].plan) == 0:
            break
    return max(least, min(most, room - taken)), found


def _table_bytes(plan: Plan) -> Ints:
    """Bytes (W,) of each rank that tables take while nothing is stashed."""
    problem = problem_holding(problem_of(plan), plan.placements)
    return memory_taken(problem, footprint_of(problem, plan.placements))[0]


def _between(at: Callable[[int], Result], least: int, most: int, error: Exception) -> Result:
    """A plan for a reserve in between, if dense phases do not fit at the smallest one; NoPlanFound if there is none."""
    found = _tried(at, least, most, seconds=None)
    if not found:
        raise NoPlanFound(f"{error}; no reserve between {format_size(least)} and {format_size(most)} gave a plan")
    return found[-1]


def _tried(
    at: Callable[[int], Result], least: int, most: int, *, seconds: Callable[[Plan], float] | None
) -> list[Result]:  # fmt: skip
    """Results for reserves in between, each in the middle of the remaining range.

    The range moves up while copies are exposed or dense phases do not fit, and down otherwise.
    """
    found: list[Result] = []
    for _ in range(BETWEEN):
        middle = (least + most) // 2
        try:
            found.append(at(middle))
        except Infeasible:
            most = middle
            continue
        except (NoPlanFound, PlanMismatch):
            least = middle
            continue
        if seconds is not None and exposed_copies_s(found[-1].plan) > 0:
            least = middle
        else:
            most = middle
    return found


def stash_of(plan: Plan) -> StashedBytes | None:
    """The bytes that a plan stashes, and the time of their copies; None if it stashes nothing."""
    if all(each.stash is None for each in plan.placements):
        return None
    problem = problem_holding(problem_of(plan), plan.placements)
    return stashed_of(problem, plan.placements, footprint_of(problem, plan.placements))


def exposed_copies_s(plan: Plan) -> float:
    """Seconds of a step's copies that dense layers do not hide; all copies if the time of dense layers is unknown."""
    rests = stash_of(plan)
    if rests is None or rests.copy_s is None:
        return 0.0
    return 2 * rests.copy_s if rests.exposed_s is None else rests.exposed_s


def step_with_copies(plan: Plan) -> float:
    """Seconds of a plan's step plus its exposed copies; plus all copies if the time of dense layers is unknown."""
    return plan.cost.step_s + exposed_copies_s(plan)
