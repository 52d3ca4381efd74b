"""Verifies the bound of a certificate, by code that shares nothing with the search that found it.

Starting from the statement (checked_statement.py), every step of the proof (docs/bounds.md) is computed again: that the
parts cover all plans, that excluded groups lose nothing, and what each leaf proves. Numbers of single pieces are
rounded against the claim, and those of a leaf are fractions, so rounding cannot make a false claim true.
"""

from dataclasses import replace
from fractions import Fraction
from math import fsum

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.analyses.checked_constraints import places_seconds, ranks_seconds
from recsmith.analyses.checked_fillings import filling_prices
from recsmith.analyses.checked_hosts import all_of, host_halves, host_seconds, told_apart
from recsmith.analyses.checked_levels import levels_of, taken_seconds
from recsmith.analyses.checked_prices import Plans, mix_of, piece_prices, share_seconds, step_seconds, table_prices
from recsmith.analyses.checked_spreads import split_groups, spread_seconds
from recsmith.analyses.checked_statement import EQUAL, NO_PLAN, Statement, at_most, check_certifiable, double_below
from recsmith.costs import Evaluator
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import LeafProof, ProofPart, ProofTree
from recsmith.problems import NO_PIECE
from recsmith.sharding import WIDTH_STEP

__all__ = ["check_certifiable", "proven_seconds"]


def proven_seconds(evaluator: Evaluator, tree: ProofTree) -> float:
    """The lower bound in seconds that a certificate's tree proves for all plans of the evaluator's space.

    Raises:
        CorruptFile: a part is missing, used twice or invalid, or an excluded group may hold a cheaper plan.
        UsageError: the cost model has no planes, or planes below zero.
    """
    statement = Statement(evaluator)
    open_: Bools = np.ones((len(evaluator.problem.tables), evaluator.groups), dtype=bool)
    for group, other in tree.closed:
        _check_closed(statement, group, other, {closed for closed, _ in tree.closed})
        open_[:, group] = False
    if tree.levels is not None:
        statement.levels = levels_of(statement, tree.levels, tree.below)
    apart = told_apart(statement, tree.apart) if tree.apart else None
    several = evaluator.step_rule.several_phases
    nobody: Bools = np.zeros(evaluator.groups, dtype=bool)
    everything = Plans((0.0, tree.below), (0.0, tree.below if several else 0.0), open_, nobody)
    least, todo, seen = Fraction(tree.below), [(0, everything)], set[int]()
    together = dict[int, Plans]()  # union of the parts that continue in one part, by that part's number
    while todo or together:
        if not todo:
            todo, together = list(together.items()), {}
        place, plans = todo.pop()
        if place in seen or place >= len(tree.parts):
            raise CorruptFile(f"part {place} of the certificate is there twice, or not at all; write it anew")
        seen.add(place)
        part = tree.parts[place]
        if part.proof is not None:
            least = min(least, leaf_seconds(statement, plans, part.proof))
        elif part.spreads is not None:
            least = min(least, spread_seconds(statement, plans, part.spreads, tree.below, tree.seconds))
        elif part.ranks is not None:
            least = min(least, ranks_seconds(statement, plans, part.ranks))
        elif part.places is not None:
            least = min(least, places_seconds(statement, plans, part.places))
        elif part.hosts is not None:
            least = min(least, host_seconds(statement, plans, part.hosts, apart))
        elif part.into is not None:
            together[part.into] = all_of(plans, together.get(part.into, plans))
        elif part.split == "host":
            todo += zip(part.halves, host_halves(plans, part, apart), strict=True)
        else:
            todo += zip(part.halves, _halves(statement, plans, part), strict=True)
    return max(double_below(least * (1 - Fraction(EQUAL))), 0.0)


def _halves(statement: Statement, plans: Plans, part: ProofPart) -> tuple[Plans, Plans]:
    """The halves of a split; every plan of the part is in one of them."""
    if part.split in ("ready", "rest"):
        low, high = getattr(plans, part.split)
        if not low <= part.at <= high:
            raise CorruptFile(f"a range of {low} to {high} s is split at {part.at} s; write the certificate anew")
        return replace(plans, **{part.split: (low, part.at)}), replace(plans, **{part.split: (part.at, high)})
    if not 0 <= part.of < plans.open.shape[part.split == "group"]:
        raise CorruptFile(f"{part.split} {part.of} of the certificate does not exist; write it anew")
    without = plans.open.copy()
    if part.split == "group":
        without[:, part.of] = False
        return replace(plans, open=without), replace(plans, paid=plans.paid | (np.arange(len(plans.paid)) == part.of))
    only = plans.open.copy()
    apart = split_groups(statement, part.of) if part.split == "spread" else statement.worldwide
    without[part.of, apart], only[part.of, ~apart] = False, False
    return replace(plans, open=without), replace(plans, open=only)


def leaf_seconds(statement: Statement, plans: Plans, proof: LeafProof) -> Fraction:
    """Lower bound in seconds on all plans of a part, by the multipliers of a leaf."""
    mix = mix_of(statement, proof.mix, proof.plane)
    taken = taken_seconds(statement, plans, mix)
    if taken or plans.ready[1] <= 0:  # shares of a rank are only valid for seconds that do not exceed `ready`
        proof = replace(proof, shares=())
    filled = Fraction(proof.ready) * taken + share_seconds(plans, proof)
    filled += step_seconds(plans, proof.steps) if proof.steps is not None else 0
    price = piece_prices(statement, plans, proof, mix, filled)
    if proof.large:
        more, most = filling_prices(statement, plans, proof)
        price, filled = at_most(price + more, 1), filled + most
    least = np.where(plans.open, table_prices(statement, proof.byte, mix, price), np.inf).min(axis=1)
    if not np.isfinite(least).all():
        return NO_PLAN
    low = Fraction(plans.ready[0]) + Fraction(plans.rest[0])
    capacity = sum(map(Fraction, statement.problem.capacity.tolist()))
    ready, rest, byte = Fraction(proof.ready), Fraction(proof.rest), Fraction(proof.byte)
    total = Fraction(float(np.nextafter(fsum(least.tolist()), -np.inf))) - byte * capacity
    total += min((1 - ready) * Fraction(end) for end in plans.ready) - filled
    total += min((1 - rest) * Fraction(end) for end in plans.rest)
    return statement.certain(plans.paid) + max(total, low)


def _check_closed(statement: Statement, group: int, other: int, closed: set[int]) -> None:
    """Raise CorruptFile unless `other`, which is not closed, holds all that `group` can hold at no higher cost."""
    evaluator, problem = statement.evaluator, statement.problem
    modes, options = problem.modes, problem.options
    where = f"group {group} is left out of the certificate for group {other}"
    if not (0 <= group < evaluator.groups and 0 <= other < evaluator.groups) or other in closed:
        raise CorruptFile(f"{where}, which is not there; write it anew")
    if (evaluator.shared[other] > evaluator.shared[group]).any():
        raise CorruptFile(f"{where}, whose collectives take longer; write it anew")
    keys = list(zip(modes.table.tolist(), modes.kernel.tolist(), modes.load_factor.tolist(), strict=True))
    into = {key: mode for mode, key in enumerate(keys) if evaluator.group[mode] == other}
    shapes = _shapes(statement, other)
    held: set[tuple[int, int, int]] = set()  # (mode, mode in the other group, columns) of pieces that change groups
    for option in np.flatnonzero(evaluator.group[options.mode] == group).tolist():
        mine = int(options.mode[option])
        theirs, shape = into.get(keys[mine]), _shape(statement, option)
        if theirs is None or modes.coverage[theirs] != modes.coverage[mine] or (
            not statement.at_will[theirs] and (statement.at_will[mine] or (theirs, shape) not in shapes)
        ):  # fmt: skip
            raise CorruptFile(f"{where}, which does not hold all that it holds; write it anew")
        steps = int(problem.demand.dim[modes.table[mine]]) // WIDTH_STEP if statement.at_will[mine] else 0
        held |= {(mine, theirs, WIDTH_STEP * step) for step in range(1, steps + 1)}
        held |= {(mine, theirs, width) for width, _ in shape}
    if held and not _hold(statement, *np.array(sorted(held)).T):
        raise CorruptFile(f"{where}, which does not hold all that it holds; write it anew")


def _shape(statement: Statement, option: int) -> tuple[tuple[int, int], ...]:
    """The pieces of an option, as pairs (columns, count)."""
    problem, options = statement.problem, statement.problem.options
    pairs = zip(options.piece[option].tolist(), options.count[option].tolist(), strict=True)
    return tuple((int(problem.pieces.width[piece]), count) for piece, count in pairs if piece != NO_PIECE)


def _shapes(statement: Statement, group: int) -> set[tuple[int, tuple[tuple[int, int], ...]]]:
    """The pairs (mode, shape) of all options of a group."""
    mode = statement.problem.options.mode
    mine = np.flatnonzero(statement.evaluator.group[mode] == group).tolist()
    return {(int(mode[option]), _shape(statement, option)) for option in mine}


def _hold(statement: Statement, mine: Ints, theirs: Ints, widths: Ints) -> bool:
    """Whether the modes `theirs` hold pieces of these widths at no higher cost than `mine`, and in equal bytes."""
    problem, terms = statement.problem, statement.evaluator.terms
    bytes_ = zip(problem.least_memory(mine, widths), problem.least_memory(theirs, widths), strict=True)
    same = all(np.array_equal(a.device, b.device) and np.array_equal(a.host, b.host) for a, b in bytes_)
    allowed = problem.allowed(theirs, widths) | ~statement.at_will[theirs] | statement.at_will[mine]
    return bool((terms(theirs, widths) <= terms(mine, widths) * (1 + EQUAL)).all()) and same and bool(allowed.all())
