"""Rows of a long benchmark, one JSON line each: a row that a file holds already is not computed again.

    for row in resumed(work, keys, "rows.json", jobs=2): ...

Each row is computed in a process with one thread, so that its seconds do not depend on how many processes there are.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # of what NumPy's matrix products run on


def resumed(work: Callable[[Key], Row], keys: Sequence[Key], path: str | None, jobs: int) -> Iterator[Row]:
    """The row of every key, those of the file first; new ones are appended to it as they come."""
    known = _read(path) if path else {}
    missing = [key for key in keys if _word(key) not in known]
    yield from (known[_word(key)] for key in keys if _word(key) in known)
    if not missing:
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))  # heard by NumPy where it is imported: in new processes
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(work, key): key for key in missing}
        for future in as_completed(futures):
            row = {"key": futures[future], **future.result()}
            if path:
                _append(path, row)
            yield row


def _word(key: Key) -> str:
    return json.dumps(key)


def _read(path: str) -> dict[str, Row]:
    """The whole lines of a file by key; half a line, which a killed run left, is cut off."""
    file = Path(path)
    if not file.exists():
        return {}
    text = file.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        file.write_bytes(whole)
    rows: list[Row] = [json.loads(line) for line in whole.splitlines()]
    return {json.dumps(row["key"]): row for row in rows}


def _append(path: str, row: Row) -> None:
    with Path(path).open("a") as file:
        file.write(json.dumps(row) + "\n")
