"""Tables that outgrow the devices, behind caches in device memory. Run: python examples/host_memory.py."""

import recsmith
from recsmith import Infeasible, Space


def main() -> None:
    """DLRM-v2 does not fit two H100; with kernel fused_uvm_caching the host's memory helps, at a price."""
    try:
        recsmith.plan("dlrm-v2", "h100:1")
    except Infeasible as error:
        print(f"without host memory: {error}")
    space = Space(kernels=("fused", "dense", "fused_uvm_caching"))
    plan = recsmith.plan("dlrm-v2", "h100:1", space=space, planner="cost_greedy").plan
    cached = [placement.table for placement in plan.placements if placement.cache]
    print(f"with caches: {plan.cost.total_s * 1e3:.1f} ms a step, {len(cached)} tables in host memory")


if __name__ == "__main__":
    main()
