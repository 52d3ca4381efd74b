"""Small cases under learned models whose shares rise steeply with what a group holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recsmith.costs import COST_MODELS, cost_model
from recsmith.costs.neural.files import save_model
from support.cases import OFF_DISK, Case
from support.learned import card, tensors


def rising_case(case: Case, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A case under a model whose shares rise steeply at about what small tables cost."""
    path, draw = folder / f"{seed}.safetensors", np.random.default_rng(seed)
    made = tensors("monotone", seed=seed, launch=10 ** draw.uniform(-8, -5, 2))
    made |= {"gate": made["gate"] * draw.choice([1, 10]), "gate_bias": made["gate_bias"] * draw.choice([1, 10])}
    save_model(str(path), made, card(variant="monotone", hardware="simulated:test", device="test, simulated"))
    monkeypatch.setitem(COST_MODELS.places, "neural", cost_model(f"neural:{path}"))
    tables = tuple(replace(each, data_type="fp32") for each in case.workload.tables)
    work = replace(case.workload, tables=tables, optimizer="sgd")
    kernels = tuple(name for name in case.space.kernels if name in OFF_DISK)
    return replace(case, workload=work, space=replace(case.space, kernels=kernels), cost_model="neural")
