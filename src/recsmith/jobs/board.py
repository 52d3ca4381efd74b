"""Numbers of a run, step by step, for TensorBoard, where that package is installed."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recsmith._install import TENSORBOARD
from recsmith.errors import MissingExtra


def has_tensorboard() -> bool:
    """Whether TensorBoard's files can be written here."""
    return find_spec("tensorboard") is not None and find_spec("torch") is not None


def require_tensorboard(asked_by: str) -> None:
    """MissingExtra where TensorBoard is not installed. asked_by: the key of a run that wants it."""
    if not has_tensorboard():
        raise MissingExtra(f"{asked_by} needs the package tensorboard: {TENSORBOARD}")


class Board:
    """TensorBoard's file of a folder. A disk that refuses it costs these numbers, and not the run.

    first: the step of the first number that is written; what an earlier run wrote of it and of later ones is hidden.
    """

    def __init__(self, folder: Path, first: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's own, of what it imports
            writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = writer(str(folder), purge_step=first)

    def write(self, step: int, words: Mapping[str, object], group: str = "") -> None:
        """Write the numbers among the words of a step. group: what stands before their names, as in train/logloss."""
        for name, value in words.items():
            if self._writer is not None and isinstance(value, int | float) and name != "step":
                try:
                    self._writer.add_scalar(f"{group}/{name}" if group else name, value, step)
                except OSError:
                    self._writer = None

    def close(self) -> None:
        """Write what is still in memory; a process that ends without this loses up to two minutes of numbers."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
