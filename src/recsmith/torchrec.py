"""RecSmith inside a TorchRec job: drop-in planner, conversion of plans, resharding, observing (needs TorchRec).

from recsmith.torchrec import RecSmithPlanner, keep_feature_order

plan = RecSmithPlanner("h100:8", batch_size=8192).collective_plan(model, sharders, pg)
model = keep_feature_order(DistributedModelParallel(model, plan=plan, sharders=sharders))
"""

from recsmith.adapters.installed import require_torchrec

require_torchrec()

from recsmith.adapters.convert import from_sharding_plan, to_parameter_constraints, to_sharding_plan  # noqa: E402
from recsmith.adapters.drop_in_planner import RecSmithPlanner  # noqa: E402
from recsmith.adapters.dynamicemb_options import dynamic_of_options, options_of_table  # noqa: E402
from recsmith.adapters.feature_order import keep_feature_order  # noqa: E402
from recsmith.adapters.observe import observe  # noqa: E402
from recsmith.adapters.plan_loader import PlanFileLoader  # noqa: E402
from recsmith.adapters.planner_provider import RecSmithPlannerProvider  # noqa: E402
from recsmith.adapters.reshard.layout import tie_checkpoint  # noqa: E402
from recsmith.adapters.reshard.reshard import reshard  # noqa: E402
from recsmith.adapters.running_job import (  # noqa: E402
    PlanWatch,
    WatchReport,
    import_plan,
)
from recsmith.adapters.stashed_tables import stash_tables  # noqa: E402
from recsmith.adapters.topology import read_cluster  # noqa: E402
from recsmith.adapters.workload import read_workload  # noqa: E402
from recsmith.jobs.worker import leave  # noqa: E402

__all__ = [
    "PlanFileLoader",
    "PlanWatch",
    "RecSmithPlanner",
    "RecSmithPlannerProvider",
    "WatchReport",
    "dynamic_of_options",
    "from_sharding_plan",
    "import_plan",
    "keep_feature_order",
    "leave",
    "observe",
    "options_of_table",
    "read_cluster",
    "read_workload",
    "reshard",
    "stash_tables",
    "tie_checkpoint",
    "to_parameter_constraints",
    "to_sharding_plan",
]
