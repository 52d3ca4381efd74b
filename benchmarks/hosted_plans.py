"""Plans with tables in host memory, by two versions of cost model `analytic`: what changed when its constants moved.

    python benchmarks/hosted_plans.py make before    # in one checkout, or with PYTHONPATH=other/src
    python benchmarks/hosted_plans.py make after     # in the other
    python benchmarks/hosted_plans.py compare before after

Devices have 0.6 of the memory that the tables need; kernels are fused, fused_uvm and fused_uvm_caching. compare prices
both plans by the model of the checkout that runs it: what the older plan would take now, and how tables are kept.
"""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

import recsmith
from recsmith import Cluster, Space, Workload

SHARE = 0.6
KERNELS = ("fused", "fused_uvm", "fused_uvm_caching")
SAMPLES = {"sample 20": (20, 3, "h100:4"), "sample 40": (40, 4, "h100:8"), "sample 80": (80, 5, "a100-80:8")}
BUILT_IN = {"criteo-1tb": "h100:8", "dlrm-v2": "h100:8", "dlrm-v2 ": "a100-40:8", "nvidia-small": "h100:4"}


def problems() -> dict[str, tuple[Workload, Cluster]]:
    """Workloads by name, and clusters whose devices hold 0.6 of them."""
    found = {name: (recsmith.load_workload(name.strip()), spec) for name, spec in BUILT_IN.items()}
    found |= {name: (recsmith.sample_workload(t, seed=s), spec) for name, (t, s, spec) in SAMPLES.items()}
    return {f"{name.strip()}, {spec}": (work, small(work, recsmith.load_cluster(spec)))
            for name, (work, spec) in found.items()}  # fmt: skip


def small(workload: Workload, cluster: Cluster) -> Cluster:
    """With that share of the memory."""
    need = sum(table.weight_bytes for table in workload.tables)
    return replace(cluster, hbm_bytes=int(SHARE * need / cluster.world_size), ddr_bytes_per_host=2**42)


def make(folder: Path) -> None:
    """Plan all problems and write the plans."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (work, cluster) in problems().items():
        plan = recsmith.plan(work, cluster, space=Space(kernels=KERNELS), cost_model="analytic").plan
        recsmith.save_plan(plan, folder / f"{name.replace(', ', '-').replace(':', '-')}.json")
        print(f"{name}: {plan.cost.total_s * 1e3:.4g} ms", flush=True)


def compare(before: Path, after: Path) -> None:
    """A row for each problem."""
    print("| problem | kernels before | kernels after | step before, predicted then | predicted now | step after |")
    print("|---|---|---|---|---|---|")
    for name in problems():
        file = f"{name.replace(', ', '-').replace(':', '-')}.json"
        old, new = recsmith.load_plan(before / file), recsmith.load_plan(after / file)
        now, then = recsmith.simulate(old).cost.total_s, old.cost.total_s
        times = f"{milliseconds(then)} | {milliseconds(now)} | {milliseconds(new.cost.total_s)}"
        print(f"| {name} | {kernels(old)} | {kernels(new)} | {times} |")


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def kernels(plan: recsmith.Plan) -> str:
    """How many tables each kernel serves."""
    counts = Counter(placement.compute_kernel for placement in plan.placements)
    return ", ".join(f"{counts[each]} {each}" for each in (*KERNELS, "dense") if counts[each])


def main() -> None:
    """Make plans, or compare two folders of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("make", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    (make if arguments.do == "make" else compare)(*arguments.folders)


if __name__ == "__main__":
    main()
