"""Learned cost models with made-up weights, and samples whose seconds follow a rule: no torch needed."""

from pathlib import Path
from typing import Any

import numpy as np

from recsmith.costs.neural.files import FROM_ANALYTIC, Card, HeldOut, NoiseFloor, Range, save_model
from recsmith.costs.neural.inputs import (
    CORRECTED,
    DATA_TYPES,
    FIRST_INPUTS,
    OPTIMIZERS,
    WORK,
    PieceWork,
    inputs_of,
    work_of,
)
from recsmith.learning.costs import Groups

TERMS, HINGES, HIDDEN, GATES = 3, 2, 5, 2
RANGES = {
    name: Range(least=0.0, most=1e12) for name in ("ids", "bags", "rows", "columns", "device ids", "device tables")
}


def card(**fields: Any) -> Card:
    """A card of the CPU of the catalogue; `ranges` replaces single ones."""
    held = HeldOut(samples=9, median=0.05, mean=0.08, forward_median=0.1, backward_median=0.07, tau=0.97)
    words = {
        "hardware": "cpu", "device": "a test", "versions": "recsmith 0", "variant": "convex", "seed": 0,
        "data": "0" * 64, "samples": 90, "left_out": 1, "train": 70, "validation": 11, "epochs": 2, "held_out": held,
        "noise": NoiseFloor(pairs=2, median=0.02, mean=0.03), "optimizers": OPTIMIZERS[:3], "data_types": DATA_TYPES,
        "analytic_factor": 2.0,
    }  # fmt: skip
    return Card(**words | fields | {"ranges": RANGES | fields.get("ranges", {})})


def tensors(variant: str = "convex", seed: int = 0, **fields: Any) -> dict[str, Any]:
    """Random weights of the right shapes and signs."""
    draw = np.random.default_rng(seed)
    work = CORRECTED if variant in FROM_ANALYTIC else WORK
    sizes = ((HIDDEN, FIRST_INPUTS), (HIDDEN, HIDDEN), (TERMS * len(work), HIDDEN))
    made: dict[str, Any] = {
        "centre": draw.normal(size=FIRST_INPUTS), "spread": draw.uniform(0.5, 2, FIRST_INPUTS),
        "base": draw.normal(size=(TERMS, len(work))), "launch": draw.uniform(1e-6, 1e-4, 2),
        "linear": draw.uniform(0, 1, (2, 1 + TERMS)),
    }  # fmt: skip
    for i, size in enumerate(sizes):
        made |= {f"weight{i}": draw.normal(size=size) / 3, f"bias{i}": draw.normal(size=size[0])}
    if variant in FROM_ANALYTIC:
        del made["linear"]
        made |= {"peaks": draw.uniform(0, 1, (2, 2, 1 + TERMS)), "extra": draw.uniform(0, 1, (2, 2, GATES, 1 + TERMS)),
                 "behind": draw.normal(size=(HIDDEN, 1 + TERMS)), "behind_bias": draw.normal(size=HIDDEN),
                 "gate": draw.normal(size=(GATES, HIDDEN)), "gate_bias": draw.normal(size=GATES)}  # fmt: skip
        if variant == "monotone":
            made |= {"behind": np.abs(made["behind"]), "gate": np.abs(made["gate"])}
    elif variant != "free":
        hinges = HINGES if variant == "convex" else 0
        offsets = draw.choice([1e-6, 1e-5, 1e-4, 1e-2], size=(2, hinges))
        made |= {"hinges": draw.uniform(0, 1, (2, hinges, 1 + TERMS)), "offsets": offsets}
    else:
        made |= {"hidden": draw.normal(size=(HIDDEN, 1 + TERMS)), "hidden_bias": draw.normal(size=HIDDEN),
                 "out": draw.normal(size=(2, HIDDEN)), "out_bias": draw.normal(size=2)}  # fmt: skip
    for weights in ("linear", "hinges", "peaks", "extra"):
        if weights in made:
            made[weights][..., 0] *= 1e-6  # of the count of pieces, in seconds
    return made | fields


def write_model(path: Path, variant: Any = "convex", seed: int = 0, **fields: Any) -> str:
    """A model on disk; its name on the command line."""
    save_model(str(path), tensors(variant, seed), card(variant=variant, **fields))
    return f"neural:{path}"


def groups(count: int = 120, seed: int = 0) -> Groups:
    """Samples whose seconds grow with ids, bags and rows, faster from the median on; every tenth case stands twice."""
    draw = np.random.default_rng(seed)
    tables = draw.integers(1, 6, count)
    start = np.concatenate([[0], np.cumsum(tables)])
    owner, total = np.repeat(np.arange(count), tables), int(tables.sum())
    batch, optimizer, data_type = draw.integers(1, 5000, count), draw.integers(0, 3, count), draw.integers(0, 2, count)
    ids = batch[owner] * draw.uniform(0, 20, total)
    rows, width = (draw.integers(1, most, total).astype(np.float64) for most in (10**6, 64))
    piece = PieceWork(
        ids=ids, bags=batch[owner].astype(np.float64), unique=np.minimum(ids, rows) * 0.7, rows=rows,
        width=4 * width, optimizer=optimizer[owner], data_type=data_type[owner],
    )  # fmt: skip
    work = work_of(piece)
    seconds = np.add.reduceat(work.sum(axis=1), start[:-1])
    seconds = 5e-5 + seconds + np.maximum(0.0, seconds - np.median(seconds))
    return Groups(
        start=start, work=work, inputs=inputs_of(piece), seconds=np.stack([seconds, 2 * seconds], axis=1),
        case=np.arange(count) - (np.arange(count) % 10 == 9), batch=batch,
        optimizer=optimizer, data_type=data_type, blocks=np.ones(count, dtype=np.int64), rows=rows, dim=piece.width,
        ids=ids, unique=piece.unique, zipf=np.zeros(total),
    )  # fmt: skip
