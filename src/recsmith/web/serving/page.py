"""The files of the page, read once when the server starts: no address of a request becomes a path."""

import mimetypes
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

INDEX = "app.html"
NO_PAGE = b"<!doctype html><title>RecSmith</title><p>This installation has no page; its JSON API is complete."


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """Bytes and media type of every file of the page, by its address."""
    folder = resources.files("recsmith.web") / "static" / "app"
    found = {f"/{name}": (file.read_bytes(), _kind(name)) for name, file in _files(folder)}
    index = found.pop(f"/{INDEX}", (NO_PAGE, "text/html"))
    return found | {"/": index}


def _files(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    if not folder.is_dir():
        return []
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        found += _files(entry, f"{name}/") if entry.is_dir() else [(name, entry)]
    return found


def _kind(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
