"""A complete run of the sharding benchmark."""

from pathlib import Path

import pytest
from support.benched import whole_run

from recsmith.bench.sharding import BenchResults


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BenchResults]:
    """A complete run, which tests only read."""
    return whole_run(tmp_path_factory.getbasetemp())
