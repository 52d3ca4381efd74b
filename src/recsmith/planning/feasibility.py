"""Proofs that no plan exists, and advice: changes of the problem that were tried and found to have a plan.

There are two proofs, both exact: a table has no placement whose pieces fit a device; or all tables at their smallest
need more than all devices together. Other problems may still be unplannable; then a search says NoPlanFound.

A change is tried in the way in which planners begin: every table in as few pieces as fit. If tables can be split in
very many ways, only the few widths of TorchRec's planner are tried: a plan found so is still a plan, and a plan that is
missed is found with a larger change.

Legend: T tables, W ranks.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import DEAREST, shared_relaxation
from recsmith.bounds.table_totals import TableTotals
from recsmith.clusters import Cluster, larger_groups
from recsmith.costs import AdditiveEvaluator, CostModel, Evaluator
from recsmith.errors import Infeasible, PlanMismatch, UsageError
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.placement import place_in_fewest_pieces
from recsmith.planning.advice import CUT_SHORT, AdviceBudget
from recsmith.plans import PARTS
from recsmith.problems import Problem, Space, build_problem, placements_of
from recsmith.problems.dense_bytes import DenseBytes, Stashing
from recsmith.problems.plain_reserve import kept_estimate
from recsmith.problems.stashing import with_stash
from recsmith.sharding import UVM_CACHING
from recsmith.units import counted, format_size
from recsmith.workloads import Table

HBM_STEPS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0)  # factors on the proven minimum of device memory, tried in turn
DEVICE_STEPS = (1.0, 1.1, 1.25, 1.5, 2.0, 4.0)  # factors on the least number of hosts, tried in turn
SAMPLE_PARTS = (2, 4, 8, 16)  # divisors of the samples per device, tried in turn
# shares of a stated reserve, tried in turn as bytes for which tables are stashed
RESTING_SHARES = (0.25, 0.5, 0.75, 0.95)
GIB = 2**30  # bytes
MANY_OPTIONS = 40_000  # with more options, a problem is tried only with TorchRec's widths
InTime = Callable[[], bool]
LIGHTEST = SelectionLimits(price=DEAREST)


def check_feasible(evaluator: Evaluator, model: CostModel, advice: AdviceBudget | None = None) -> None:
    """Raise Infeasible if no plan can exist, naming tables, bytes, and a change that was checked to work.

    advice: the time for finding such a change, and the callback for the proof.
    """
    problem = evaluator.problem
    light = shared_relaxation(evaluator).choose(LIGHTEST)
    room = float(problem.capacity.sum())
    if np.isfinite(light.seconds).all() and light.bytes.sum() <= room:
        return  # the listed options already fit; no need to consider every split
    least = weights(problem).per_table(LIGHTEST)
    unplaceable = np.flatnonzero(~np.isfinite(least.value))
    if unplaceable.size:
        proof = _unplaceable_message(problem, unplaceable.tolist()) + _kept_words(problem)
        raise Infeasible(f"{proof} {what_helps(problem, model, advice=advice, proof=proof)}")
    if least.bytes.sum() > room:
        roomy = roomy_weights(problem)
        proof = _overfull_message(problem, roomy, float(least.bytes.sum()), room) + _kept_words(problem)
        raise Infeasible(f"{proof} {what_helps(problem, model, roomy, advice=advice, proof=proof)}")


def _unplaceable_message(problem: Problem, unplaceable: list[int]) -> str:
    tables = [problem.tables[t] for t in unplaceable]
    largest = max(tables, key=lambda table: table.weight_bytes)
    more = f" (and {len(tables) - 1} more tables)" if len(tables) > 1 else ""
    room = format_size(float(problem.capacity.max())) if problem.capacity.max() > 1 else "nothing"
    return (
        f"table '{largest.name}'{more} fits no device with {problem.planned_space.words}: its weights are "
        f"{format_size(largest.weight_bytes)}, {_buffer_words(problem, largest)}the largest device offers {room}. "
        "Proved."
    )


def _buffer_words(problem: Problem, table: Table) -> str:
    """Text on the bytes of a batch in addition to the weights, if these are what does not fit; '' otherwise."""
    index = problem.tables.index(table)
    pieces = np.flatnonzero(problem.modes.table[problem.pieces.mode] == index)
    lightest = pieces[problem.pieces.tail.device[pieces].argmin()]
    mode, width = int(problem.pieces.mode[lightest]), int(problem.pieces.width[lightest])
    weights = int(problem.modes.tail_rows[mode]) * width * table.element_bytes
    if weights > problem.capacity.max():
        return ""
    need = float(problem.pieces.tail.device[lightest])
    batch = f"a batch of {problem.workload.batch_size:,} samples"
    return f"but optimizer state, and ids and outputs of {batch}, make it {format_size(need)} at the least, "


def _overfull_message(problem: Problem, roomy: TableTotals, need: float, room: float) -> str:
    world = problem.cluster.world_size
    least = float(roomy.per_table(LIGHTEST).bytes.sum())
    floor = (
        f": no plan exists below {format_size(least / world)} a device, {_fewest(problem, least)}"
        if least > room
        else ""
    )
    return (
        f"the tables need at least {format_size(need)} with {problem.planned_space.words}; "
        f"{counted(world, 'device')} offer{'s' if world == 1 else ''} {format_size(room)}. "
        f"Proved{floor}."
    )


def _kept_words(problem: Problem) -> str:
    """Text on the memory kept free for layers over histories, which nobody stated and which may be most of a device."""
    estimated = kept_estimate(problem.workload, problem.cluster)
    return f" {estimated.beyond}" if estimated and estimated.positions else ""


def _fewest(problem: Problem, least: float) -> str:
    """Text on the least number of devices: more ranks serve more samples, so no table gets smaller."""
    cluster = problem.cluster
    devices = int(np.ceil(least / float(problem.capacity.max())))
    if cluster.replication is not None:
        return f"nor in sharding groups of fewer than {devices} devices of this size"
    if cluster.hosts == 1:
        return f"nor below {counted(devices, 'device')} of this size"
    local = cluster.local_world_size
    return f"nor below {-(-devices // local) * local} devices of this size in hosts of {local}"


# --- what would help --------------------------------------------------------------------------------------------------


def what_helps(
    problem: Problem, model: CostModel, roomy: TableTotals | None = None, *, advice: AdviceBudget | None = None,
    proof: str = "",
) -> str:  # fmt: skip
    """Text on changes that were tried and gave a plan, within the time for advice; an interrupt ends it early.

    roomy: `roomy_weights` of the problem, if already computed. proof: reported before the first try.
    """
    advice = advice or AdviceBudget()
    checked: list[str] = []
    try:
        advice.proved(proof)
        for change in _changes(problem, model, roomy, advice.in_time):
            checked += [text for text in (change() if advice.in_time() else None,) if text]
    except KeyboardInterrupt:
        return _told(checked, cut=True)
    return _told(checked, cut=not advice.in_time())


def _changes(
    problem: Problem, model: CostModel, roomy: TableTotals | None, in_time: InTime
) -> Iterator[Callable[[], str | None]]:
    """The changes that may help, in the order in which they are tried."""
    estimated = kept_estimate(problem.workload, problem.cluster)
    # a job needs this reserve, so tables may not have it, and --hbm would not keep it
    if estimated and estimated.positions:
        yield lambda: _fewer_samples(problem, model, in_time)
    else:
        yield lambda: _no_reserve(problem, model, in_time)
        yield lambda: _more_memory(problem, model, roomy or roomy_weights(problem), in_time)
    for change in (_more_hosts, _larger_groups, _more_types, _host_memory, _resting):
        yield partial(change, problem, model, in_time)


def _told(checked: list[str], *, cut: bool) -> str:
    found = f"Checked to work: {'; or '.join(checked)}." if checked else ""
    if cut:
        return f"{found} {CUT_SHORT}".strip()
    return found or "No single change that was tried is enough."


def weights(problem: Problem) -> TableTotals:
    """The bytes of tables, without their cost, because cost models take long for very wide tables."""
    return TableTotals(weightless(problem))


def weightless(problem: Problem) -> AdditiveEvaluator:
    """An evaluator in which everything takes no time, to examine only what fits."""
    return AdditiveEvaluator(problem, _no_seconds)


def _no_seconds(modes: Ints, _: Ints) -> Floats:
    return np.zeros((len(modes), len(PARTS)))


def roomy_weights(problem: Problem) -> TableTotals:
    """The bytes of tables on devices of any size: larger pieces need fewer extra bytes."""
    roomy = problem.cluster.with_memory(2**52)
    return weights(build_problem(problem.workload, roomy, problem.space, problem.constraints))


def _no_reserve(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    """Advice to keep nothing free, if the reserve is an estimate and not stated."""
    estimated = kept_estimate(problem.workload, problem.cluster)
    return "--reserve 0" if estimated and has_plan(problem, model, in_time, reserve_bytes=0) else None


def _more_memory(problem: Problem, model: CostModel, roomy: TableTotals, in_time: InTime) -> str | None:
    """Advice with the least device memory, of some steps, that gives a plan."""
    estimated = kept_estimate(problem.workload, problem.cluster)  # --hbm leaves out the estimate
    reserve, world = 0 if estimated else problem.cluster.reserve_bytes or 0, problem.cluster.world_size
    least, relaxation = roomy.per_table(LIGHTEST).bytes, roomy.relaxation
    heaviest = np.minimum.reduceat(relaxation.option_heaviest, relaxation.problem.options.start[:-1]).max()
    start = max(float(least.sum()) / world, float(heaviest))
    for step in HBM_STEPS:
        hbm = int(np.ceil((start * step + reserve) / GIB * 10) / 10 * GIB)
        if hbm > 2**50:
            return None
        if has_plan(problem, model, in_time, hbm_bytes=hbm, reserve_bytes=reserve):
            return f"--hbm {hbm / GIB:.1f}GiB"
    return None


def _fewer_samples(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    """Advice with the most samples per device, of some halvings, that give a plan next to history layers."""
    for part in SAMPLE_PARTS:
        samples = max(1, problem.workload.batch_size // part)
        fewer = replace(problem, workload=replace(problem.workload, batch_size=samples))
        if has_plan(fewer, model, in_time, reserve_bytes=None):
            return f"--batch-size {samples}"
    return None


def _more_hosts(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    """Advice with the least number of hosts, of some, that gives a plan; only for equal devices in one group."""
    cluster = problem.cluster
    if isinstance(cluster.hbm_bytes, tuple) or cluster.replication is not None:
        return None
    need = weights(problem).per_table(LIGHTEST).bytes.sum()
    least = max(cluster.hosts + 1, int(np.ceil(need / problem.capacity.max() / cluster.local_world_size)))
    tried = sorted({int(np.ceil(least * step)) for step in DEVICE_STEPS})
    for hosts in tried:
        if has_plan(problem, model, in_time, hosts=hosts):
            return f"{counted(hosts * cluster.local_world_size, 'device')} ({counted(hosts, 'host')})"
    return None


def _larger_groups(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    """Advice with the least size of a 2D job's sharding groups that gives a plan."""
    for cluster in larger_groups(problem.cluster):
        if has_plan(replace(problem, cluster=cluster), model, in_time):
            return f"--group-size {cluster.world_size}"
    return None


def _more_types(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    wide = replace(
        problem.space, types=(*problem.space.types, "column_wise", "row_wise", "table_row_wise"), widths="any"
    )
    if wide == problem.space or problem.constraints.parts:
        return None
    found = has_plan(replace(problem, space=wide), model, in_time)
    return f"--types {','.join(wide.types)} --widths any" if found else None


def _host_memory(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    """Advice to keep tables in host memory behind caches, if hosts have memory and devices can reach it."""
    wide = with_host_memory(problem.space, problem.cluster)
    found = wide is not None and has_plan(replace(problem, space=wide), model, in_time)
    return f"--kernels {','.join(wide.kernels)}" if wide is not None and found else None


def with_host_memory(space: Space, cluster: Cluster) -> Space | None:
    """The space with tables in host memory behind caches; None if it has caches, or devices cannot reach that."""
    reached = cluster.device.kind == "cuda" and cluster.device.host_link_bandwidth is not None
    if space.has_caches or not reached or cluster.ddr_bytes_per_host is None:
        return None
    return replace(space, kernels=(*space.kernels, UVM_CACHING.name))


def _resting(problem: Problem, model: CostModel, in_time: InTime) -> str | None:
    """Advice to stash tables while dense layers run, for the least of some shares of a stated reserve."""
    cluster, limits = problem.cluster, problem.constraints
    reserve = cluster.reserve_bytes or 0
    estimated = kept_estimate(problem.workload, cluster)
    if not reserve or estimated or limits.stash is not None or limits.memory != "real" or cluster.replication:
        return None
    for share in RESTING_SHARES:
        part = int(reserve * share)
        dense = DenseBytes(fixed=reserve - part, activations=part, batch_apart=False)
        resting = replace(problem, constraints=replace(limits, stash=Stashing(dense=dense)))
        if has_plan(resting, model, in_time, reserve_bytes=dense.fixed):
            return (
                f"--stash weights --activations {str(format_size(part)).replace(' ', '')}, if that much of the reserve "
                "is alive only while dense layers work (docs/stashing.md)"
            )
    return None


def has_plan(changed: Problem, model: CostModel, in_time: InTime = lambda: True, **cluster: int | None) -> bool:
    """Whether a changed problem, on a changed cluster, is legal, and a plan for it is found in time."""
    if not in_time():
        return False
    try:
        cluster_ = replace(changed.cluster, **cluster)
        many = len(changed.options.table) > MANY_OPTIONS
        space = replace(changed.space, widths="torchrec") if many else changed.space
        problem = build_problem(changed.workload, cluster_, space, changed.constraints)
    except UsageError:  # such as more ranks than a table has row blocks
        return False
    evaluator = model.compile(problem)
    relaxation = shared_relaxation(evaluator)
    light = relaxation.choose(LIGHTEST)
    if not np.isfinite(light.seconds).all() or light.bytes.sum() > problem.capacity.sum():
        return False
    found = place_in_fewest_pieces(DeviceState(evaluator), relaxation, in_time)
    if found is None or not problem.legality.holds(found.footprint(problem)):
        return False
    try:
        with_stash(problem, placements_of(problem, found.footprint(problem)), found.footprint(problem))
    except PlanMismatch:  # stashing all possible tables is not enough
        return False
    return True
