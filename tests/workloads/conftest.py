"""Shared by tests of workloads: the script that distilled the figures that tables are sampled from."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def script() -> ModuleType:
    """benchmarks/table_population.py, which distilled the figures."""
    path = Path(__file__).parents[2] / "benchmarks" / "table_population.py"
    spec = importlib.util.spec_from_file_location("table_population", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
