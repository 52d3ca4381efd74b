"""The watcher that makes sparse copies keeps the contract of watchers."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")
pytest.importorskip("recsmith.training.systems.periods")  # between which copies are made
pytest.importorskip("recsmith.training.systems.second_order")  # whose kept tables they learn on

from recsmith.testing.watchers import WatcherContract
from recsmith.training.watchers import watcher_of

pytestmark = pytest.mark.usefixtures("torchrec")


class TestSparseCopies(WatcherContract):
    """Of a sparse copy, which is made between periods."""

    def make(self, folder: Path) -> Any:
        """With its defaults."""
        return watcher_of("sparse_copy")
