"""TorchRec's pipelines and a step of one's own keep the contract of steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("torchrec")

import torch
from torch import nn

from recsmith.errors import UsageError
from recsmith.testing.steps import StepContract
from recsmith.training import Run, RunData
from recsmith.training.steps import step_of

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.usefixtures("torchrec")


class TestBase(StepContract):
    """TorchRec's TrainPipelineBase."""

    pipeline = "base"


class TestSparseDist(StepContract):
    """TorchRec's TrainPipelineSparseDist."""

    pipeline = "sparse_dist"


class TestAccumulated(StepContract):
    """Layers that learn once from two batches."""

    pipeline: ClassVar = {"name": "accumulated", "batches": 2}
    batches_a_step = 2


class TestExample(StepContract):
    """examples/own_step.py: a step with a closure in one file, which nothing else knows of."""

    pipeline: ClassVar = {"name": "own_step:ClosureStep", "evaluations": 3}

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples are on the path."""
        monkeypatch.syspath_prepend(EXAMPLES)


def test_unknown_steps_and_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'sparse_dist'"):
        Run(data=RunData(train="x"), output="y", pipeline="sparse_dst")
    monkeypatch.syspath_prepend(EXAMPLES)
    with pytest.raises(UsageError, match=r"evaluation.*evaluations"):
        step_of(None, {"name": "own_step:ClosureStep", "evaluation": 3})


class Branching(nn.Module):
    """A model whose code branches on its input, which torch.fx cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.linear(value) if value.sum() > 0 else value


def test_a_model_that_cannot_be_followed_is_told_why() -> None:
    job: Any = SimpleNamespace(model=SimpleNamespace(module=Branching()), device=torch.device("cuda"))
    with pytest.raises(UsageError, match=r"cannot be followed by torch\.fx"):
        step_of(job, "sparse_dist")
