"""Imports pyarrow when it is first used."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from recsmith._install import PARQUET
from recsmith.errors import MissingExtra


def pyarrow() -> Any:
    """The pyarrow package with the submodules that RecSmith uses; MissingExtra if it is not installed."""
    if find_spec("pyarrow") is None:
        raise MissingExtra(f"Parquet and Arrow data need pyarrow: {PARQUET}")
    for part in ("parquet", "ipc", "compute", "csv", "dataset", "fs", "json"):
        import_module(f"pyarrow.{part}")
    return import_module("pyarrow")
