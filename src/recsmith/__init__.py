"""RecSmith plans, predicts and trains recommendation models whose embedding tables outgrow one device.

    >>> import recsmith
    >>> result = recsmith.plan("dlrm-v2", "h100:8")
    >>> result.plan.cost.total_s, result.plan.gap

Names load when they are first used, so `import recsmith` costs nothing and never imports torch.
"""

from typing import TYPE_CHECKING

from recsmith._late import late_names
from recsmith._version import __version__

if TYPE_CHECKING:
    from recsmith.analyses.compare import compare
    from recsmith.analyses.explain import explain
    from recsmith.analyses.replan_curve import replan_curve
    from recsmith.analyses.sweep import sweep
    from recsmith.clusters import Cluster, Device, Links, load_cluster
    from recsmith.errors import (
        CorruptFile,
        Infeasible,
        MissingExtra,
        NoPlanFound,
        PlanMismatch,
        RecSmithError,
        UsageError,
    )
    from recsmith.planning import Result, plan
    from recsmith.planning.replan import replan
    from recsmith.planning.simulate import diff, price, simulate
    from recsmith.plans import Bound, Placement, Plan, StepCost, load_plan, save_plan
    from recsmith.problems import (
        Apart,
        Constraints,
        PerRank,
        Pin,
        Space,
        TableRule,
        Together,
        load_constraints,
        pins_of,
    )
    from recsmith.web.report import report
    from recsmith.workloads import AccessProfile, Feature, Table, Workload, load_workload, save_workload
    from recsmith.workloads.sample import sample_workload

__getattr__ = late_names(__name__, {
    "recsmith.workloads": ("AccessProfile", "Feature", "Table", "Workload", "load_workload", "save_workload"),
    "recsmith.workloads.sample": ("sample_workload",),
    "recsmith.clusters": ("Cluster", "Device", "Links", "load_cluster"),
    "recsmith.problems": (
        "Apart", "Constraints", "PerRank", "Pin", "Space", "TableRule", "Together", "load_constraints", "pins_of",
    ),
    "recsmith.plans": ("Bound", "Placement", "Plan", "StepCost", "load_plan", "save_plan"),
    "recsmith.planning.replan": ("replan",),
    "recsmith.planning.simulate": ("diff", "price", "simulate"),
    "recsmith.analyses.compare": ("compare",),
    "recsmith.analyses.explain": ("explain",),
    "recsmith.analyses.replan_curve": ("replan_curve",),
    "recsmith.analyses.sweep": ("sweep",),
    "recsmith.planning": ("Result", "plan"),
    "recsmith.web.report": ("report",),
    "recsmith.errors": (
        "CorruptFile", "Infeasible", "MissingExtra", "NoPlanFound", "PlanMismatch", "RecSmithError", "UsageError",
    ),
})  # fmt: skip

__all__ = [
    "AccessProfile", "Apart", "Bound", "Cluster", "Constraints", "CorruptFile", "Device", "Feature", "Infeasible",
    "Links", "MissingExtra", "NoPlanFound", "PerRank", "Pin", "Placement", "Plan", "PlanMismatch", "RecSmithError",
    "Result", "Space", "StepCost", "Table", "TableRule", "Together", "UsageError", "Workload", "__version__",
    "compare", "diff", "explain", "load_cluster", "load_constraints", "load_plan", "load_workload", "pins_of", "plan",
    "price", "replan", "replan_curve", "report", "sample_workload", "save_plan", "save_workload", "simulate", "sweep",
]  # fmt: skip


def __dir__() -> list[str]:
    """The public names of the package."""
    return __all__
