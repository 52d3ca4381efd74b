"""How long is a step on one host of eight devices, and on two? Run: python examples/plan_and_compare.py."""

import recsmith


def main() -> None:
    """Plan MLPerf DLRM-v2 on one and on two hosts, and show what the bound says about each plan."""
    for cluster in ("h100:8", "h100:8x2"):
        plan = recsmith.plan("dlrm-v2", cluster).plan
        bound = plan.bound.value_s or 0.0
        print(f"{cluster}: {plan.cost.total_s * 1e3:.3f} ms a step, no plan below {bound * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
