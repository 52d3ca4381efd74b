"""Plans whose kernels can be measured, by hand-picked planners."""

from functools import cache

from recsmith import Plan, Space, Workload, load_cluster, plan
from recsmith.workloads.sample import sample_workload

WORK = sample_workload(12, 4, max_bytes=2**24, batch_size=2**15)  # whole waves: the simulation is near its model


@cache
def planned(planner: str = "cost_greedy", cluster: str = "h100:4", seed: int = 0, work: Workload = WORK) -> Plan:
    """A plan of whole tables and column splits in fused kernels, under the model that simulated hardware stands for."""
    space = Space(types=("table_wise", "column_wise"), kernels=("fused",))
    made = plan(work, load_cluster(cluster), planner=planner, seed=seed, space=space, cost_model="analytic")
    return made.plan


def named_plans() -> list[tuple[str, Plan]]:
    """Three plans of one workload and cluster; the first is the best."""
    return [("greedy", planned()), ("random", planned("random", seed=3)), ("sizes", planned("size_greedy"))]
