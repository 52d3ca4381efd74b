"""Twenty jobs on four pools: how long it takes to say where each goes, and how far that is from the least cost.

    python benchmarks/fleet.py                 # 20 jobs of seven models, four pools, three seeds
    python benchmarks/fleet.py --jobs 5 --seeds 1

Jobs draw their model, batch, samples, deadline and the rest of their step; pools have two to sixteen hosts.
"""

import argparse
import time

import numpy as np

from recsmith.analyses.fleet import FleetJob, Pool, fleet
from recsmith.errors import Infeasible

POOLS = (
    Pool(name="h100s", device="h100", per_host=8, hosts=16, price=2.99),
    Pool(name="h200s", device="h200", per_host=8, hosts=8, price=3.79),
    Pool(name="a100s", device="a100-80", per_host=8, hosts=16, price=1.49),
    Pool(name="b200s", device="b200", per_host=8, hosts=4, price=5.49),
)
MODELS = ("dlrm-v2", "criteo-1tb", "nvidia-tiny", "nvidia-small", "nvidia-medium", "nvidia-large", "criteo-kaggle")
REST_US = {"h100": 1.0, "h200": 1.0, "a100-80": 2.2, "b200": 0.6}  # of a plain model; others have some times as much


def drawn(count: int, seed: int) -> list[FleetJob]:
    """Jobs whose deadlines most can keep."""
    rng = np.random.default_rng(seed)
    jobs: list[FleetJob] = []
    for number in range(count):
        size = float(rng.choice([0.5, 1.0, 3.0]))
        jobs.append(FleetJob(
            name=f"job-{number}", workload=str(rng.choice(MODELS)),
            global_batch=int(rng.choice([32_768, 65_536, 131_072])),
            samples=float(rng.choice([5e9, 2e10, 8e10])), deadline_h=float(rng.choice([24.0, 72.0, 240.0])),
            rest_us={device: size * each for device, each in REST_US.items()},
        ))  # fmt: skip
    return jobs


def main() -> None:
    """A row for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    print("| seed | jobs | ways | dollars | gap | not their cheapest way | seconds | CPU s |\n" + "|---" * 8 + "|")
    for seed in range(chosen.seeds):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            found = fleet(drawn(chosen.jobs, seed), POOLS)
        except Infeasible as error:
            print(f"| {seed} | {chosen.jobs} | | {error} | | | {time.perf_counter() - wall:.1f} "
                  f"| {time.process_time() - cpu:.1f} |", flush=True)  # fmt: skip
            continue
        moved = sum(each.way != each.cheapest for each in found.jobs)
        print(f"| {seed} | {chosen.jobs} | {found.ways} | {found.dollars:,.0f} | {found.gap:.2%} | {moved} "
              f"| {time.perf_counter() - wall:.1f} | {time.process_time() - cpu:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
