"""What a job says while it runs: messages to the process that started it, and numbers for TensorBoard.

    write_message({"step": 3})                       # in the function that every rank runs; rank 0 alone writes
    log = JobLog(file); log.new_messages()           # in the process that started it: [{"step": 3}]

Messages lie as lines in a file of the job's folder, so nothing waits for anybody and none is lost.
"""

import json
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recsmith._install import TENSORBOARD
from recsmith.errors import MissingExtra

LOG_FILE = "RECSMITH_JOB_LOG"  # environment of ranks: the file that rank 0 writes to


def write_message(message: Any) -> None:
    """Write a message (JSON data) for the process that started this job; ranks other than 0 write nothing."""
    if os.environ["RANK"] == "0":
        with Path(os.environ[LOG_FILE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")


class JobLog:
    """Reads the messages of a job, each once. file: where they are written, which need not be there yet."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read = 0

    def new_messages(self) -> list[Any]:
        """The messages that were written since the last time."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")  # the last line may be half written
        self._read += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]


def has_tensorboard() -> bool:
    """Whether TensorBoard's files can be written here."""
    return find_spec("tensorboard") is not None and find_spec("torch") is not None


def require_tensorboard(required_by: str) -> None:
    """MissingExtra where TensorBoard is not installed. required_by: the key of a run that wants it."""
    if not has_tensorboard():
        raise MissingExtra(f"{required_by} needs TensorBoard: {TENSORBOARD}")


class Board:
    """TensorBoard's file of a folder. A disk that refuses it costs these numbers, and not the run.

    first: the step of the first number that is written; what an earlier run wrote of it and of later ones is hidden.
    """

    def __init__(self, folder: Path, first: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's own, of what it imports
            writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = writer(str(folder), purge_step=first)

    def write(self, step: int, values: Mapping[str, object], group: str = "") -> None:
        """Write the numbers among the values of a step. group: what stands before their names, as in train/logloss."""
        for name, value in values.items():
            if self._writer is not None and isinstance(value, int | float) and name != "step":
                try:
                    self._writer.add_scalar(f"{group}/{name}" if group else name, value, step)
                except OSError:
                    self._writer = None

    def write_text(self, step: int, name: str, text: str) -> None:
        """Write what was said at a step."""
        if self._writer is not None:
            try:
                self._writer.add_text(name, text, step)
            except OSError:
                self._writer = None

    def close(self) -> None:
        """Write what is still in memory; a process that ends without this loses up to two minutes of numbers."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
