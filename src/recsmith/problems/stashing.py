"""Tables whose weights rest in host memory while dense layers work: what that frees, and which tables are chosen.

TorchRec 1.8 copies weights of a table with `stash_weights` to pinned host memory behind the lookup, frees them, and
copies them back before their gradients come (torchrec/distributed/memory_stashing.py). Device to host hides in the
dense forward, host to device in the dense backward, which is taken to be twice as long.

A search sees none of this: `Cluster.reserve_bytes` of a plan that stashes is what is kept free in phases in which
nothing rests, and what dense layers need beside it is in `Stashing.dense` (docs/decisions/0055-memory-of-a-step.md).

Legend: T tables, W ranks, C candidates that free anything.
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

FORWARD_SHARE = 1 / 3  # of the time of dense layers: their backward computes two products for each of forward's
FEW = 12  # candidates up to which every choice is looked at
LOOSER = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, np.inf)  # most bytes of a rank over the least, tried in turn


@noun
class StashedBytes:
    """Bytes of each rank that rest, weights and optimizer state; and how long copies of the fullest rank take.

    copy_s: one way; None where nobody knows the link. exposed_s: of a step, that dense layers do not hide; None where
    their time is not known.
    """

    weights: tuple[int, ...]
    state: tuple[int, ...]
    copy_s: float | None
    exposed_s: float | None

    @property
    def rank(self) -> int:
        """The rank that stashes most, the lowest of several."""
        return max(range(len(self.weights)), key=lambda rank: self.weights[rank] + self.state[rank])

    @property
    def most(self) -> int:
        """Bytes of the rank that stashes most."""
        return self.weights[self.rank] + self.state[self.rank]

    @property
    def mean(self) -> float:
        """Bytes of a rank."""
        return (sum(self.weights) + sum(self.state)) / len(self.weights)

    @property
    def hidden_from_s(self) -> float | None:
        """The least time of dense layers that hides the copies."""
        return None if self.copy_s is None else self.copy_s / FORWARD_SHARE


def stashed_of(problem: Problem, placements: Sequence[Placement], footprint: Footprint) -> StashedBytes | None:
    """What the placements say that rests; None where nothing does."""
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
    """Seconds of both copies that the dense forward and the dense backward do not hide."""
    return max(0.0, copy_s - FORWARD_SHARE * dense_s) + max(0.0, copy_s - (1 - FORWARD_SHARE) * dense_s)


def schedule_of(problem: Problem, placements: Sequence[Placement], footprint: Footprint, dense: DenseBytes) -> (
    MemorySchedule
):  # fmt: skip
    """The memory of a step, with what the placements stash away in dense phases."""
    rests = stashed_of(problem, placements, footprint)
    away = [None, None] if rests is None else [np.array(rests.weights), np.array(rests.state)]
    if problem.cluster.fully_sharded:
        away = [restable_bytes(problem, footprint)[0].sum(axis=0), None]
    return memory_schedule(problem, placements, footprint, dense, *away)


def with_stash(
    problem: Problem, placements: tuple[Placement, ...], footprint: Footprint
) -> tuple[Placement, ...]:  # fmt: skip
    """The placements with the tables that must rest for dense phases to fit; PlanMismatch where none is enough."""
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
    """PlanMismatch where dense phases find no room although replicas hold one copy of weights between them."""
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
    """PlanMismatch where a host has no memory for what its ranks stash."""
    cluster = problem.cluster
    room = cluster.ddr_bytes_per_host
    most = int(freed.reshape(cluster.hosts, -1).sum(axis=1).max())
    if room is not None and most > room:
        raise PlanMismatch(
            f"the tables that rest need {format_size(most)} of a host's memory, which has {format_size(room)}"
        )


def restable_bytes(problem: Problem, footprint: Footprint) -> tuple[Ints, Ints]:
    """Bytes (T, W) of weights, and of optimizer state, of fused tables on each rank: what may rest."""
    model = replace(problem.memory_model, accounting="real")  # TorchRec's tells weights and state not apart
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
    """Which tables (T,) rest so that every rank frees what it needs: most of a rank least, then bytes of all ranks.

    freed: bytes (T, W) of each table. need: bytes (W,), 0 or less where none. None where all tables are not enough.
    Every choice of up to FEW tables is looked at; among more, tables are taken by how much of the need they meet for
    each byte, under a limit for a rank that is loosened until they are enough.
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
    """The best of the choices under each limit, the loosest of which always gives one."""
    found: list[np.ndarray] = []
    for looser in LOOSER:
        picked = _under(freed, need, need.max() * looser)
        if picked is not None:
            found.append(_without_needless(picked, freed, need))
    sums = [freed[each].sum(axis=0) for each in found]
    return min(zip(found, sums, strict=True), key=lambda each: (int(each[1].max()), int(each[1].sum())))[0]


def _under(freed: Ints, need: Ints, limit: float) -> np.ndarray | None:
    """Tables in turn, that with most of the need for its bytes first, none beyond the limit; None where it is short."""
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
    """Without tables that the others do without, the largest first."""
    kept, held = list(picked.tolist()), freed[picked].sum(axis=0)
    for table in sorted(kept, key=lambda each: -int(freed[each].sum())):
        if (held - freed[table] >= need).all():
            kept.remove(table)
            held = held - freed[table]
    return np.array(kept)
