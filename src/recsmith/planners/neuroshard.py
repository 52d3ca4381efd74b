"""NeuroShard's search (Zha et al., MLSys 2023) on any cost model: which tables to halve, and where to place the pieces.

The outer search is a beam search over halvings of columns: from each of the K best nodes, halve each of the N pieces
with the most bytes and each of the N that cost most; L levels. The inner search is a greedy grid search with M caps on
the summed width of a device (neuroshard_rollouts.py). All nodes of a level and all caps are placed in lock step, one
piece of each at a time.

Differences from the authors' code (daochenzha/neuroshard): tables too large for every device are halved first, and that
does not count as levels; nodes without a plan are ranked by bytes over capacity; equal shapes are tried once; any cost
model can be used; a piece is placed on the device that is cheapest with it, not before it; pieces of one table on one
device must be equally wide, or TorchRec would not run them; tables that may be neither table_wise nor column_wise keep
their simplest option and are placed before all others.

Legend: P pieces (of every width that halving can make), n pieces of a node.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Ints
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.neuroshard_rollouts import BeamNode, ColumnHalves, Rollouts
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import (
    fewest_pieces_options,
    place_in_fewest_pieces,
    place_longest_first,
    repair,
)
from recsmith.problems import NO_PIECE, Footprint, Problem, ordered_footprint

WIDEST = 1.5  # times the mean width of a device: the largest cap of the grid search, as in the authors' code


@dataclass(frozen=True)
class NeuroShard(SearchPlanner):
    """Beam search over column halvings around a greedy grid search; K, N, L and M are the paper's, with its values.

    beam (K): nodes that are kept after each level. candidates (N): pieces to halve by each measure. depth (L): levels.
    caps (M): caps on a device's width, evenly spaced from the mean width to WIDEST times the mean.
    """

    beam: int = 3
    candidates: int = 10
    depth: int = 10
    caps: int = 11
    name: str = "neuroshard"
    about: str = "NeuroShard's beam over column halvings (Zha et al., 2023)."

    def solve(self, search: Search) -> Solution:
        """Return the beam's best placement; NoPlanFound if tables find no room. An iteration is a level."""
        problem, evaluator = search.problem, search.evaluator
        halves = ColumnHalves.of(problem, evaluator)
        with search.interruptible():
            first = _first(problem, evaluator, halves)
            levels = () if first is None else self._levels(problem, evaluator, halves, first)
            for node in levels:
                assert first is not None, "there are no levels without it"
                search.try_(None if node.target is None else _footprint(problem, halves, node, first))
                if search.stop:
                    break
            if search.best is None:
                simplest = place_in_fewest_pieces(DeviceState(evaluator), shared_relaxation(evaluator))
                search.try_(simplest.footprint(problem) if simplest else None)
        return search.found(
            self.name, "planner neuroshard found no room for every table; try --planner auto, or more memory"
        )

    def _levels(
        self, problem: Problem, evaluator: Evaluator, halves: ColumnHalves, first: Assignment
    ) -> Iterator[BeamNode]:
        """The best node of each level of the beam."""
        rollouts = Rollouts(problem, evaluator, halves, np.linspace(1.0, WIDEST, self.caps), first.footprint(problem))
        beam = [BeamNode(halves.sorted(_fitting(problem, halves)))]
        rollouts.place(beam)
        seen = {_key(halves, beam[0].pieces)}
        yield beam[0]
        for _ in range(self.depth):
            children = [child for node in beam for child in self._children(halves, node, seen)]
            if not children:
                return
            rollouts.place(children)
            beam = sorted(children, key=lambda node: node.rank)[: self.beam]
            yield beam[0]

    def _children(self, halves: ColumnHalves, node: BeamNode, seen: set[bytes]) -> Iterator[BeamNode]:
        """The node with one more piece halved, for each promising piece; no set of shapes is made twice."""
        open_ = node.pieces[halves.half[node.pieces] != NO_PIECE]
        for piece in _promising(halves, open_, self.candidates):
            place = int(np.flatnonzero(node.pieces == piece)[0])
            half = halves.half[piece]
            child = halves.sorted(np.append(np.delete(node.pieces, place), [half, half]))
            key = _key(halves, child)
            if key not in seen:
                seen.add(key)
                yield BeamNode(child)


def _fitting(problem: Problem, halves: ColumnHalves) -> Ints:
    """All tables whole, except those too large for every device: halved until they fit or cannot be halved further."""
    room = int(problem.capacity.max())
    pieces: list[int] = []
    for piece in halves.whole.tolist():
        count = 1
        while halves.bytes[piece] > room and halves.half[piece] != NO_PIECE:
            piece, count = int(halves.half[piece]), count * 2
        pieces += [piece] * count
    return np.array(pieces, dtype=np.int64)


def _promising(halves: ColumnHalves, pieces: Ints, count: int) -> list[int]:
    """The pieces of the `count` largest shapes by bytes and the `count` costliest ones, one piece of each shape."""
    chosen: dict[int, int] = {}
    for value in (halves.bytes.astype(float), halves.seconds):
        ranked = pieces[np.lexsort((halves.order[pieces], -value[pieces]))]
        first = np.sort(np.unique(halves.shape[ranked], return_index=True)[1])[:count]
        for piece in ranked[first].tolist():
            chosen.setdefault(int(halves.shape[piece]), piece)
    return list(chosen.values())


def _key(halves: ColumnHalves, pieces: Ints) -> bytes:
    return np.sort(halves.shape[pieces]).tobytes()


def _first(problem: Problem, evaluator: Evaluator, halves: ColumnHalves) -> Assignment | None:
    """Place the tables that may not be on single devices, in their simplest options; None if a piece finds no room."""
    relaxation = shared_relaxation(evaluator)
    choice = fewest_pieces_options(relaxation)
    every = Assignment.of(problem, choice)
    others = ~np.isin(every.table, halves.table)
    first = Assignment(choice, every.table[others], every.piece[others], every.target[others])
    if not relaxation.option_fits[choice[np.unique(first.table)]].all():
        return None
    state = DeviceState(evaluator)
    place_longest_first(state, first, state.seconds)
    repair(state, first)
    return first if first.complete else None


def _footprint(problem: Problem, halves: ColumnHalves, node: BeamNode, first: Assignment) -> Footprint:
    """The plan of a node together with the tables that were placed first."""
    assert node.target is not None
    placed = first.footprint(problem)
    mode = np.concatenate([halves.mode[node.pieces], placed.mode])
    width = np.concatenate([halves.width[node.pieces], placed.width])
    target = np.concatenate([node.target, placed.target])
    return ordered_footprint(problem, mode, width, target)
