"""What a search for a bound ends with, as the parts of a certificate's tree: how it split all plans, and each proof.

analyses/checking.py works out what they prove.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recsmith._types import Floats
from recsmith.bounds.column_spreads import HeavyTableBound
from recsmith.bounds.constraint_bounds import confined_ranks, shared_places
from recsmith.bounds.dual_feasible import COUNT, CUTOFF, FUNCTIONS, STEPS
from recsmith.bounds.fill_levels import PAID, LevelShares
from recsmith.bounds.fill_levels import STEPS as LEVEL_STEPS
from recsmith.bounds.filling_branching import FillingBranching
from recsmith.bounds.groups import replacements_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import Halving, Multipliers
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.plane_mixes import tightest_linear_bound, tightest_mix
from recsmith.bounds.rank_fillings import FillingMultipliers
from recsmith.costs import Evaluator
from recsmith.costs.protocol import RisesBeside
from recsmith.plans.proofs import (
    LargePiece,
    LeafProof,
    LevelPlane,
    LevelsProof,
    PlacesProof,
    ProofPart,
    RanksProof,
    ShareWorth,
    SpreadProof,
    StepWorth,
)

Search = PhaseBranching | FillingBranching | HeavyTableBound
DIGITS = 1e-7  # to which shares of levels are rounded down, so that files are small
KINDS: dict[float, Literal["cutoff", "steps", "count"]] = {CUTOFF: "cutoff", STEPS: "steps", COUNT: "count"}


def closed_groups(evaluator: Evaluator) -> tuple[tuple[int, int], ...]:
    """(group, other) pairs: a search places nothing in the first, as the other holds the same at no higher cost."""
    replaced = replacements_by_type(evaluator)

    def last(group: int) -> int:
        return last(replaced[group]) if group in replaced else group

    return tuple((group, last(into)) for group, into in sorted(replaced.items()))


def parts_of(search: Search) -> list[ProofPart]:
    """The parts of a search as a tree, the first of which is all plans."""
    if not isinstance(search, HeavyTableBound):
        return _parts_of_ranges(search, 0)
    spreads, mode = search.spreads, search.spreads.modes[0]
    table, others = int(spreads.prices.tables[mode.table]), _parts_of_ranges(search.other, 1)
    ends = sorted({end for end in spreads.ends.tolist() if end > 0})
    proof = SpreadProof(table=table, ends=tuple(ends), proofs=tuple(map(_proof, spreads.proofs)))
    return [ProofPart(split="spread", of=table, halves=(1, 1 + len(others))), *others, ProofPart(spreads=proof)]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A part that was not split: how it came from all plans, and what proves its bound."""

    path: tuple[Halving, ...]
    proof: LeafProof


def _leaves(search: PhaseBranching | FillingBranching) -> list[_Leaf]:
    step_s = search.prices.pieces.step_s
    if isinstance(search, PhaseBranching):
        return [_Leaf(node.path, _proof(node.multipliers, step_s)) for node in (*search.heap, *search.impossible)]
    return [
        _Leaf(each.node.path, _proof(each.node.multipliers, step_s) if each.proof is None
              else _proof_by_fillings(search.prices, each.proof))
        for each in (*search.heap, *search.impossible)
    ]  # fmt: skip


def _parts_of_ranges(search: PhaseBranching | FillingBranching, first: int) -> list[ProofPart]:
    """The parts of a search over seconds of the phases; the first of them has that number in the tree."""
    parts: list[ProofPart] = []

    def add(leaves: Sequence[_Leaf], depth: int) -> int:
        place = len(parts)
        parts.append(ProofPart(proof=leaves[0].proof))  # keeps the place where there are more
        if len(leaves) == 1 and len(leaves[0].path) == depth:
            return first + place
        split, of, at, _ = leaves[0].path[depth]
        without, with_ = ([each for each in leaves if each.path[depth].second is half] for half in (False, True))
        number = int(search.prices.tables[of]) if split == "table" else of
        halves = add(without, depth + 1), add(with_, depth + 1)
        parts[place] = ProofPart(split=split, of=number, at=at, halves=halves)  # pyright: ignore[reportArgumentType]
        return first + place

    add(_leaves(search), 0)
    return parts


def _mix(shares: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, shares.tolist()))


def _proof(multipliers: Multipliers, step_s: float = 0.0) -> LeafProof:
    """step_s: seconds of a step of width in the later phases, where multipliers may count them."""
    stepped = float(multipliers.step_multiplier)
    return LeafProof(
        ready=float(multipliers.ready_multiplier), rest=float(multipliers.rest_multiplier),
        byte=float(multipliers.byte_price), mix=_mix(multipliers.mix), plane=multipliers.plane,
        shares=tuple(
            ShareWorth(kind=KINDS[kind], by=by, worth=worth)
            for (kind, by), worth in zip(FUNCTIONS.tolist(), multipliers.dual.tolist(), strict=True) if worth > 0
        ),
        steps=StepWorth(seconds=step_s, worth=stepped) if stepped > 0 and step_s > 0 else None,
    )  # fmt: skip


def _proof_by_fillings(prices: TablePrices, multipliers: FillingMultipliers) -> LeafProof:
    """The multipliers of planes are one of the first phase, times a mix that local groups have in common."""
    ready = float(multipliers.ready.sum())
    shares = multipliers.ready / ready if ready > 0 else multipliers.ready
    mix = np.where(prices.costs.worldwide[:, None], multipliers.mix, shares)
    modes, widths = prices.pieces.modes[multipliers.large], prices.pieces.widths[multipliers.large]
    large = zip(modes.tolist(), widths.tolist(), multipliers.worth.tolist(), strict=True)
    return LeafProof(
        ready=ready, rest=multipliers.rest, byte=multipliers.byte_price / prices.world,
        mix=_mix(mix), plane=0,
        large=tuple(LargePiece(mode=mode, width=width, worth=worth) for mode, width, worth in large),
    )  # fmt: skip


def levels_of(evaluator: Evaluator, search: Search) -> LevelsProof | None:
    """The levels of how full groups are by which a search has prices; None of one without."""
    if isinstance(search, HeavyTableBound) or not isinstance(evaluator, RisesBeside):
        return None
    levels = search.prices.levels
    if levels is None:
        return None
    cut, local = evaluator.share_steps(LEVEL_STEPS), set(levels.pieces.group.tolist())

    def plane(paid: float, shares: LevelShares) -> LevelPlane:
        every = np.floor(np.concatenate([shares.planes, shares.fills], axis=2) / DIGITS) * DIGITS
        groups = [_mix(own) if group in local else () for group, own in enumerate(every)]
        return LevelPlane(paid=paid, shares=tuple(groups))

    return LevelsProof(
        terms=tuple(term for term, _ in cut), ends=tuple(tuple(ends.tolist()) for _, ends in cut),
        kinds=tuple(search.prices.like.tolist()), planes=tuple(map(plane, PAID, levels.shares)),
    )  # fmt: skip


def parts_by_constraints(evaluator: Evaluator) -> list[ProofPart]:
    """Proofs for all plans at once by what constraints ask: of the ranks that carry most, and of the fewest places."""
    linear, mix = tightest_linear_bound(evaluator), _mix(tightest_mix(evaluator))
    confined = confined_ranks(evaluator, linear)
    found = [] if confined is None else [ProofPart(ranks=RanksProof(ranks=tuple(confined.ranks.tolist()), mix=mix))]
    for each in sorted(shared_places(evaluator, linear), key=lambda each: -each.seconds)[:1]:
        places = PlacesProof(constraint=each.group, price=each.price, seconds=each.spread, mix=mix)
        found.append(ProofPart(places=places))
    return found
