"""Measures kernels and collectives of this machine, in the order of a seed; a second run continues the first."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from recsmith._process import keep_freed_memory
from recsmith._version import __version__
from recsmith.adapters.installed import require_torchrec
from recsmith.errors import UsageError
from recsmith.jobs.launch import launch
from recsmith.jobs.machine import describe_cpu
from recsmith.prediction.graph import KernelShape
from recsmith.prediction.kernels.times import (
    CollectiveTime,
    KernelCase,
    KernelMeasurements,
    KernelTime,
    draw_case,
    load_times,
    save_times,
)

QUIET = "KINETO_LOG_LEVEL"  # level of the profiler, which else writes two lines to stderr each time it starts
WORKER = "recsmith.prediction.kernels.rank_worker:measure_collectives"
SIZES = 64  # sizes of each collective
BLOCK, VISITS = 36, 3  # cases that take turns, two of every kind; number of turns
AGREE = 0.15  # relative difference of a case's two fastest visits above which it is left out as disturbed


def measure_kernels(
    target: Path, *, budget_s: float | None, seed: int, cases: int | None = None, ranks: tuple[int, ...] = (),
    on_progress: Callable[[int], object] | None = None,
) -> KernelMeasurements:  # fmt: skip
    """Measure kernels, then collectives between local ranks, and add them to a file, which is made if need be.

    Args:
        target: the file.
        budget_s: seconds for the kernels; Ctrl-C ends them as the budget does.
        seed: the order of the cases.
        cases: number of cases that the file shall have in the end, including disturbed ones.
        ranks: numbers of ranks for which collectives are measured, unless the file has them.
        on_progress: called with the number of kernels in the file.

    Raises:
        UsageError: the file is of another device or seed.
        MissingExtra: PyTorch, FBGEMM or TorchRec is missing.
    """
    require_torchrec()
    os.environ.setdefault(QUIET, "5")
    torch: Any = import_module("torch")
    made = _opened(target, seed, str(torch.__version__))
    torch.set_num_threads(1)
    keep_freed_memory()
    begun = time.monotonic()
    prepare = import_module("recsmith.prediction.kernels.measuring").prepare_kernel
    try:
        while (budget_s is None or time.monotonic() - begun < budget_s) and (cases is None or made.cases < cases):
            block = [draw_case(seed, made.cases + place) for place in range(BLOCK)]
            made = replace(made, kernels=(*made.kernels, *steady(_visited(block, prepare))), cases=made.cases + BLOCK)
            save_times(made, target)
            if on_progress:
                on_progress(len(made.kernels))
    except KeyboardInterrupt:
        pass
    for count in ranks:
        if all(each.ranks != count for each in made.collectives):
            meetings = launch(WORKER, {"seed": seed, "sizes": SIZES}, ranks=count)[0]
            made = replace(made, collectives=(*made.collectives, *(CollectiveTime(**each) for each in meetings)))
            save_times(made, target)
    return made


def _opened(target: Path, seed: int, version: str) -> KernelMeasurements:
    made = KernelMeasurements(device=describe_cpu(), versions=f"recsmith {__version__}, torch {version}", seed=seed,
                       kernels=())  # fmt: skip
    if not target.exists():
        return made
    old = load_times(target)
    if old.device != made.device or old.seed != seed:
        raise UsageError(
            f"'{target}' is of {old.device} and seed {old.seed}, and this is {made.device} and seed {seed}; give "
            "another file"
        )
    return old


def _visited(block: list[KernelCase], prepare: Any) -> list[list[tuple[KernelShape, float]]]:
    """Each kernel of a block with the seconds of its visits; cases take turns, so a disturbance hits many once."""
    visits = [prepare(case) for case in block]
    turns = [[each for visit in visits for each in visit()] for _ in range(VISITS)]
    return [list(same) for same in zip(*turns, strict=True)]


def steady(visited: list[list[tuple[KernelShape, float]]]) -> list[KernelTime]:
    """Kernels whose two fastest visits agree, each with the middle one of its times."""
    kept: list[KernelTime] = []
    for same in visited:
        ordered = sorted(seconds for _, seconds in same)
        if 0 < ordered[1] <= (1 + AGREE) * ordered[0]:
            kernel = same[0][0]
            middle = float(f"{ordered[len(ordered) // 2]:.4g}")
            kept.append(KernelTime(kind=kernel.kind, shape=kernel.shape, between=kernel.between, seconds=middle))
    return kept
