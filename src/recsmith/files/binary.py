"""Writing of files of bytes, whole or not at all."""

import os
import tempfile
from pathlib import Path

from recsmith.errors import RecSmithError


def replace_file(path: Path, data: bytes) -> None:
    """Write bytes to a file: whole or not at all; RecSmithError, and what was there as it was, where that fails."""
    path = Path(os.path.realpath(path))
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise RecSmithError(f"cannot write '{path}': {error.strerror}; any file that was there is unchanged") from None
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)
