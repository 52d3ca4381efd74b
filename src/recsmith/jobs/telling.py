"""What a job says while it runs: rank 0 tells, and the process that started the job listens.

    tell({"step": 3})                       # in the function that every rank runs
    listener = Listener(folder); listener.news()   # in the process that started it: [{"step": 3}]

The words lie as lines in a file of the job's folder, so nothing waits for anybody and none is lost.
"""

import json
import os
from pathlib import Path
from typing import Any

TOLD = "RECSMITH_TOLD"  # environment of ranks: the file that rank 0 writes to


def tell(words: Any) -> None:
    """Tell the process that started this job something (JSON data); ranks other than 0 say nothing."""
    if os.environ["RANK"] == "0":
        with Path(os.environ[TOLD]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(words) + "\n")


class Listener:
    """Reads what a job tells, each word once. file: where it tells it, which need not be there yet."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read = 0

    def news(self) -> list[Any]:
        """What was told since the last time."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")  # the last line may be half written
        self._read += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]
