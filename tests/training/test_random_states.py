"""Whoever saves, scores, exports or looks at a step draws no random numbers that training would have drawn."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.systems import needs_systems

from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, FIRST = 14, 7
FEATURES = [{"name": "a", "num_embeddings": 50}, {"name": "b", "num_embeddings": 30}]
DATA = {"format": "generator", "dense": 2, "features": FEATURES}


def dropping(tables: Any, dense: int) -> Any:
    """A model of one's own that draws in every step."""
    import torch

    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.drop = tables, torch.nn.Dropout(0.5)
            self.last = torch.nn.Linear(dense + 2 * 8, 1)

        def forward(self, values: torch.Tensor, features: Any) -> torch.Tensor:
            return self.last(self.drop(torch.cat([values, self.tables(features).values()], dim=1)))

    return Dropping()


def drawing(step: int, loss: float, samples: object) -> None:
    """A watcher that draws from every generator, and seeds one."""
    import random

    import numpy as np
    import torch

    random.random()
    np.random.rand(3)
    torch.rand(step)
    torch.manual_seed(1)


def exported(run: Run) -> bytes:
    return Path(run.output, "model", "weights.safetensors").read_bytes()


@needs_systems("halves")
def test_saving_scoring_and_looking_change_nothing_that_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stochastic rows and dropout: a job without a checkpoint, and one that saves, scores, is watched, and resumes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    plain = Run(
        data=RunData(train={**DATA, "num_samples": 2000}, test={**DATA, "num_samples": 50}, batch_size=32),
        model=RunModel(name="test_random_states:dropping", embedding_dim=8), output=str(tmp_path / "plain"), seed=7,
        steps=STEPS, ranks=1, rows={"name": "split", "lower": False, "upper": "stochastic"},
    )  # fmt: skip
    train(plain)
    busy = replace(
        plain, output=str(tmp_path / "busy"), checkpoint=Checkpointing(every=FIRST),
        metrics=RunMetrics(evaluate_every=3), watchers=("test_random_states:drawing",),
    )  # fmt: skip
    train(replace(busy, steps=FIRST))
    train(busy)
    assert exported(busy) == exported(plain)
