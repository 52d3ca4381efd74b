"""Files of a folder of plans: their names, how they are written, and the lock for writing.

    clicks-on-h100-8.json        a plan, as every command reads and writes it
    clicks-on-h100-8.kept.json   its card: name, note, origin, parent, question, when (schema recsmith/kept/1)
    clicks-on-h100-8.draft.json  changes by hand that are not kept as a plan yet (schema recsmith/draft/1)
    deleted/                     the same files of deleted plans

A file is written under another name, synced to disk and renamed, so it exists whole or not at all; names that begin
with a dot belong to files that are being written, and are never read. Plans are recorded nowhere else: a file that
another program puts here is a plan of the folder, and one that is moved away is not. Servers write one at a time, by a
lock on the folder that the kernel releases when a process ends, however it ends.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path

from recsmith.errors import RecSmithError, UsageError
from recsmith.files import replace_file
from recsmith.web.serving.kept_plans import slug
from recsmith.web.serving.settings import Refused

PLAN, CARD, DRAFT = ".json", ".kept.json", ".draft.json"
DELETED = "deleted"
PATIENCE_S = 10.0  # seconds to wait for the lock, which another server holds for milliseconds
LOOK_S = 0.01  # seconds between two attempts to take the lock
OLD_S = 3600.0  # seconds after which a temporary file must be from a process that was killed
_IN_WORK = re.compile(r"\..+\.json\.[a-z0-9_]{8}")  # temporary names that tempfile gives files next to their targets
_SAFE = re.compile(r"[A-Za-z0-9_-]+")


class Turn:
    """The right to write into a folder, held by one thread of one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.threads = threading.RLock()
        self.depth = 0

    @contextlib.contextmanager
    def __call__(self) -> Generator[None]:
        """Wait for the lock; Refused (409) if another process holds it longer than PATIENCE_S."""
        with self.threads:
            if self.depth:
                yield
                return
            handle = self._locked()
            self.depth += 1
            try:
                yield
            except OSError as error:
                raise unwritable(self.path, error) from None
            finally:
                self.depth -= 1
                os.close(handle)  # this releases the lock

    def _locked(self) -> int:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise unwritable(self.path, error) from None
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(handle)
                    raise Refused(
                        409, f"another program has been writing to '{self.path}' for {PATIENCE_S:g} s; try again"
                    ) from None
                time.sleep(LOOK_S)
            except OSError:  # a file system without locks, where only one server at a time is safe
                return handle


def unwritable(path: Path, error: OSError | RecSmithError) -> Refused:
    """The error (507) for a file or folder that cannot be written."""
    why = (error.strerror or error) if isinstance(error, OSError) else error
    return Refused(507, f"'{path}' cannot be written: {why}; nothing that was there has changed")


def made(path: Path) -> Path:
    """A readable folder, created if it does not exist; UsageError if it cannot be created or read."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        os.scandir(path).close()
    except OSError as error:
        raise UsageError(
            f"plans cannot be kept in '{path}': {error.strerror or error}; name another folder, or add --memory"
        ) from None
    return path


def default_folder() -> Path:
    """Where a user's plans are kept, by the system's rules for user data; UsageError for a user without a home."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    if Path(data_home).is_absolute():
        return Path(data_home) / "recsmith" / "plans"
    try:
        home = Path.home()
    except RuntimeError:
        raise UsageError("you have no home folder to keep plans in; name a folder, or add --memory") from None
    data = ("Library", "Application Support") if os.uname().sysname == "Darwin" else (".local", "share")
    return home.joinpath(*data) / "recsmith" / "plans"


def beside(path: Path, ending: str) -> Path:
    """The file next to a plan's file with another ending."""
    return path.with_name(path.name.removesuffix(PLAN) + ending)


def plan_files(folder: Path) -> dict[str, Path]:
    """Files of a folder that may be plans, by their ids in addresses; the oldest first."""
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(".") or not name.endswith(PLAN) or name.endswith((CARD, DRAFT)):
                continue
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file():
                    found.append((entry.stat().st_mtime, Path(entry.path)))
    return {key_of(path.name.removesuffix(PLAN)): path for _, path in sorted(found)}


def key_of(stem: str) -> str:
    """The id of a plan's file: its name, or, if an address cannot hold that, a slug with a digest of the name."""
    return stem if _SAFE.fullmatch(stem) else f"{slug(stem)}_{hashlib.sha256(os.fsencode(stem)).hexdigest()[:10]}"


def signature(path: Path) -> tuple[int, int, int] | None:
    """(inode, bytes, modification time), which changes when the file does; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; Refused (507) if it cannot be written."""
    try:
        replace_file(path, text.encode())
    except RecSmithError as error:
        raise unwritable(path, error) from None


def write_new(path: Path, text: str) -> bool:
    """Write a whole file if there is none yet; False if there is one, which stays unchanged."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        return _renamed(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def move(path: Path, target: Path) -> bool:
    """Rename a file; False if the new name is taken."""
    if not _renamed(path, target):
        return False
    path.unlink(missing_ok=True)
    return True


def _renamed(path: Path, target: Path) -> bool:
    """Whether a file could take a new, free name: by a link, because renaming would overwrite an existing file."""
    try:
        os.link(path, target)
    except FileExistsError:
        return False
    except OSError as error:
        if isinstance(error, FileNotFoundError) or target.exists():
            raise
        path.rename(target)  # a file system without links
    return True


def sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left more than an hour ago."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _IN_WORK.fullmatch(entry.name) and entry.stat().st_mtime < time.time() - OLD_S:
                Path(entry.path).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
