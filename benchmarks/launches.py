"""How many of many local jobs end cleanly? The section "Launches" of docs/benchmarks/planning.md.

    python benchmarks/launches.py --count 50

Each job is examples/torchrec_dropin.py on two ranks, start of Python to exit: plan, shard, train 41 steps, tear down.
--torchrun starts the same file with plain torchrun instead.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "torchrec_dropin.py"
BY_ITSELF = [sys.executable, str(EXAMPLE), "--ranks", "2"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Launch a two-rank TorchRec job many times.")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--torchrun", action="store_true", help="plain torchrun instead of the example's own launch")
    options = parser.parse_args()
    seconds: list[float] = []
    clean = 0
    for _ in range(options.count):
        begun = time.perf_counter()
        job = subprocess.run(TORCHRUN if options.torchrun else BY_ITSELF, capture_output=True, text=True)
        seconds.append(time.perf_counter() - begun)
        clean += job.returncode == 0
        if job.returncode:
            print(f"exit {job.returncode}: {job.stderr[-2000:]}", flush=True)
    print(f"{clean} of {options.count} ended with exit 0; median {statistics.median(seconds):.1f} s a job")


if __name__ == "__main__":
    main()
