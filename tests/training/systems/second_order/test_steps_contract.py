"""Steps of second order keep the contract of steps."""

from typing import ClassVar

import pytest

pytest.importorskip("torchrec")

from recsmith.testing.steps import StepContract

pytestmark = pytest.mark.usefixtures("torchrec")


class TestProgressiveLbfgs(StepContract):
    """L-BFGS on one batch a step: so large a theta never asks for more."""

    pipeline: ClassVar = {"name": "progressive_lbfgs", "samples": 1, "theta": 1e9}


class TestDance(StepContract):
    """DANCE on the newest batch alone."""

    pipeline: ClassVar = {"name": "dance", "samples": 1, "most": 1, "newton": 2}
