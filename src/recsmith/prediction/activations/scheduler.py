"""Decides how many members are trained at once, and which activations are kept, copied, or computed again.

The scheduler of Purandare et al., "mu-TWO" (MLSys 2023), sections 3.2 and 4.2: partitions of the members into
sub-arrays are simulated, those above the limit of memory are dropped, and the shortest is taken. In a partition, one
activation after the other is given up while the peak is above the limit. The candidates are the one that is unused for
longest, to be copied to the host, and the one that frees most bytes per second of computing, to be computed again; the
cheaper one in the simulation is taken.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from recsmith.errors import NoPlanFound
from recsmith.prediction.activations.graph import Action, TrainingGraph, Way, Ways, actions_of
from recsmith.prediction.activations.timeline import Timeline, played
from recsmith.units import counted, format_size

BOTH: tuple[Way, ...] = ("swap", "recompute")
GraphOf = Callable[[int, int], TrainingGraph]  # (group of equal members, number of them) -> their fused step
Part = tuple[int, int]  # a part of a partition: (group, number of members)


@dataclass(frozen=True)
class ArraySchedule:
    """A step of all members: sub-arrays in their order, each with the treatment of its activations.

    peak_bytes, end_bytes: in memory at most, and at the end. stalled_s: seconds of waiting for copies. again_s: seconds
    of computing again. copied_s: seconds of copies on the link.
    """

    parts: tuple[Part, ...]
    ways: dict[Part, Ways]
    actions: tuple[tuple[int, Action], ...]
    peak_bytes: int
    end_bytes: int
    seconds: float
    stalled_s: float
    again_s: float
    copied_s: float

    @property
    def again_share(self) -> float:
        """Seconds of computing again, as a share of the seconds of computing once."""
        return self.again_s / max(1e-30, self.seconds - self.stalled_s - self.again_s)

    def line(self, limit: float) -> str:
        """A line on the schedule and its memory."""
        sizes = ", ".join(str(size) for _, size in self.parts)
        given_up = {way: sum(each == way for ways in self.ways.values() for each in ways.values()) for way in BOTH}
        done = [f"{counted(given_up[way], 'activation')} {how}" for way, how in
                (("swap", "copied to the host"), ("recompute", "computed again")) if given_up[way]]  # fmt: skip
        more = f", {self.again_share:.0%} more computing of layers" if given_up["recompute"] else ""
        return (
            f"layers: members are trained {sizes} at once, {' and '.join(done) or 'all activations are kept'}{more}; "
            f"at most {format_size(self.peak_bytes)} of array.layer_memory {format_size(limit)} by simulation"
        )


def scheduled(
    graph_of: GraphOf, candidates: Iterable[Sequence[Part]], limit: float, *, link: float | None,
    ways: Sequence[Way] = BOTH, joined: int = 0, held: int = 0,
) -> ArraySchedule:  # fmt: skip
    """The shortest schedule that stays within the limit.

    Args:
        graph_of: gives the fused step of a part.
        candidates: partitions of the members.
        limit: bytes of memory.
        link: bytes per second to the host; without it nothing is copied.
        ways: permitted treatments of activations.
        joined: bytes into which results of several sub-arrays are copied at the end.
        held: bytes that are in use in addition, all the time.

    Raises:
        NoPlanFound: the simulation finds no schedule within the limit.
    """
    allowed: list[Way] = [way for way in ways if link or way != "swap"]
    best: ArraySchedule | None = None
    least = math.inf
    for parts in candidates:
        graphs = {part: graph_of(*part) for part in parts}
        if best is not None and sum(graphs[part].seconds for part in parts) >= best.seconds:
            continue  # giving up activations never makes it shorter
        found = _within(parts, graphs, limit - held, link or math.inf, allowed)
        most = max(found.peak_bytes, found.end_bytes + (joined if len(parts) > 1 else 0)) + held
        found = replace(found, peak_bytes=most)
        least = min(least, found.peak_bytes)
        if found.peak_bytes <= limit and (best is None or found.seconds < best.seconds):
            best = found
    if best is None:
        raise NoPlanFound(
            f"array.layer_memory is {format_size(limit)}, and the least that was found for a step of the layers is "
            f"{format_size(least)}; allow that much, or lower data.batch_size or the sizes of layers"
        )
    return best


def partitions(members: Sequence[int], most: int | None = None) -> Iterator[tuple[Part, ...]]:
    """Partitions of members into sub-arrays of about equal size, from all or `most` at once to one at a time.

    members: number of members in each group of equal ones.
    """
    before = None
    for at_once in range(min(most or max(members), max(members)), 0, -1):
        parts: list[Part] = []
        for group, count in enumerate(members):
            pieces = math.ceil(count / at_once)
            parts += [(group, count // pieces + (piece < count % pieces)) for piece in range(pieces)]
        if parts != before:
            yield tuple(parts)
        before = parts


def _within(
    parts: Sequence[Part], graphs: dict[Part, TrainingGraph], limit: float, link: float, allowed: Sequence[Way]
) -> ArraySchedule:  # fmt: skip
    """The schedule of one partition; its peak is above the limit if no more activations can be given up."""
    order = [graphs[part] for part in parts]
    actions = lru_cache(maxsize=256)(lambda part, ways: actions_of(graphs[part], dict(ways)))

    def play(ways: dict[Part, dict[int, Way]]) -> Timeline:
        return played(order, [actions(part, tuple(ways[part].items())) for part in parts], limit, link)

    ways: dict[Part, dict[int, Way]] = {part: {} for part in graphs}
    left: dict[Way, set[tuple[Part, int]]] = {
        way: {(part, each) for part, graph in graphs.items() for each in graph.uses
              if graph.operations[each].nbytes and (way == "swap" or graph.operations[each].repeats)}
        for way in allowed
    }  # fmt: skip
    line = play(ways)
    while line.peak > limit:
        idle = {(parts[array], each) for array, at in line.peak_at.items()
                for each, (last, first) in order[array].uses.items() if last < at < first}  # fmt: skip
        trials: list[tuple[Timeline, Way, Part, int]] = []
        for way in allowed:
            worth = {(_worth(way, graphs[part], ways[part], each), part, each) for part, each in left[way] & idle}
            if worth:
                _, part, each = max(worth)
                trials.append((play({**ways, part: {**ways[part], each: way}}), way, part, each))
        if not trials:
            break
        trial, way, part, each = min(trials, key=lambda found: (found[0].seconds, found[0].peak))
        left[way].discard((part, each))
        if trial.peak <= line.peak:
            ways[part][each] = way
            line = trial
            for candidates in left.values():
                candidates.discard((part, each))
    return ArraySchedule(
        parts=tuple(parts), ways={part: dict(each) for part, each in ways.items()}, actions=tuple(line.actions),
        peak_bytes=line.peak, end_bytes=line.live, seconds=line.seconds, stalled_s=line.stalled_s,
        again_s=line.again_s, copied_s=line.copied_s,
    )  # fmt: skip


def _worth(way: Way, graph: TrainingGraph, ways: dict[int, Way], each: int) -> tuple[float, float]:
    """The criterion for candidates: inactive time, or bytes freed per second of computing (recompute ratio).

    The seconds include the additional computing of other activations that are computed again. Among equal candidates
    the one that is unused for longest is chosen.
    """
    idle = graph.inactive_s(each)
    if way == "swap":
        return idle, 0.0
    more = graph.again_s({**ways, each: way}) - graph.again_s(ways)
    return float(f"{graph.operations[each].nbytes / max(1e-12, more):.6g}"), idle
