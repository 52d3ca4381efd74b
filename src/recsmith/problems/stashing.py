"""Stashing of tables in host memory while dense layers run: the bytes that it frees, and the choice of tables.

TorchRec 1.8 copies the weights of a table with `stash_weights` to pinned host memory after the lookup, frees them, and
copies them back before their gradients arrive (torchrec/distributed/memory_stashing.py). The copy to the host is hidden
by the dense forward pass, the copy back by the dense backward pass, which is assumed to take twice as long.

A search is not aware of this: in a plan that stashes, `Cluster.reserve_bytes` is what is kept free in phases in which
nothing is stashed, and the other needs of dense layers are in `Stashing.dense`
(docs/decisions/0055-memory-of-a-step.md).

Legend: T tables, W ranks, C candidates whose stashing frees bytes.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.errors import PlanMismatch
from recsmith.plans import Placement
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.footprint import Footprint
from recsmith.problems.memory_schedule import AT_REST, MemorySchedule, dense_phases_over, memory_schedule
from recsmith.problems.problem import Problem
from recsmith.sharding import FUSED, Span
from recsmith.sharding.coverage import last_rank
from recsmith.units import format_size

# share of the dense layers' time: their backward pass computes two products for each one of the forward pass
FORWARD_SHARE = 1 / 3
FEW = 12  # up to this many candidates, every choice is tried
# limits tried in turn: most bytes of a rank over the least possible
LOOSER = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, np.inf)


@noun
class StashedBytes:
    """Bytes that each rank stashes, weights and optimizer state; and the copy time of the rank that stashes most.

    copy_s: one way; None if the link's speed is unknown.
    exposed_s: seconds of a step that dense layers do not hide; None if their time is unknown.
    """

    weights: tuple[int, ...]
    state: tuple[int, ...]
    copy_s: float | None
    exposed_s: float | None

    @property
    def rank(self) -> int:
        """The rank that stashes most; the lowest rank of several."""
        return max(range(len(self.weights)), key=lambda rank: self.weights[rank] + self.state[rank])

    @property
    def most(self) -> int:
        """Bytes of the rank that stashes most."""
        return self.weights[self.rank] + self.state[self.rank]

    @property
    def mean(self) -> float:
        """Mean bytes stashed by a rank."""
        return (sum(self.weights) + sum(self.state)) / len(self.weights)

    @property
    def hidden_from_s(self) -> float | None:
        """The least time of dense layers that hides the copies."""
        return None if self.copy_s is None else self.copy_s / FORWARD_SHARE


def stashed_of(problem: Problem, placements: Sequence[Placement], footprint: Footprint) -> StashedBytes | None:
    """The bytes that the placements stash; None if they stash none."""
    if all(each.stash is None for each in placements):
        return None
    says = {each.table: each.stash for each in placements}
    weights, state = restable_bytes(problem, footprint)
    names = [table.name for table in problem.tables]
    chosen = np.array([says[name] is not None for name in names])
    whole = np.array([says[name] == "weights_and_state" for name in names])
    return _told(problem, weights[chosen].sum(axis=0), state[whole].sum(axis=0))


def _told(problem: Problem, weights: Ints, state: Ints) -> StashedBytes:
    bandwidth, stashing = problem.cluster.device.host_link_bandwidth, problem.constraints.stash
    most = int((weights + state).max())
    copy_s = None if bandwidth is None else most / bandwidth
    dense_s = None if stashing is None else stashing.dense_s
    exposed_s = None if copy_s is None or dense_s is None else exposed_seconds(copy_s, dense_s)
    return StashedBytes(
        weights=tuple(weights.tolist()), state=tuple(state.tolist()), copy_s=copy_s, exposed_s=exposed_s
    )  # fmt: skip


def exposed_seconds(copy_s: float, dense_s: float) -> float:
    """Seconds of both copies that the dense forward and the dense backward pass do not hide."""
    return max(0.0, copy_s - FORWARD_SHARE * dense_s) + max(0.0, copy_s - (1 - FORWARD_SHARE) * dense_s)


def schedule_of(problem: Problem, placements: Sequence[Placement], footprint: Footprint, dense: DenseBytes) -> (
    MemorySchedule
):  # fmt: skip
    """The memory of a step, without the bytes that placements stash in dense phases."""
    rests = stashed_of(problem, placements, footprint)
    away = [None, None] if rests is None else [np.array(rests.weights), np.array(rests.state)]
    if problem.cluster.fully_sharded:
        away = [restable_bytes(problem, footprint)[0].sum(axis=0), None]
    return memory_schedule(problem, placements, footprint, dense, *away)


def with_stash(
    problem: Problem, placements: tuple[Placement, ...], footprint: Footprint
) -> tuple[Placement, ...]:  # fmt: skip
    """The placements with the tables stashed that dense phases need to fit; PlanMismatch if stashing is not enough."""
    stashing = problem.constraints.stash
    plain = tuple(replace(each, stash=None) if each.stash else each for each in placements)
    if stashing is None or stashing.dense is None:
        return plain
    if problem.cluster.fully_sharded:
        _check_shared(problem, plain, footprint, stashing.dense)
        return plain
    over = dense_phases_over(memory_schedule(problem, plain, footprint, stashing.dense))
    if (over <= 0).all():
        return plain
    weights, state = restable_bytes(problem, footprint)
    freed = weights + state if stashing.what == "weights_and_state" else weights
    chosen = choose_stash(freed, over)
    if chosen is None:
        raise PlanMismatch(_too_full(freed.sum(axis=0), over))
    _check_hosts(problem, freed[chosen].sum(axis=0))
    names = {problem.tables[t].name for t in np.flatnonzero(chosen).tolist()}
    return tuple(replace(each, stash=stashing.what) if each.table in names else each for each in plain)


def _check_shared(problem: Problem, plain: Sequence[Placement], footprint: Footprint, dense: DenseBytes) -> None:
    """PlanMismatch if dense phases do not fit although replicas share one copy of the weights."""
    over = dense_phases_over(schedule_of(problem, plain, footprint, dense))
    if (over > 0).any():
        raise PlanMismatch(
            f"rank {int(over.argmax())} needs {format_size(int(over.max()))} more than it has in phase "
            f"'{AT_REST[1]}', in which replicas hold one copy of weights between them"
        )


def _too_full(most: Ints, over: Ints) -> str:
    rank = int((over - most).argmax())
    return (
        f"rank {rank} needs {format_size(int(over[rank]))} more than it has in phase '{AT_REST[1]}', and only "
        f"{format_size(int(most[rank]))} of its tables can rest in host memory"
    )


def _check_hosts(problem: Problem, freed: Ints) -> None:
    """PlanMismatch if a host has too little memory for the stashes of its ranks."""
    cluster = problem.cluster
    room = cluster.ddr_bytes_per_host
    most = int(freed.reshape(cluster.hosts, -1).sum(axis=1).max())
    if room is not None and most > room:
        raise PlanMismatch(
            f"the tables that rest need {format_size(most)} of a host's memory, which has {format_size(room)}"
        )


def restable_bytes(problem: Problem, footprint: Footprint) -> tuple[Ints, Ints]:
    """Bytes (T, W) of weights, and of optimizer state, of fused tables on each rank, which may be stashed."""
    # TorchRec's accounting does not separate weights and state
    model = replace(problem.memory_model, accounting="real")
    head, tail = model.parts_of(footprint.mode, footprint.width)
    fused = problem.modes.kernel[footprint.mode] == FUSED.number
    table, span = problem.modes.table[footprint.mode], problem.modes.span[footprint.mode]
    last = last_rank(footprint.target, problem.modes.coverage[footprint.mode])
    local = problem.cluster.local_world_size
    shape = len(problem.tables), problem.cluster.world_size
    made = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for sums, name in zip(made, ("weights", "optimizer state"), strict=True):
        size = np.where(fused, head[name], 0)
        on_rank, on_host, everywhere = (span == each for each in (Span.RANK, Span.HOST, Span.WORLD))
        np.add.at(sums, (table[on_rank], footprint.target[on_rank]), size[on_rank])
        ranks = footprint.target[on_host][:, None] * local + np.arange(local)
        np.add.at(sums, (table[on_host][:, None], ranks), size[on_host][:, None])
        np.add.at(sums, table[everywhere], size[everywhere][:, None])
        np.add.at(sums, (table, last), np.where(fused, tail[name] - head[name], 0))
    return made


# --- which tables -------------------------------------------------------------------------------------------------


def choose_stash(freed: Ints, need: Ints) -> np.ndarray | None:
    """The tables (T,) to stash so that every rank frees what it needs, with least bytes of a rank, then of all ranks.

    freed: bytes (T, W) of each table. need: bytes (W,), 0 or less if there is no need. Returns None if all tables are
    not enough. Up to FEW tables, every choice is tried. Among more tables, those that cover the most need per byte are
    taken, under a limit per rank that is loosened until they are enough.
    """
    need = np.maximum(need, 0)
    some = np.flatnonzero(np.minimum(freed, need).sum(axis=1) > 0)
    if (freed[some].sum(axis=0) < need).any():
        return None
    made = np.zeros(len(freed), dtype=bool)
    picked = _every_choice(freed[some], need) if some.size <= FEW else _by_worth(freed[some], need)
    made[some[picked]] = True
    return made


def _every_choice(freed: Ints, need: Ints) -> np.ndarray:
    choices = np.array(list(product((0, 1), repeat=len(freed))), dtype=np.int64)
    sums = choices @ freed
    enough = np.flatnonzero((sums >= need).all(axis=1))
    best = np.lexsort((sums[enough].sum(axis=1), sums[enough].max(axis=1)))[0]
    return np.flatnonzero(choices[enough[best]])


def _by_worth(freed: Ints, need: Ints) -> np.ndarray:
    """The best of the choices under each limit; the loosest limit always gives one."""
    found: list[np.ndarray] = []
    for looser in LOOSER:
        picked = _under(freed, need, need.max() * looser)
        if picked is not None:
            found.append(_without_needless(picked, freed, need))
    sums = [freed[each].sum(axis=0) for each in found]
    return min(zip(found, sums, strict=True), key=lambda each: (int(each[1].max()), int(each[1].sum())))[0]


def _under(freed: Ints, need: Ints, limit: float) -> np.ndarray | None:
    """Tables in order of the need that they cover per byte, within the limit; None if they are not enough."""
    left, held = need.astype(np.float64), np.zeros(len(need))
    free, picked = np.ones(len(freed), dtype=bool), list[int]()
    size = freed.sum(axis=1)
    while (left > 0).any():
        open_ = np.flatnonzero(free & (held + freed <= limit).all(axis=1))
        worth: Floats = np.minimum(freed[open_], np.maximum(left, 0)).sum(axis=1) / size[open_]
        if not open_.size or worth.max() <= 0:
            return None
        best = int(open_[worth.argmax()])
        free[best] = False
        picked.append(best)
        held += freed[best]
        left -= freed[best]
    return np.array(picked)


def _without_needless(picked: np.ndarray, freed: Ints, need: Ints) -> np.ndarray:
    """The choice without tables that are not needed, removing the largest first."""
    kept, held = list(picked.tolist()), freed[picked].sum(axis=0)
    for table in sorted(kept, key=lambda each: -int(freed[each].sum())):
        if (held - freed[table] >= need).all():
            kept.remove(table)
            held = held - freed[table]
    return np.array(kept)
