"""Makes the certificate of a plan: the proof of its bound, as a file that `recsmith check` proves again.

The search of bounds/phase_branching.py, or that over the spreads of a heavy table, is run anew, and what it ends with
is written down: how it split all plans, and the multipliers of every part. The certified seconds are those that
checking.py finds in it. They may be fewer than the bound that is printed with the plan, which rests on more kinds of
proofs: lifted and bent planes and constraints have no certificate yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from recsmith._types import Source
from recsmith.analyses.checking import check_certifiable, proven_seconds
from recsmith.bounds.column_spreads import HeavyTableBound
from recsmith.bounds.dual_feasible import COUNT, CUTOFF, FUNCTIONS, STEPS
from recsmith.bounds.groups import replacements_by_type
from recsmith.bounds.lower_bound import always, certified_search
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import Multipliers, PhaseNode
from recsmith.costs import Evaluator, cost_model
from recsmith.errors import CorruptFile, UsageError
from recsmith.planning.simulate import price_plan
from recsmith.plans import LONGER, Plan, load_plan
from recsmith.plans.certificates import (
    Certificate,
    LeafProof,
    ProofPart,
    ProofTree,
    ShareWorth,
    SpreadProof,
    load_certificate,
)
from recsmith.problems import problem_of

WORK = 2_000_000_000  # numbers that the search works on: as many as for the bound of a problem of some size
PROVED_WORK = 60_000_000_000  # the same where a better bound is asked for
KINDS: dict[float, Literal["cutoff", "steps", "count"]] = {CUTOFF: "cutoff", STEPS: "steps", COUNT: "count"}
CLOSE = 1e-9  # relative: by how much the price of a plan may differ from what its file says


def certify(plan: Plan | Source, *, work: int = WORK, keep_on: Callable[[], bool] = always) -> Certificate:
    """The proof that no plan of the space of a plan takes fewer seconds under its cost model, of as many as it finds.

    It holds the plan; where it proves more than the plan's bound, that becomes the bound.

    Args:
        plan: a Plan, or its file.
        work: numbers that the search for the proof works on.
        keep_on: asked now and then whether to go on.

    Raises:
        UsageError: its cost model gives no bound, or one whose proof has no certificate.
    """
    found = load_plan(plan)
    evaluator = _evaluator(found)
    tree = certified_tree(evaluator, price_plan(found).total_s, work, keep_on)
    return Certificate(plan=_bounded(found, tree.seconds), tree=tree)


def _bounded(plan: Plan, seconds: float) -> Plan:
    """The plan with a bound of so many seconds at least, where it has a bound."""
    known = plan.bound
    if known.value_s is None or known.value_s >= seconds:
        return plan
    bound = replace(known, value_s=seconds, kind=known.kind if known.searched else LONGER + known.kind)
    return replace(plan, bound=bound, gap=None if plan.gap is None else bound.gap(plan.cost.total_s))


def certified_tree(
    evaluator: Evaluator, total_s: float, work: int = WORK, keep_on: Callable[[], bool] = always
) -> ProofTree:  # fmt: skip
    """The proof of a bound of a problem of which a plan of `total_s` seconds is known; the rest is as for `certify`."""
    check_certifiable(evaluator)
    return tree_of(evaluator, certified_search(evaluator, total_s, work, keep_on), total_s)


def tree_of(evaluator: Evaluator, search: PhaseBranching | HeavyTableBound, below: float) -> ProofTree:
    """The proof that a search has found, among plans that take fewer seconds than `below`."""
    tree = ProofTree(seconds=0.0, below=below, closed=_closed(evaluator), parts=tuple(_parts(search)))
    return replace(tree, seconds=min(proven_seconds(evaluator, tree), below))


def check_certificate(certificate: Certificate | Source) -> Certificate:
    """A certificate whose proof holds, of a plan that costs what it says.

    certificate: a Certificate, or its file.

    Raises:
        CorruptFile: it is none, or its proof proves less than it claims.
        UsageError: the file cannot be read, or the cost model says something else today.
    """
    found = certificate if isinstance(certificate, Certificate) else load_certificate(certificate)
    evaluator = _evaluator(found.plan)
    says, now = found.plan.cost.total_s, price_plan(found.plan).total_s
    if not abs(now - says) <= CLOSE * says:
        raise UsageError(
            f"cost model {found.plan.cost_model} says {now:.9g} s of the plan, and said {says:.9g} s when it was "
            "certified; a certificate is of one cost model: use the release that made it, or certify the plan anew"
        )
    proven = proven_seconds(evaluator, found.tree)
    if not proven >= found.tree.seconds:
        raise CorruptFile(
            f"the certificate claims {found.tree.seconds:.9g} s, and proves {proven:.9g} s; certify the plan anew"
        )
    return found


def _evaluator(plan: Plan) -> Evaluator:
    return cost_model(plan.cost_model).compile(problem_of(plan))


def _closed(evaluator: Evaluator) -> tuple[tuple[int, int], ...]:
    replaced = replacements_by_type(evaluator)

    def last(group: int) -> int:
        return last(replaced[group]) if group in replaced else group

    return tuple((group, last(into)) for group, into in sorted(replaced.items()))


def _parts(search: PhaseBranching | HeavyTableBound) -> list[ProofPart]:
    """The parts of a search as a tree, the first of which is all plans."""
    if isinstance(search, PhaseBranching):
        return _parts_of_ranges(search, 0)
    spreads, mode = search.spreads, search.spreads.modes[0]
    table, others = int(spreads.prices.tables[mode.table]), _parts_of_ranges(search.other, 1)
    ends = sorted({end for end in spreads.ends.tolist() if end > 0})
    proof = SpreadProof(table=table, ends=tuple(ends), proofs=tuple(map(_proof, spreads.proofs)))
    return [ProofPart(split="spread", of=table, halves=(1, 1 + len(others))), *others, ProofPart(spreads=proof)]


def _parts_of_ranges(search: PhaseBranching, first: int) -> list[ProofPart]:
    """The parts of a search over seconds of the phases; the first of them has that number in the tree."""
    parts: list[ProofPart] = []

    def add(nodes: Sequence[PhaseNode], depth: int) -> int:
        place = len(parts)
        if len(nodes) == 1 and len(nodes[0].path) == depth:
            parts.append(ProofPart(proof=_proof(nodes[0].multipliers)))
            return first + place
        split, of, at, _ = nodes[0].path[depth]
        parts.append(ProofPart(proof=_proof(nodes[0].multipliers)))  # keeps the place
        without, with_ = ([each for each in nodes if each.path[depth].second is half] for half in (False, True))
        number = int(search.prices.tables[of]) if split == "table" else of
        halves = add(without, depth + 1), add(with_, depth + 1)
        parts[place] = ProofPart(split=split, of=number, at=at, halves=halves)  # pyright: ignore[reportArgumentType]
        return first + place

    add([*search.heap, *search.impossible], 0)
    return parts


def _proof(multipliers: Multipliers) -> LeafProof:
    return LeafProof(
        ready=float(multipliers.ready_multiplier), rest=float(multipliers.rest_multiplier),
        byte=float(multipliers.byte_price), mix=tuple(map(tuple, multipliers.mix.tolist())), plane=multipliers.plane,
        shares=tuple(
            ShareWorth(kind=KINDS[kind], by=by, worth=worth)
            for (kind, by), worth in zip(FUNCTIONS.tolist(), multipliers.dual.tolist(), strict=True) if worth > 0
        ),
    )  # fmt: skip
