"""Converts the final state of a search for a bound into the parts of a certificate's tree: its splits and proofs.

analyses/checking.py computes the bound that they prove.
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
DIGITS = 1e-7  # multiple to which shares of levels are rounded down, to keep files small
KINDS: dict[float, Literal["cutoff", "steps", "count"]] = {CUTOFF: "cutoff", STEPS: "steps", COUNT: "count"}


def closed_groups(evaluator: Evaluator) -> tuple[tuple[int, int], ...]:
    """Pairs (group, other): the search places nothing in `group`, since `other` holds the same at no higher cost."""
    replaced = replacements_by_type(evaluator)

    def last(group: int) -> int:
        return last(replaced[group]) if group in replaced else group

    return tuple((group, last(into)) for group, into in sorted(replaced.items()))


def parts_of(search: Search) -> list[ProofPart]:
    """The parts of a search as a tree; the first part holds all plans."""
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
    """A part that was not split: the splits that lead to it from all plans, and the proof of its bound."""

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
    """The tree of the first search, followed by the trees that continue from several of its leaves at once."""
    before, tables = search.search, search.search.prices.tables
    first = [_leaf_of(before, node) for node in before.impossible]
    trees: list[list[_Leaf]] = []
    place = 2 * (len(first) + len(before.heap)) - 1  # of the next tree: n leaves make a tree of 2 n - 1 parts
    for root, nodes in enumerate(search.begun):
        if nodes[0].value >= search.bound:  # the node of the lowest bound
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
    """The leaves below one root of a search that tells two hosts apart; each path ends at its first proof."""
    mine = [node.proof for node in (*search.heap, *search.impossible) if node.root == root]
    proofs = {proof.path: proof for proof in mine if proof is not None}
    prices = search.search.prices
    return [
        _Leaf(path, ProofPart(hosts=_hosts_proof(proof, prices)))
        for path, proof in proofs.items() if not any(path[:length] in proofs for length in range(len(path)))
    ]  # fmt: skip


def _hosts_proof(proof: HostProof, tables: TablePrices) -> HostsProof:
    """The worths of seconds on both hosts: in both phases, the deduction, and those of whole width steps, if any."""
    step_s = tables.pieces.step_s

    def worth(ready: float, rest: float, own: float, step: float = 0.0) -> HostWorth:
        steps = StepWorth(seconds=step_s, worth=step) if step > 0 and step_s > 0 else None
        return HostWorth(ready=max(ready, 0.0), rest=max(rest, 0.0), own=own, steps=steps)

    one, other = (worth(*prices) for prices in proof.prices.tolist())
    return HostsProof(hosts=(one, other), plane=proof.plane if proof.plane < tables.mixed else None)


def _tree(every: Sequence[_Leaf], tables: Ints, first: int) -> list[ProofPart]:
    """The parts of a tree with these leaves. first: number of its first part in the certificate's tree.

    tables (C,): the problem's table of each different table of the search, to name splits by table.
    """
    parts: list[ProofPart] = []

    def add(leaves: Sequence[_Leaf], depth: int) -> int:
        place = len(parts)
        parts.append(leaves[0].part)  # reserves the place, and is replaced below if there are more leaves
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
    """A leaf's proof by multipliers. step_s: seconds of a width step in the later phases, if steps are counted."""
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
    """A leaf's proof by fillings: one multiplier of the first phase, and a mix of planes shared by all local groups."""
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
    """The levels of group load by which a search has prices; None for a search without levels."""
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
    """The shares of planes by which a search tells two hosts apart; () if it does not."""
    return _mix(search.prices.mix) if isinstance(search, HostBranching) else ()


def parts_by_constraints(evaluator: Evaluator) -> list[ProofPart]:
    """Proofs for all plans from constraints: by ranks that must carry much, and by the strongest limit on places."""
    linear, mix = tightest_linear_bound(evaluator), _mix(tightest_mix(evaluator))
    confined = confined_ranks(evaluator, linear)
    found = [] if confined is None else [ProofPart(ranks=RanksProof(ranks=tuple(confined.ranks.tolist()), mix=mix))]
    for each in sorted(shared_places(evaluator, linear), key=lambda each: -each.seconds)[:1]:
        places = PlacesProof(constraint=each.group, price=each.price, seconds=each.spread, mix=mix)
        found.append(ProofPart(places=places))
    return found
