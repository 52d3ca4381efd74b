"""Keeps where the blocks of files begin, in a file of its own (.npz), so that lines are counted once."""

import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np

from recsmith._types import Ints
from recsmith.errors import CorruptFile, RecSmithError


def read_index(path: str, digest: str) -> list[tuple[Ints, int]] | None:
    """(begins of blocks, lines) of each file; None where there is no index yet, or the files changed since.

    Raises:
        CorruptFile: the file is there and is no index.
    """
    if not Path(path).exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as held:
            if str(held["digest"]) != digest:
                return None
            return [(held[f"begins_{at}"], int(lines)) for at, lines in enumerate(held["lines"].tolist())]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptFile(f"'{path}' is not an index of lines ({error}); remove it, or give another path") from None


def write_index(path: str, digest: str, index: list[tuple[Ints, int]]) -> None:
    """Write the index, whole or not at all."""
    arrays = {f"begins_{at}": begins for at, (begins, _) in enumerate(index)}
    packed = io.BytesIO()
    np.savez_compressed(
        packed, digest=np.array(digest), lines=np.array([lines for _, lines in index]), **cast(Any, arrays)
    )
    try:
        handle, name = tempfile.mkstemp(dir=Path(path).parent, prefix=f".{Path(path).name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(packed.getvalue())
        Path(name).replace(path)
    except OSError as error:
        raise RecSmithError(f"cannot write '{path}': {error.strerror}; give another path for the index") from None
