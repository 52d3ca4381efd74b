"""Output of a running job: messages to the process that started it, and numbers for TensorBoard.

    write_message({"step": 3})                       # in the function that every rank runs; only rank 0 writes
    log = JobLog(file); log.new_messages()           # in the process that started it: [{"step": 3}]

Messages are lines of a file in the job's folder, so neither side waits for the other and no message is lost.
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

LOG_FILE = "RECSMITH_JOB_LOG"  # environment variable of ranks: the file that rank 0 writes to


def write_message(message: Any) -> None:
    """Write a message (JSON data) for the process that started this job; ranks other than 0 write nothing."""
    if os.environ["RANK"] == "0":
        with Path(os.environ[LOG_FILE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")


class JobLog:
    """Reads the messages of a job, each once. file: the file of messages, which need not exist yet."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read = 0

    def new_messages(self) -> list[Any]:
        """The messages written since the last call."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")  # the last line may be half written
        self._read += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]


def has_tensorboard() -> bool:
    """Whether TensorBoard and torch are installed."""
    return find_spec("tensorboard") is not None and find_spec("torch") is not None


def require_tensorboard(required_by: str) -> None:
    """Raise MissingExtra if TensorBoard is not installed. required_by: the key of a run that needs it."""
    if not has_tensorboard():
        raise MissingExtra(f"{required_by} needs TensorBoard: {TENSORBOARD}")


class Board:
    """Writes a TensorBoard file in a folder. If the disk refuses, these numbers are lost, but the run continues.

    first: the first step that is written; numbers of an earlier run from this step on are hidden.
    """

    def __init__(self, folder: Path, first: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard warns of its own imports
            writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = writer(str(folder), purge_step=first)

    def write(self, step: int, values: Mapping[str, object], group: str = "") -> None:
        """Write the numbers among the values of a step. group: prefix of their names, as in train/logloss."""
        for name, value in values.items():
            if self._writer is not None and isinstance(value, int | float) and name != "step":
                try:
                    self._writer.add_scalar(f"{group}/{name}" if group else name, value, step)
                except OSError:
                    self._writer = None

    def write_text(self, step: int, name: str, text: str) -> None:
        """Write a text for a step."""
        if self._writer is not None:
            try:
                self._writer.add_text(name, text, step)
            except OSError:
                self._writer = None

    def close(self) -> None:
        """Write the numbers still in memory; a process that ends without this loses up to two minutes of them."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
