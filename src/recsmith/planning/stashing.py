"""Plans whose tables may rest in host memory: how much memory tables get while nothing rests is searched for.

A plan is made for one reserve (docs/decisions/0055-memory-of-a-step.md). The largest leaves room for activations beside
all tables, and nothing rests. The least leaves none, and whatever activations need must rest. Where all copies hide,
the least is best. Where some do not, reserves between are tried, and the shortest step with its copies is kept: first
those at which tables fill all ranks nearly alike, for the rank that copies most decides. Where nobody says how long
dense layers work, every copy counts as exposed.
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

BETWEEN = 3  # reserves that are tried between the largest and the least, each halving where the best one lies
EVEN_SLACKS = (0.01, 0.0075, 0.005, 0.0025)  # of what tables take of a device, that a search may leave uneven
MOST_SEARCHES = 2 + len(EVEN_SLACKS) + BETWEEN + 1
MOSTLY = 0.5  # of a step: where copies are more, another way to have room is tried beside
WORTH = 1e-3  # of a step: for less, nothing is copied


def stashed_where_it_pays(
    workload: Workload, cluster: Cluster, limits: Constraints, plan: Callable[[Cluster, Constraints], Result],
    plan_in: Callable[[Space], Result], space: Space,
) -> Result:  # fmt: skip
    """The best of the results for several reserves.

    plan: for a cluster with a reserve, and constraints that name it. plan_in: without anything that rests, in another
    space than that which is given; its step is told where copies are most of the best one's.

    Raises:
        UsageError: tables may not rest on this cluster, or activations are more than the reserve.
        Infeasible: no plan exists, whatever rests; the message names the phase.
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
    told = _instead(best.plan, cluster, space, plan_in)
    return replace(best, plan=made, elapsed_s=sum(each.elapsed_s for each in found), left_out=(*best.left_out, *told))


def _instead(plan: Plan, cluster: Cluster, space: Space, plan_in: Callable[[Space], Result]) -> list[str]:
    """The step with caches before host memory, where copies are most of a plan's step; nothing where that is longer."""
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
    """What dense layers need beside tables: of the stated reserve, of a plain DLRM on GPUs, or what was stated alone.

    Raises:
        UsageError: activations are more than the reserve that they are a part of.
    """
    told, reserve = stashing.activations, cluster.reserve_bytes
    on_cpu = cluster.device.kind == "cpu"
    estimate = None if cluster.hbm_bytes is not None or reserve is not None else plain_dense(workload, cluster)
    if estimate is not None:
        return estimate if told is None else replace(estimate, activations=told)
    if reserve is not None and (told or 0) > reserve > 0:
        raise UsageError(
            f"activations of {format_size(told or 0)} are a part of the reserve, which is {format_size(reserve)}; "
            "state a larger --reserve"
        )
    fixed = max(0, (reserve or 0) - (told or 0))
    return DenseBytes(fixed=fixed, activations=told or 0, batch_apart=on_cpu)


def _check_room(dense: DenseBytes, cluster: Cluster) -> None:
    """Infeasible where dense layers alone find no room, whatever rests."""
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
    """(the largest reserve beside which tables as large as a plan's find room, plans for nearly that much).

    Each leaves less of a device uneven than the one before, until copies hide or a search finds no plan: the less is
    uneven, the smaller are the tables that meet what a rank lacks.
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
    """Bytes (W,) of each rank that tables take while nothing rests."""
    problem = problem_holding(problem_of(plan), plan.placements)
    return memory_taken(problem, footprint_of(problem, plan.placements))[0]


def _between(at: Callable[[int], Result], least: int, most: int, error: Exception) -> Result:
    """A plan for a reserve between, where dense phases find no room at the least one; NoPlanFound without one."""
    found = _tried(at, least, most, seconds=None)
    if not found:
        raise NoPlanFound(f"{error}; no reserve between {format_size(least)} and {format_size(most)} gave a plan")
    return found[-1]


def _tried(
    at: Callable[[int], Result], least: int, most: int, *, seconds: Callable[[Plan], float] | None
) -> list[Result]:  # fmt: skip
    """Results for reserves between, each in the middle of what is left.

    Upwards while copies are exposed or dense phases find no room, and downwards otherwise.
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
    """What rests in a plan, and how long its copies take; None where nothing does."""
    if all(each.stash is None for each in plan.placements):
        return None
    problem = problem_holding(problem_of(plan), plan.placements)
    return stashed_of(problem, plan.placements, footprint_of(problem, plan.placements))


def exposed_copies_s(plan: Plan) -> float:
    """Seconds of a step's copies that dense layers do not hide; of all where nobody says how long these work."""
    rests = stash_of(plan)
    if rests is None or rests.copy_s is None:
        return 0.0
    return 2 * rests.copy_s if rests.exposed_s is None else rests.exposed_s


def step_with_copies(plan: Plan) -> float:
    """Seconds of a plan's step and of copies that dense layers do not hide; of all where nobody says their time."""
    return plan.cost.step_s + exposed_copies_s(plan)
