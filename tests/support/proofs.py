"""Proofs that no search would make, for tests that none of them proves more than the best plan takes."""

from dataclasses import replace
from typing import Literal

import numpy as np

from recsmith.analyses.checked_statement import Statement
from recsmith.analyses.checking import proven_seconds
from recsmith.costs import Evaluator
from recsmith.plans.proofs import (
    LargePiece,
    LeafProof,
    LevelPlane,
    LevelsProof,
    PlacesProof,
    ProofPart,
    ProofTree,
    RanksProof,
    ShareWorth,
    StepWorth,
)
from support.cases import Pick

SMALL = 20  # trees of a leaf or two that are drawn for a problem
KINDS_OF_SHARES: tuple[tuple[Literal["cutoff", "steps", "count"], float], ...] = (
    ("cutoff", 0.5), ("cutoff", 0.3), ("steps", 0.36), ("steps", 0.5), ("count", 1.0), ("count", 3.0)
)  # fmt: skip
SHARES = [ShareWorth(kind=kind, by=by, worth=worth) for kind, by in KINDS_OF_SHARES for worth in (0.2, 1.0)]


def assert_none_is_false(pick: Pick, evaluator: Evaluator, tree: ProofTree, least: float, small: int = SMALL) -> None:
    """Neither what a tree claims nor what drawn ones prove exceeds the seconds of the best plan."""
    assert 0 <= tree.seconds <= least * (1 + 1e-12)
    drawn = Drawn(pick, evaluator, tree)
    for made in (*(drawn.split() for _ in range(3)), *(drawn.small() for _ in range(small))):
        assert proven_seconds(evaluator, made) <= least * (1 + 1e-12)


class Drawn:
    """Trees that no search would make."""

    def __init__(self, pick: Pick, evaluator: Evaluator, tree: ProofTree) -> None:
        self.pick, self.evaluator, self.tree, self.statement = pick, evaluator, tree, Statement(evaluator)
        local = self.statement.local & self.statement.fits
        narrow = local & (self.statement.width <= self.statement.width[local].min(initial=2**30))
        self.pieces = [np.flatnonzero(some).tolist() for some in (local, narrow)]

    def split(self) -> ProofTree:
        """The tree with some leaves split at random, and the multipliers of all leaves drawn."""
        groups, tables = self.evaluator.groups, len(self.evaluator.problem.tables)
        parts = list(self.tree.parts)
        for _ in range(4 if parts[0].split or parts[0].proof else 0):
            place = self.pick([at for at, part in enumerate(parts) if part.proof is not None])
            end, halves = parts[place], (len(parts), len(parts) + 1)
            split = self.pick(["group", "table"])
            of = self.pick(range(groups if split == "group" else tables))
            parts[place] = ProofPart(split=split, of=of, halves=halves)
            parts += [end, end]
        return replace(self.tree, parts=tuple(map(self._with_others, parts)), levels=self._levels())

    def _with_others(self, part: ProofPart) -> ProofPart:
        if part.spreads is not None:
            ends = tuple(sorted({self.tree.below * self.pick([0.1, 0.3, 0.6, 0.61, 0.8]) for _ in range(3)}))
            proofs = tuple(self.leaf(len(each.mix[0])) for each in part.spreads.proofs[:5])
            return replace(part, spreads=replace(part.spreads, ends=ends, proofs=proofs))
        return part if part.proof is None else ProofPart(proof=self.leaf(len(part.proof.mix[0])))

    def small(self) -> ProofTree:
        """One leaf, or two that each have a part of the first phase: nothing hides what is wrong with one."""
        planes = self.statement.ready.shape[1] + (0 if self.tree.levels is None else len(self.tree.levels.planes))
        parts = [ProofPart(proof=self.leaf(planes)) for _ in range(self.pick((1, 2)))]
        counted = [at for at, group in enumerate(self.statement.problem.legality.groups) if group.kind != "together"]
        if self.statement.problem.legality.any and self.pick((True, False)):
            parts[0] = self.pick((self._ranks, self._places if counted else self._ranks))(planes, counted)
        if len(parts) == 2:
            at = self.tree.below * self.pick([0.2, 0.4, 0.6])
            parts.insert(0, ProofPart(split="ready", at=at, halves=(1, 2)))
        return replace(self.tree, parts=tuple(parts), levels=self._levels())

    def _levels(self) -> LevelsProof | None:
        """Levels with other ends, and with shares of few planes, and of few ways to fill a level."""
        known, planes = self.tree.levels, self.statement.ready.shape[1]
        if known is None:
            return None

        def shares(own: tuple[float, ...]) -> tuple[float, ...]:
            drawn = np.array([self.pick([0.0, 0.0, 0.3, 1.0]) for _ in own])
            drawn[:planes] /= max(1.0, drawn[:planes].sum())
            drawn[planes:] /= max(1.0, drawn[planes:].sum())
            return tuple(drawn.tolist())

        made = tuple(
            LevelPlane(paid=self.pick([0.0, 0.5, 1.0]),
                       shares=tuple(tuple(map(shares, group)) for group in plane.shares))
            for plane in known.planes
        )  # fmt: skip
        ends = tuple(
            tuple(end * scale for end in each) for each in known.ends for scale in [self.pick([1.0, 0.1, 5.0])]
        )
        return replace(known, planes=made, ends=ends)

    def _ranks(self, planes: int, _: list[int]) -> ProofPart:
        ranks = tuple(rank for rank in range(self.statement.world) if self.pick((True, False))) or (0,)
        return ProofPart(ranks=RanksProof(ranks=ranks, mix=self._mix(planes)))

    def _places(self, planes: int, counted: list[int]) -> ProofPart:
        price, seconds = (self.tree.below * self.pick([0.0, 0.2, 0.5, 0.7, 0.9]) for _ in range(2))
        return ProofPart(places=PlacesProof(
            constraint=self.pick(counted), price=price, seconds=seconds, mix=self._mix(planes)
        ))  # fmt: skip

    def _mix(self, planes: int) -> tuple[tuple[float, ...], ...]:
        """Of several planes, or of one alone, as of one by levels."""
        if self.pick((True, False)):
            one = np.eye(planes)[self.pick(range(planes))]
            return (tuple(one.tolist()),) * self.evaluator.groups
        shares = np.array([[self.pick([0.0, 0.3, 1.0]) for _ in range(planes)] for _ in range(self.evaluator.groups)])
        shares += 1e-3
        return tuple(map(tuple, (shares / shares.sum(axis=1, keepdims=True)).tolist()))

    def leaf(self, planes: int) -> LeafProof:
        pick = self.pick
        return LeafProof(
            ready=pick([0.0, 0.4, 1.0, 1.7]), rest=pick([0.0, 0.5, 1.0, 3.0]), byte=pick([0.0, 1e-15, 1e-12]),
            mix=self._mix(planes), plane=pick(range(self.statement.ready.shape[1])),
            shares=pick([(), (pick(SHARES),), (pick(SHARES), pick(SHARES))]), large=self._large(),
            steps=self._steps(),
        )  # fmt: skip

    def _steps(self) -> StepWorth | None:
        """Steps of the narrowest piece, of half or of twice as much."""
        rest = self.statement.rest[self.statement.local & (self.statement.rest > 0)]
        if not len(rest) or self.pick((True, False)):
            return None
        return StepWorth(seconds=float(rest.min()) * self.pick([0.5, 1.0, 2.0, 3.0]), worth=self.pick([0.3, 1.0, 3.0]))

    def _large(self) -> tuple[LargePiece, ...]:
        """Pieces worth about as much of the seconds that matter as they take of them, or much more."""
        pick, statement = self.pick, self.statement
        pieces, more = pick(self.pieces), pick([0.3, 1.0, 1.1, 3.0])
        some = [pick(pieces) for _ in range(pick([0, 1, 2, 5]))] if pieces else []
        return tuple(
            LargePiece(mode=int(statement.mode[piece]), width=int(statement.width[piece]),
                       worth=more * pick([self.tree.below, float(statement.ready[piece].max())]))
            for piece in some
        )  # fmt: skip
