"""Data that a command names by the run file that trains on it."""

from pathlib import Path
from typing import Any

from recsmith.errors import UsageError
from recsmith.files import parse, read_text
from recsmith.training.run.run import SCHEMA, load_run

ENDINGS = (".yaml", ".yml", ".json")


def data_of_run(data: Any) -> Any:
    """The training data of a run if `data` is the path of a run file (its data.train); otherwise `data` unchanged.

    Raises:
        UsageError: the run names a batch source of its own, which is not data of a known format.
    """
    if not is_run_file(data):
        return data
    train: Any = load_run(data).data.train
    if isinstance(train, dict) and "source" in train:
        raise UsageError(
            f"data.train of '{data}' is a source of its own ({train['source']}), which training alone reads; give data "
            "of a format (docs/data.md)"
        )
    return train


def is_run_file(data: Any) -> bool:
    """Whether `data` is the path of a run file."""
    if not isinstance(data, str | Path) or not str(data).endswith(ENDINGS) or not Path(data).is_file():
        return False
    raw: Any = parse(read_text(str(data)), str(data))
    return isinstance(raw, dict) and raw.get("schema") == SCHEMA
