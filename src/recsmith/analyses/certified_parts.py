"""What a search for a bound ends with, as the parts of a certificate's tree: how it split all plans, and each proof.

analyses/checking.py works out what they prove.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.column_spreads import HeavyTableBound
from recsmith.bounds.constraint_bounds import confined_ranks, shared_places
from recsmith.bounds.dual_feasible import COUNT, CUTOFF, FUNCTIONS, STEPS
from recsmith.bounds.fill_levels import PAID, LevelShares
from recsmith.bounds.fill_levels import STEPS as LEVEL_STEPS
from recsmith.bounds.filling_branching import FillingBranching
from recsmith.bounds.groups import replacements_by_type
from recsmith.bounds.host_branching import HostBranching
from recsmith.bounds.host_prices import HostProof
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import Halving, Multipliers, PhaseNode
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.plane_mixes import tightest_linear_bound, tightest_mix
from recsmith.bounds.rank_fillings import FillingMultipliers
from recsmith.costs import Evaluator
from recsmith.costs.protocol import RisesBeside
from recsmith.plans.proofs import (
    HostsProof,
    HostWorth,
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

Search = PhaseBranching | FillingBranching | HeavyTableBound | HostBranching
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
    if isinstance(search, HostBranching):
        return _parts_of_hosts(search)
    if not isinstance(search, HeavyTableBound):
        return _tree(_leaves(search), search.prices.tables, 0)
    spreads, mode = search.spreads, search.spreads.modes[0]
    table, other = int(spreads.prices.tables[mode.table]), search.other
    others = _tree(_leaves(other), other.prices.tables, 1)
    ends = sorted({end for end in spreads.ends.tolist() if end > 0})
    proof = SpreadProof(table=table, ends=tuple(ends), proofs=tuple(map(_proof, spreads.proofs)))
    return [ProofPart(split="spread", of=table, halves=(1, 1 + len(others))), *others, ProofPart(spreads=proof)]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A part that was not split: how it came from all plans, and what proves its bound."""

    path: tuple[Halving, ...]
    part: ProofPart


def _leaves(search: PhaseBranching | FillingBranching) -> list[_Leaf]:
    if isinstance(search, PhaseBranching):
        return [_leaf_of(search, node) for node in (*search.heap, *search.impossible)]
    step_s = search.prices.pieces.step_s
    proofs = [
        (each.node.path, _proof(each.node.multipliers, step_s) if each.proof is None
         else _proof_by_fillings(search.prices, each.proof))
        for each in (*search.heap, *search.impossible)
    ]  # fmt: skip
    return [_Leaf(path, ProofPart(proof=proof)) for path, proof in proofs]


def _leaf_of(search: PhaseBranching, node: PhaseNode) -> _Leaf:
    return _Leaf(node.path, ProofPart(proof=_proof(node.multipliers, search.prices.pieces.step_s)))


def _parts_of_hosts(search: HostBranching) -> list[ProofPart]:
    """The search before as a tree, and after it those of the parts that go on from several of its leaves at once."""
    before, tables = search.search, search.search.prices.tables
    first = [_leaf_of(before, node) for node in before.impossible]
    trees: list[list[_Leaf]] = []
    place = 2 * (len(first) + len(before.heap)) - 1  # of the next tree: as many parts as a tree of so many leaves has
    for root, nodes in enumerate(search.begun):
        if nodes[0].value >= search.bound:  # the lowest
            first += [_leaf_of(before, node) for node in nodes]
            continue
        first += [_Leaf(node.path, ProofPart(into=place)) for node in nodes]
        trees.append(_host_leaves(search, root))
        place += 2 * len(trees[-1]) - 1
    parts = _tree(first, tables, 0)
    for leaves in trees:
        parts += _tree(leaves, tables, len(parts))
    return parts


def _host_leaves(search: HostBranching, root: int) -> list[_Leaf]:
    """The parts that a part was split into where two hosts are told apart; no further than prices prove the bound."""
    mine = [node.proof for node in (*search.heap, *search.impossible) if node.root == root]
    proofs = {proof.path: proof for proof in mine if proof is not None}
    prices = search.search.prices
    return [
        _Leaf(path, ProofPart(hosts=_hosts_proof(proof, prices)))
        for path, proof in proofs.items() if not any(path[:length] in proofs for length in range(len(path)))
    ]  # fmt: skip


def _hosts_proof(proof: HostProof, tables: TablePrices) -> HostsProof:
    """Prices of both hosts: of both phases, what is taken off, and of whole steps of width, where they have some."""
    step_s = tables.pieces.step_s

    def worth(ready: float, rest: float, own: float, step: float = 0.0) -> HostWorth:
        steps = StepWorth(seconds=step_s, worth=step) if step > 0 and step_s > 0 else None
        return HostWorth(ready=max(ready, 0.0), rest=max(rest, 0.0), own=own, steps=steps)

    one, other = (worth(*prices) for prices in proof.prices.tolist())
    return HostsProof(hosts=(one, other), plane=proof.plane if proof.plane < tables.mixed else None)


def _tree(every: Sequence[_Leaf], tables: Ints, first: int) -> list[ProofPart]:
    """The parts of a tree with these leaves; the first of them has that number in the certificate's tree.

    tables (C,): the table that splits by a different table are of.
    """
    parts: list[ProofPart] = []

    def add(leaves: Sequence[_Leaf], depth: int) -> int:
        place = len(parts)
        parts.append(leaves[0].part)  # keeps the place where there are more
        if len(leaves) == 1 and len(leaves[0].path) == depth:
            return first + place
        split, of, at, _ = leaves[0].path[depth]
        without, with_ = ([each for each in leaves if each.path[depth].second is half] for half in (False, True))
        number = int(tables[of]) if split == "table" else of
        halves = add(without, depth + 1), add(with_, depth + 1)
        parts[place] = ProofPart(split=split, of=number, at=at, halves=halves)  # pyright: ignore[reportArgumentType]
        return first + place

    add(every, 0)
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
    if isinstance(search, HeavyTableBound | HostBranching) or not isinstance(evaluator, RisesBeside):
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


def apart_of(search: Search) -> tuple[tuple[float, ...], ...]:
    """The shares of planes by which a search tells two hosts apart; of none, if it does not."""
    return _mix(search.prices.mix) if isinstance(search, HostBranching) else ()


def parts_by_constraints(evaluator: Evaluator) -> list[ProofPart]:
    """Proofs for all plans at once by what constraints ask: of the ranks that carry most, and of the fewest places."""
    linear, mix = tightest_linear_bound(evaluator), _mix(tightest_mix(evaluator))
    confined = confined_ranks(evaluator, linear)
    found = [] if confined is None else [ProofPart(ranks=RanksProof(ranks=tuple(confined.ranks.tolist()), mix=mix))]
    for each in sorted(shared_places(evaluator, linear), key=lambda each: -each.seconds)[:1]:
        places = PlacesProof(constraint=each.group, price=each.price, seconds=each.spread, mix=mix)
        found.append(ProofPart(places=places))
    return found
