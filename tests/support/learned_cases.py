"""Cases for learned cost models with made-up weights, and sums and pieces to ask them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.clusters import Cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.inputs import PieceWork
from recsmith.problems import Space
from recsmith.workloads import AccessProfile
from support.cases import OFF_DISK, Case, cluster, table, workload
from support.learned import write_model

COUNTED = AccessProfile(reuse_bins=(0.0, 1.0, *[0.0] * 15), lookups=80, unique_rows=40)
TABLES = (table("a", 1000, 128, 5.0, access=COUNTED), table("b", 50, 16), table("c", 7, 8, pooling="mean"))


def cpus(local: int = 2, hosts: int = 1) -> Cluster:
    made = cluster(local, hosts, ddr_bytes_per_host=2**40)
    return replace(made, device=replace(made.device, kind="cpu"))


def case_of(*tables: Any, on: Cluster | None = None, **fields: Any) -> Case:
    return Case(workload(*(tables or TABLES), **fields), on or cpus(), Space(kernels=OFF_DISK))


def evaluator_of(folder: Path, case: Case | None = None, variant: str = "convex", **fields: Any) -> NeuralEvaluator:
    name = write_model(folder / "m.safetensors", variant, **fields)
    found = cost_model(name).compile((case or case_of()).problem)
    assert isinstance(found, NeuralEvaluator)
    return found


def sums_of(evaluator: NeuralEvaluator, seed: int, shape: tuple[int, ...]) -> Any:
    """Summed terms (..., k) over eight decades, some of nothing."""
    draw = np.random.default_rng(seed)
    first = evaluator.problem.pieces.mode[:1], evaluator.problem.pieces.width[:1]
    sums = 10 ** draw.uniform(-7, 1, (*shape, evaluator.terms(*first).shape[1]))
    sums[..., 0] = draw.integers(0, 5, shape)
    return np.where(sums[..., :1] > 0, sums, 0.0)


def piece_of(*figures: float) -> PieceWork:
    """Ids, bags, different rows, rows and columns of a piece in fp32 under rowwise_adagrad."""
    ids, bags, unique, rows, width = (np.array([figure]) for figure in figures)
    return PieceWork(ids, bags, unique, rows, width, np.array([2]), np.array([0]))
