"""The watch of the running plan keeps the contract of watchers."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from recsmith.testing.watchers import WatcherContract
from recsmith.training.systems.watch.plan_watch import WatchedPlan

pytestmark = pytest.mark.usefixtures("torchrec")


class TestPlanWatch(WatcherContract):
    """Of the running plan."""

    def make(self, folder: Path) -> Any:
        """A short one."""
        return WatchedPlan(steps=2, skip=0)
