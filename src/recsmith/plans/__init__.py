"""Plans: placements with their cost, plan files, and differences between plans."""

from recsmith.plans.check import check_one_optimizer, check_placements
from recsmith.plans.diff import Change, PlanDiff, diff
from recsmith.plans.files import (
    PLAN_FILE,
    digest_of,
    load_placed,
    load_plan,
    plan_from_raw,
    plan_to_raw,
    save_plan,
    sorted_by_name,
)
from recsmith.plans.plan import (
    EXACT,
    LONGER,
    PARTS,
    Bound,
    Cache,
    DeviceCost,
    PlacedTables,
    Placement,
    Plan,
    StepCost,
    describe_kernel,
    inexact_optimizers,
    inexact_tables,
    wide_tables,
)

__all__ = [
    "EXACT", "LONGER", "PARTS", "PLAN_FILE", "Bound", "Cache", "Change", "DeviceCost", "PlacedTables", "Placement",
    "Plan", "PlanDiff", "StepCost", "check_one_optimizer", "check_placements", "describe_kernel", "diff", "digest_of",
    "inexact_optimizers", "inexact_tables", "load_placed", "load_plan", "plan_from_raw", "plan_to_raw", "save_plan",
    "sorted_by_name", "wide_tables",
]  # fmt: skip
