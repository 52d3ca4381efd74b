"""Makes the certificate of a plan: the proof of its bound, as a file that `recsmith check` proves again.

The search for the bound is run anew (bounds/lower_bound.py), and what it ends with is written down: how it split all
plans, and what proves the bound of every part (certified_parts.py). The certified seconds are those that checking.py
finds in it. They may be fewer than the bound that is printed with the plan, which rests on more kinds of proofs: those
by lifted and bent planes have no certificate yet.
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

WORK = 2_000_000_000  # numbers that the search works on: as many as for the bound of a problem of some size
PROVED_WORK = 60_000_000_000  # the same where a better bound is asked for
ALIKE = 1e-6  # relative: certified bounds that are so near to the printed one are taken for it
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
    tree = certified_tree(evaluator, price_plan(found).total_s, work, keep_on, found.bound.value_s or math.inf)
    return Certificate(plan=_bounded(found, tree.seconds), tree=tree)


def _bounded(plan: Plan, seconds: float) -> Plan:
    """The plan with a bound of so many seconds at least, where it has a bound."""
    known = plan.bound
    if known.value_s is None or known.value_s >= seconds:
        return plan
    bound = replace(known, value_s=seconds, kind=known.kind if known.searched else LONGER + known.kind)
    return replace(plan, bound=bound, gap=None if plan.gap is None else bound.gap(plan.cost.total_s))


def certified_tree(
    evaluator: Evaluator, total_s: float, work: int = WORK, keep_on: Callable[[], bool] = always,
    printed_s: float = math.inf,
) -> ProofTree:  # fmt: skip
    """The proof of a bound of a problem of which a plan of `total_s` seconds is known; the rest is as for `certify`.

    printed_s: of the bound that is known. Where the first search proves less, another one looks as far as that did.
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
    """The proof that a search has found, among plans that take fewer seconds than `below`."""
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
