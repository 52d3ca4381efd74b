"""The datasets that a run names: a path, or a mapping with the format (docs/data.md)."""

from typing import Any

from recsmith.data import Dataset, open_dataset, spec_from_raw
from recsmith.errors import UsageError


def open_data(source: Any, where: str) -> Dataset:
    """The dataset of a path, a spec, or a spec's mapping. where: of the run, such as data.train, for errors."""
    if isinstance(source, dict):
        return open_dataset(spec_from_raw(dict(source), where))
    if source is None:
        raise UsageError(f"the run has no {where}; name a file, a folder or a mapping with its format")
    return open_dataset(source)
