"""The folder of a training run: its settings, a checkpoint, a journal; a run that was ended goes on from there.

    settings.json             what is trained; another run is refused the folder
    checkpoint.safetensors    networks, optimizers and samples after a number of iterations; replaced whole
    journal.jsonl             a line for each iteration
    events.out.tfevents.*     the same for TensorBoard, where it is installed

Everything random follows from the seed and the number of the iteration, so a run that goes on ends as it would have.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, dump_json, parse_json, read_raw, replace_file, write_text
from recsmith.jobs.board import Board, has_tensorboard
from recsmith.measuring.journal import NAME as JOURNAL
from recsmith.measuring.journal import Journal, read_journal

SETTINGS, CHECKPOINT = "settings.json", "checkpoint.safetensors"


class RunFolder:
    """An open folder of a run; who opens it holds its lock (measuring/folder_lock.py)."""

    def __init__(self, path: Path, settings: Raw) -> None:
        """UsageError where the folder is of a run with other settings, or holds other files."""
        self.path = path
        text = dump_json(settings)
        found = path / SETTINGS
        if found.exists():
            _check_same(path, _read(found, settings["schema"]), _plain(settings))
        else:
            foreign = sorted(entry.name for entry in path.iterdir())
            if foreign:
                raise UsageError(f"'{path}' holds '{foreign[0]}' and no {SETTINGS}; give a new or an empty folder")
            write_text(str(found), text)
        self._journal: Journal | None = None
        self._board: Board | None = None

    def load(self) -> tuple[dict[str, Any], int] | None:
        """The state of the checkpoint, and how many iterations it is after; None without one."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        safetensors: Any = import_module("safetensors")
        try:
            with safetensors.safe_open(path, framework="np") as file:
                state = {name: file.get_tensor(name) for name in list(file.keys())}
                metadata: dict[str, str] = file.metadata() or {}
                iteration = parse_json(metadata["iteration"], str(path))
        except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
            raise CorruptFile(
                f"'{path}' is no whole checkpoint ({error}); remove it, and training begins anew"
            ) from None
        return state, int(str(iteration))

    def save(self, state: dict[str, Any], iteration: int) -> None:
        """Replace the checkpoint."""
        from safetensors.numpy import save

        replace_file(self.path / CHECKPOINT, save(state, metadata={"iteration": str(iteration)}))

    def log(self, row: dict[str, Any]) -> None:
        """Write an iteration to the journal, and to TensorBoard. row: with its `number`."""
        if self._journal is None:
            self._open(row["number"])
        assert self._journal is not None, "it was just opened"
        self._journal.write(row)
        if self._board is not None:
            self._board.write(row["number"], row)

    def _open(self, number: int) -> None:
        """Open the journal; lines that the checkpoint does not know of, from this number on, are written again."""
        rows = read_journal(self.path, lambda row: "" if "number" in row else "it has no number")
        kept = [row for row in rows if row["number"] < number]
        if len(kept) < len(rows):
            replace_file(self.path / JOURNAL, b"".join(json.dumps(row).encode() + b"\n" for row in kept))
        self._journal = Journal(self.path)
        self._board = Board(self.path, number) if has_tensorboard() else None

    def close(self) -> None:
        """Flush what TensorBoard has not written."""
        if self._board is not None:
            self._board.close()


def _read(path: Path, schema: str) -> Raw:
    return read_raw(str(path), schema)


def _plain(settings: Raw) -> Raw:
    """Settings as they are read again."""
    return {name: value for name, value in settings.items() if name != "schema"}


def _check_same(path: Path, found: Raw, wanted: Raw) -> None:
    """UsageError where settings differ, with the first one that does."""
    if found == wanted:
        return
    odd = next(name for name in {**wanted, **found} if found.get(name) != wanted.get(name))
    raise UsageError(
        f"'{path}' holds a run with {odd} {found.get(odd)} instead of {wanted.get(odd)}; give another --output, or "
        "remove that folder"
    )
