"""Measures kernels and collectives of this machine for a time, in the order of a seed."""

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
from recsmith.prediction.kernels.cases import draw_case
from recsmith.prediction.kernels.times import CollectiveTime, KernelTime, KernelTimes, load_times, save_times

WORKER = "recsmith.prediction.kernels.rank_worker:measure_collectives"
SIZES = 40  # of each collective


def measure_kernels(
    target: Path, *, budget_s: float, seed: int, ranks: tuple[int, ...] = (),
    on_progress: Callable[[int], object] | None = None,
) -> KernelTimes:  # fmt: skip
    """Measure kernels for a time, then collectives between local ranks, and add them to a file, made if need be.

    Ctrl-C ends the kernels as the budget would.

    Raises:
        UsageError: the file is of another device.
        MissingExtra: PyTorch, FBGEMM or TorchRec is missing.
    """
    require_torchrec()
    torch: Any = import_module("torch")
    made = KernelTimes(device=describe_cpu(), versions=f"recsmith {__version__}, torch {torch.__version__}", seed=seed,
                       kernels=())  # fmt: skip
    if target.exists():
        old = load_times(target)
        if old.device != made.device:
            raise UsageError(f"'{target}' is of {old.device}, and this is {made.device}; give another file")
        made = replace(old, seed=seed)
    found, first = list(made.kernels), _next_case(made)
    torch.set_num_threads(1)
    keep_freed_memory()
    begun, number = time.monotonic(), first
    measure = import_module("recsmith.prediction.kernels.measuring").measure_kernel
    try:
        while time.monotonic() - begun < budget_s:
            found += [KernelTime(kind=kernel.kind, shape=kernel.shape, seconds=seconds)
                      for kernel, seconds in measure(draw_case(seed, number))]  # fmt: skip
            number += 1
            if on_progress:
                on_progress(len(found))
    except KeyboardInterrupt:
        pass
    made = replace(made, kernels=tuple(found))
    save_times(made, target)
    meetings = [CollectiveTime(**each) for count in ranks for each in _collectives(count, seed)]
    made = replace(made, collectives=(*made.collectives, *meetings))
    save_times(made, target)
    return made


def _next_case(made: KernelTimes) -> int:
    """The number of the next case; each kernel is one, but for embeddings, of which a case has two."""
    return len(made.kernels) - sum(each.kind == "embedding_backward" for each in made.kernels)


def _collectives(ranks: int, seed: int) -> list[Any]:
    return launch(WORKER, {"seed": seed, "sizes": SIZES}, ranks=ranks)[0]
