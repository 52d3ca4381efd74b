"""Data that is named by the file of a run which trains on it."""

from pathlib import Path
from typing import Any

from recsmith.errors import UsageError
from recsmith.files import parse, read_text
from recsmith.training.run.run import SCHEMA, load_run

ENDINGS = (".yaml", ".yml", ".json")


def data_of_run(data: Any) -> Any:
    """What a run trains on, as its data.train has it, where a path is that of a run's file; all else as it is.

    Raises:
        UsageError: the run has a source of its own, which is no data of a format.
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
    """Whether something is the path of a run's file."""
    if not isinstance(data, str | Path) or not str(data).endswith(ENDINGS) or not Path(data).is_file():
        return False
    raw: Any = parse(read_text(str(data)), str(data))
    return isinstance(raw, dict) and raw.get("schema") == SCHEMA
