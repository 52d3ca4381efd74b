"""Folders of measurements that ship with the package, made by `make measurements`."""

from importlib import resources
from pathlib import Path

from recsmith.errors import UsageError

PREFIX = "shipped:"  # of names that mean a folder of the package


def locate(folder: str) -> Path:
    """The folder of a path, or of 'shipped:<name>'; UsageError where none of that name ships."""
    if not folder.startswith(PREFIX):
        return Path(folder)
    home = Path(str(resources.files("recsmith.measuring"))) / "shipped"
    name = folder.removeprefix(PREFIX)
    there = sorted(entry.name for entry in home.iterdir() if entry.is_dir()) if home.is_dir() else []
    if name not in there:
        names = f"there are {', '.join(there)}" if there else "none do; `make measurements` makes them"
        raise UsageError(f"no measurements '{name}' ship with this version; {names}")
    return home / name
