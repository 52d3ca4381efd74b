"""Learned models of all-to-alls with made-up weights, and folders of made-up or simulated exchanges, without torch."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.costs.neural.files import NoiseFloor, Range
from recsmith.costs.neural_comm import INPUTS, WORK
from recsmith.costs.neural_comm_files import CommCard, CommHeldOut, save_comm_model
from recsmith.measuring.about import About
from recsmith.measuring.comm import simulate_comm
from recsmith.measuring.folder import Limit, open_folder

HIDDEN, WIDTH = 5, 7
EXACT = [(size, 1e-4 + size / 2e9, 0.0) for size in (10**3, 10**4, 10**5, 10**6, 10**7)]
"""Bytes, seconds and skew of exchanges that take 0.1 ms + bytes / (2 GB/s)."""


def card(**fields: Any) -> CommCard:
    """A card of a simulated GPU."""
    held = CommHeldOut(
        ranks=4, trained=True, exchanges=9, median=0.01, mean=0.02, alpha_beta_median=0.1, alpha_beta_mean=0.2
    )
    words = {
        "hardware": "simulated:h100", "backend": "simulated", "device": "h100, simulated", "versions": "recsmith 0",
        "per_host": 8, "ranks": (4, 8), "seed": 0, "data": "0" * 64, "exchanges": 90, "left_out": 1, "train": 70,
        "validation": 11, "epochs": 2, "held_out": (held,), "noise": NoiseFloor(pairs=0),
        "ranges": {"bytes": Range(least=1.0, most=1e9)},
    }  # fmt: skip
    return CommCard(**words | fields)


def tensors(seed: int = 0, **fields: Any) -> dict[str, Any]:
    """Random weights of the right shapes and signs, of seconds that a GPU could take."""
    draw = np.random.default_rng(seed)
    sizes = {"rank": (len(INPUTS), HIDDEN, HIDDEN), "joint": (3 * HIDDEN, WIDTH, WIDTH, len(WORK))}
    made: dict[str, Any] = {
        "centre": draw.normal(size=len(INPUTS)), "spread": draw.uniform(0.5, 5, len(INPUTS)),
        "base": draw.uniform(-28, -24, len(WORK)), "alpha": draw.uniform(1e-6, 1e-4, 1),
    }  # fmt: skip
    for name, widths in sizes.items():
        for i, (before, after) in enumerate(pairwise(widths)):
            made |= {f"{name}_weight{i}": draw.normal(size=(after, before)), f"{name}_bias{i}": draw.normal(size=after)}
    return made | fields


def write_comm_model(path: Path, seed: int = 0, **fields: Any) -> Path:
    """A model on disk."""
    save_comm_model(str(path), tensors(seed), card(**fields))
    return path


def exchanged(path: Path, ranks: int, samples: int = 60, hardware: str = "simulated:h100", seed: int = 0) -> Path:
    """A folder of simulated exchanges."""
    simulate_comm(hardware, path / f"{hardware.replace(':', '-')}-{ranks}-{seed}", ranks, Limit(samples=samples), seed)
    return path / f"{hardware.replace(':', '-')}-{ranks}-{seed}"


def exchange(position: int, ranks: int = 2, **fields: Any) -> dict[str, Any]:
    """A row of an exchange."""
    usual = {
        "position": position, "seed": 0, "number": position, "visit": 0, "ranks": ranks, "backend": "gloo",
        "oversubscribed": False, "direction": "forward", "batch_size": 1, "width": [4] * ranks, "skew_s": [0.0] * ranks,
        "sent_bytes": [1] * ranks, "received_bytes": [1] * ranks, "status": "ok", "fastest_s": [1.0] * ranks,
        "median_s": [1.0] * ranks, "repetitions": 7, "elapsed_s": 1.0, "hardware": "gloo", "device": "a test",
        "versions": "recsmith 0", "date": "2026-01-01",
    }  # fmt: skip
    return usual | fields


def folder_of(path: Path, times: list[tuple[int, float, float]], backend: str = "gloo", ranks: int = 2) -> Path:
    """A folder of exchanges (bytes, seconds of the slowest rank, skew)."""
    about = About(kind="comm", hardware="local ranks", seed=0, ranks=ranks)
    with open_folder(path, about) as folder:
        for position, (size, seconds, skew) in enumerate(times):
            half = [seconds / 2] * (ranks - 1)
            folder.add(
                exchange(
                    position, ranks, backend=backend, oversubscribed=ranks > 2, skew_s=[0.0] * (ranks - 1) + [skew],
                    sent_bytes=[size] + [1] * (ranks - 1), received_bytes=[1] * (ranks - 1) + [size],
                    median_s=[*half, seconds], fastest_s=[*half, seconds],
                )
            )  # fmt: skip
    return path
