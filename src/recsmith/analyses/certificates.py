"""Makes the certificate of a plan: the proof of its lower bound, as a file that `recsmith check` verifies.

The search for the bound is run again (bounds/lower_bound.py), and its final state is recorded: how it split the set of
all plans, and the proof of every part's bound (certified_parts.py). The certified seconds are those that checking.py
derives from the record. They may be fewer than the bound that is printed with the plan, which uses more kinds of
proofs: those by lifted and bent planes have no certificate yet.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from recsmith._types import Source
from recsmith.analyses.certified_parts import (
    Search,
    apart_of,
    closed_groups,
    levels_of,
    parts_by_constraints,
    parts_of,
)
from recsmith.analyses.checking import check_certifiable, proven_seconds
from recsmith.bounds.first import always
from recsmith.bounds.lower_bound import certified_search, printed_reach
from recsmith.costs import Evaluator, cost_model
from recsmith.errors import CorruptFile, UsageError
from recsmith.planning.simulate import price_plan
from recsmith.plans import LONGER, Plan, load_plan
from recsmith.plans.certificates import Certificate, load_certificate
from recsmith.plans.proofs import LevelsProof, ProofPart, ProofTree, Shares
from recsmith.problems import problem_of

WORK = 2_000_000_000  # numbers that the search works on: as many as for the bound of a mid-sized problem
PROVED_WORK = 60_000_000_000  # the same if a better bound is asked for (--prove)
ALIKE = 1e-6  # relative difference up to which a certified bound counts as equal to the printed one
CLOSE = 1e-9  # relative difference up to which a plan's price may differ from its file


def certify(plan: Plan | Source, *, work: int = WORK, keep_on: Callable[[], bool] = always) -> Certificate:
    """A proof of a lower bound on the seconds of all plans in a plan's space, under its cost model.

    The certificate holds the plan; if the proof gives more than the plan's bound, it replaces that bound.

    Args:
        plan: a Plan, or its file.
        work: numbers that the search for the proof works on.
        keep_on: called now and then; the search ends once it returns False.

    Raises:
        UsageError: the cost model gives no bound, or one whose proof has no certificate.
    """
    found = load_plan(plan)
    evaluator = _evaluator(found)
    tree = certified_tree(evaluator, price_plan(found).total_s, work, keep_on, found.bound.value_s or math.inf)
    return Certificate(plan=_bounded(found, tree.seconds), tree=tree)


def _bounded(plan: Plan, seconds: float) -> Plan:
    """The plan with its bound raised to at least these seconds, if it has a bound."""
    known = plan.bound
    if known.value_s is None or known.value_s >= seconds:
        return plan
    bound = replace(known, value_s=seconds, kind=known.kind if known.searched else LONGER + known.kind)
    return replace(plan, bound=bound, gap=None if plan.gap is None else bound.gap(plan.cost.total_s))


def certified_tree(
    evaluator: Evaluator, total_s: float, work: int = WORK, keep_on: Callable[[], bool] = always,
    printed_s: float = math.inf,
) -> ProofTree:  # fmt: skip
    """The proof of a bound for a problem with a known plan of `total_s` seconds; other arguments as in `certify`.

    printed_s: seconds of the known bound. If the first search proves less, a second one uses the range of steps that
    the search for the printed bound used.
    """
    check_certifiable(evaluator)
    found = [tree_of(evaluator, certified_search(evaluator, total_s, work, keep_on), total_s)]
    enough = min(total_s, printed_s * (1 - ALIKE))
    below = printed_reach(evaluator, total_s) if found[0].seconds < enough and keep_on() else None
    if below is not None:
        found.append(tree_of(evaluator, certified_search(evaluator, total_s, work, keep_on, below), below))
    found += [_tree(evaluator, [part], total_s) for part in parts_by_constraints(evaluator)]
    return max(found, key=lambda tree: tree.seconds)


def tree_of(evaluator: Evaluator, search: Search, below: float) -> ProofTree:
    """The proof that a search has found, for plans that take fewer seconds than `below`."""
    return _tree(evaluator, parts_of(search), below, levels_of(evaluator, search), apart_of(search))


def _tree(
    evaluator: Evaluator, parts: Sequence[ProofPart], below: float, levels: LevelsProof | None = None,
    apart: tuple[Shares, ...] = (),
) -> ProofTree:  # fmt: skip
    tree = ProofTree(
        seconds=0.0, below=below, closed=closed_groups(evaluator), parts=tuple(parts), levels=levels, apart=apart
    )  # fmt: skip
    return replace(tree, seconds=min(proven_seconds(evaluator, tree), below))


def check_certificate(certificate: Certificate | Source) -> Certificate:
    """The certificate, after verifying its proof and the price of its plan.

    certificate: a Certificate, or its file.

    Raises:
        CorruptFile: it is no certificate, or its proof gives less than it claims.
        UsageError: the file cannot be read, or the cost model now predicts other seconds for the plan.
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
