"""Results, prices and differences as plain data, for `--format json`."""

from recsmith.files import Raw, encode
from recsmith.planning import Result
from recsmith.plans import Plan, PlanDiff, plan_to_raw

RESULT_SCHEMA = "recsmith/result/1"


def result_to_raw(result: Result) -> Raw:
    """Plain data of a result: schema recsmith/result/1."""
    return {
        "schema": RESULT_SCHEMA,
        "elapsed_s": result.elapsed_s,
        "iterations": result.iterations,
        "truncated": result.truncated,
        **({"members": list(result.members)} if result.members else {}),
        **price_to_raw(result.plan),
        "plan": plan_to_raw(result.plan),
    }


def price_to_raw(plan: Plan) -> Raw:
    """Cost, bound and gap of a plan, and where a learned cost model extrapolates."""
    return {
        "cost_model": plan.cost_model,
        "cost": encode(plan.cost),
        "bound": encode(plan.bound) | {"value_s": plan.bound.value_s},
        "gap": plan.gap,
        **({"extrapolated": plan.extrapolated} if plan.extrapolated else {}),
    }


def diff_to_raw(change: PlanDiff) -> Raw:
    """Plain data of a difference between plans."""
    return encode(change)
