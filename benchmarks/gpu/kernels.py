"""Times kernels of dense layers on the current CUDA device, in the file that `recsmith learn kernels` reads.

    python benchmarks/gpu/kernels.py kernels.json --seconds 60

The kernels are those of `recsmith measure kernels` without lookups, which hardware cuda measures, and up to a hundred
times as large. Each is timed between two events of the device, with a cold second-level cache, as lookups are; what two
events with nothing between them measure is taken off. Cases take turns three times, and those whose two fastest visits
differ by more than 15 % are left out. Of a visit's seven repetitions the lower quartile counts. The file is written
after every 36 cases.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from recsmith._version import __version__
from recsmith.hardware import load_hardware
from recsmith.prediction.graph import KernelShape
from recsmith.prediction.kernels.measuring import LEAST_S, REPETITIONS, kernel_and_call
from recsmith.prediction.kernels.run import BLOCK, VISITS, steady
from recsmith.prediction.kernels.times import (
    OF_A_GPU,
    KernelCase,
    KernelMeasurements,
    KernelTime,
    draw_case,
    save_times,
    usual,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times of kernels of dense layers.")
    parser.add_argument("output", type=Path, help="file of JSON to write")
    parser.add_argument("--hardware", default="cuda", help="cuda, or cuda:<gpu>, which refuses another one")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    hardware: Any = load_hardware(options.hardware, "check")  # for its clock and cold cache, with little memory
    torch.set_default_device("cpu" if hardware.name == "cpu" else "cuda")
    empty_s = usual([hardware._timed(lambda: None)[1] for _ in range(10 * REPETITIONS)])
    kernels: list[KernelTime] = []
    number = 0
    while time.monotonic() < ends:
        block = [draw_case(options.seed, number + place, OF_A_GPU) for place in range(BLOCK)]
        kernels += steady(visited(hardware, [case for case in block if case.kind != "embedding"], empty_s))
        number += BLOCK
        versions = f"recsmith {__version__}, torch {torch.__version__}"
        made = KernelMeasurements(device=hardware.device, versions=versions, seed=options.seed, kernels=tuple(kernels),
                                  cases=number)  # fmt: skip
        save_times(made, options.output)
    print(f"{options.output}: {len(kernels):,} kernels of {number:,} cases; an empty call took {empty_s * 1e6:.1f} µs")


def visited(hardware: Any, cases: list[KernelCase], empty_s: float) -> list[list[tuple[KernelShape, float]]]:
    """Every kernel of some cases with the seconds of its visits; cases that do not fit into memory are left out."""
    kept = [made for case in cases if (made := prepared(case))]
    turns = [[(kernel, seconds_of(hardware, call, empty_s)) for kernel, call in kept] for _ in range(VISITS)]
    return [list(same) for same in zip(*turns, strict=True)]


def prepared(case: KernelCase) -> tuple[KernelShape, Any] | None:
    try:
        kernel, call = kernel_and_call(case)
        call()
    except RuntimeError as error:  # out of memory among them
        print(f"{case}: {str(error).splitlines()[0]}", flush=True)
        return None
    return kernel, call


def seconds_of(hardware: Any, call: Any, empty_s: float) -> float:
    return max(usual([hardware._timed(call)[1] for _ in range(REPETITIONS)]) - empty_s, LEAST_S)


if __name__ == "__main__":
    main()
