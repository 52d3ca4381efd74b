"""A certificate whose proof was checked: in lines, and as plain data."""

from recsmith.files import Raw
from recsmith.plans.certificates import Certificate
from recsmith.problems.space import space_words
from recsmith.units import counted, format_gap, format_time

GIVEN = (
    "what the cost model says of single pieces (work, planes below its cost, latencies), which ways to place a table "
    "there are, and their bytes; that no step takes less on hardware is not claimed"
)


def certificate_lines(certificate: Certificate) -> list[str]:
    """What is proved of which plan, what was checked, and what the proof assumes, in lines."""
    plan = certificate.plan
    least_s = certificate.tree.seconds + plan.cost.sequences_s
    leaves = sum(part.is_leaf for part in certificate.tree.parts)
    tables = counted(len(plan.placements), "table")
    return [
        f"plan     {plan.digest[:12]}, {tables} on {counted(plan.cluster.world_size, 'device')}: "
        f"{format_time(plan.cost.step_s)} under cost model {plan.cost_model}",
        f"proven   no plan takes less than {format_time(least_s)} under it{_best_words(certificate)}",
        f"         {space_words(plan.bound.space)}",
        f"checked  {counted(leaves, 'part')} that hold all plans, each by its own proof, rounded against the claim",
        f"given    {GIVEN}",
    ]


def certificate_to_raw(certificate: Certificate) -> Raw:
    """A checked certificate as plain data."""
    plan = certificate.plan
    return {
        "schema": "recsmith/checked/1", "plan": plan.digest, "cost_model": plan.cost_model, "step_s": plan.cost.step_s,
        "proven_s": certificate.tree.seconds + plan.cost.sequences_s, "gap": _gap(certificate),
        "space": plan.bound.space, "parts": sum(part.is_leaf for part in certificate.tree.parts),
        "given": GIVEN,
    }  # fmt: skip


def certified_words(certificate: Certificate, file: str) -> str:
    """The note printed after a certificate was written."""
    plan = certificate.plan
    proven_s, bound_s = certificate.tree.seconds + plan.cost.sequences_s, plan.bound.of_step(plan.cost)
    text = f"the certificate in {file} proves {format_time(proven_s)}: check it with `recsmith check {file}`"
    if bound_s is None or proven_s >= bound_s * (1 - 1e-3):
        return text
    return f"{text}; the bound of {format_time(bound_s)} has had more work, or other proofs (docs/bounds.md)"


def _best_words(certificate: Certificate) -> str:
    gap = _gap(certificate)
    return "" if gap is None else f", so this one takes at most {format_gap(gap)} more than the best"


def _gap(certificate: Certificate) -> float | None:
    """How far the plan can be from the best, by the certificate; None if the proven seconds are 0."""
    cost, seconds = certificate.plan.cost, certificate.tree.seconds
    return max(0.0, cost.total_s / seconds - 1) if seconds else None
