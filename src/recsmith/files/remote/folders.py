"""Publishes folders in a store atomically, without renaming: objects first, then an index in one request.

    <address>/<name>.<job>.<number>/<file>   the files of one try to publish a folder; every try has its own prefix
    <address>/published.json                 the index of complete tries: sizes and SHA-256 of their files (Published)

A folder exists once the index, which is written last, names its try. Readers find folders only through the index, so
they never read half a folder. Files of older folders are removed after an index without them is written.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from recsmith._types import noun
from recsmith.errors import CorruptFile, RecSmithError, check_rules
from recsmith.files import by_number, check_schema, decode, encode
from recsmith.files.remote.paths import RemotePath, StoredFile, remote_path
from recsmith.files.remote.stores import CutAnswer, client, tried

SCHEMA, INDEX, PROBE = "recsmith/published/1", "published.json", "published.probe"
BLOCK, RANGE = 2**23, 2**24  # bytes written at once, and bytes read at once
AT_ONCE = 8  # most simultaneous requests of a process
TAKES = 3  # most downloads of a file whose bytes are wrong
FORGOTTEN_S = 86_400.0  # seconds after which objects that no index names are taken as left by a job that is gone
TRY = re.compile(r"[a-z]+(?:-[0-9]+)?\.[0-9a-f]{16}\.[0-9]+")  # the name of a try


@noun
class PublishedFile:
    """A file of a published folder, with its size and checksum."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.name).parts
        check_rules(
            None if parts and not {"..", "/"} & set(parts) else f"'{self.name}' is no file within a folder",
            None if self.bytes >= 0 else f"bytes is {self.bytes}; it must be 0 or more",
        )


@noun
class PublishedFolder:
    """A published folder: its name, such as step-00001000, and the try that its files belong to."""

    name: str
    attempt: str
    files: tuple[PublishedFile, ...]

    def __post_init__(self) -> None:
        whole = TRY.fullmatch(self.attempt) and self.attempt.startswith(f"{self.name}.")
        check_rules(None if whole else f"'{self.attempt}' is no try of '{self.name}'")

    @property
    def kind(self) -> str:
        """The kind of folder: 'step' of step-00001000."""
        return self.name.partition("-")[0]


@noun
class Published:
    """The complete folders, in order of their names."""

    folders: tuple[PublishedFolder, ...] = ()


class FolderStore:
    """The published folders at an address; only one job at a time may write there.

    Raises:
        UsageError: it is no address, or the store refuses.
        RecSmithError: the store did not answer within the time limit.
    """

    def __init__(self, address: str) -> None:
        self.at = remote_path(address)

    def check(self) -> None:
        """Refuse an address that cannot be written; the test object is removed again."""
        probe = self.at / PROBE
        probe.write_bytes(b"")
        with suppress(RecSmithError):
            probe.unlink()

    def folders(self) -> dict[str, PublishedFolder]:
        """The complete folders by name, in order of names; CorruptFile if the index is invalid."""
        path = self.at / INDEX
        if not path.exists():
            return {}

        def read(file: Any) -> Any:
            data: bytes = file.read_at(file.size(), 0)
            try:
                return json.loads(data)
            except ValueError:  # parts of two indexes, since one was written during the read
                raise CutAnswer(f"{len(data)} bytes are no index") from None

        raw, source = path.reading(read), str(path)
        found = decode(Published, check_schema(raw, SCHEMA, source), source)
        return {each.name: each for each in found.folders}

    def upload(self, folder: Path, files: Iterable[Path], attempt: str) -> list[PublishedFile]:
        """Upload files of a folder under the name of a try, several at once; OSError if a file cannot be read."""
        place = self.at / attempt

        def put(file: Path) -> PublishedFile:
            name = file.relative_to(folder).as_posix()
            return _put(file, name, place / name)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(put, sorted(files)))

    def publish(self, made: PublishedFolder, keep: int, job: str) -> None:
        """Add a folder to the index, and remove all but the newest `keep` folders of its kind.

        Folders of its kind with later names are removed, too, because these steps are trained again. job: the job of
        the try; its unfinished tries are removed.
        """
        there = self._objects_with(made)
        before = self.folders()
        others = [each for each in before.values() if each.kind != made.kind]
        alike = [each for each in before.values() if each.kind == made.kind]
        older = [each for each in alike if by_number(each.name) < by_number(made.name)]
        kept = [*others, *older[len(older) - min(len(older), keep - 1) :], made]
        index = Published(folders=tuple(sorted(kept, key=lambda each: (each.kind, by_number(each.name)))))
        (self.at / INDEX).write_bytes(json.dumps({"schema": SCHEMA, **encode(index)}).encode())
        named, dropped = {each.attempt for each in kept}, {each.attempt for each in before.values()}
        self._remove({name for name in _gone(there, job) | dropped if name not in named})

    def fetch(self, wanted: PublishedFolder, target: Path) -> None:
        """Download a folder to `target`, which appears when it is complete.

        In an existing target, files of the right size are kept.

        Raises:
            CorruptFile: the bytes differ from those that were published.
            OSError: the disk refuses.
        """
        place = self.at / wanted.attempt
        partial = target if target.exists() else target.with_name(f"{target.name}.partial")
        if partial != target:
            shutil.rmtree(partial, ignore_errors=True)
        for file in wanted.files:
            here = partial / file.name
            if not here.exists() or here.stat().st_size != file.bytes:
                here.parent.mkdir(parents=True, exist_ok=True)
                _take(
                    RemotePath((place / file.name).address, StoredFile(st_size=file.bytes, st_mtime_ns=0)), file, here
                )
        if partial != target:
            os.sync()
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)

    def _objects_with(self, made: PublishedFolder) -> dict[str, StoredFile]:
        """All objects at the address, after checking up to TAKES times that those of a try are complete."""
        problem = ""
        for _ in range(TAKES):
            there = {str(each.relative_to(self.at)): each.stat() for each in self.at.rglob("*")}
            sizes = ((file, there.get(f"{made.attempt}/{file.name}")) for file in made.files)
            wrong = next(((file, found) for file, found in sizes if not found or found.st_size != file.bytes), None)
            if wrong is None:
                return there
            size = "missing" if wrong[1] is None else f"{wrong[1].st_size:,} bytes"
            name = self.at / made.attempt / wrong[0].name
            problem = f"'{name}' is {size} in the store, and {wrong[0].bytes:,} were put there"
        raise RecSmithError(f"{problem}; look whether somebody else removes objects there")

    def _remove(self, attempts: set[str]) -> None:
        """Remove tries that no index names; if the store refuses now, the next call removes them."""
        for name in attempts:
            address = (self.at / name).address

            def remove(inner: str = address.inner) -> None:
                with suppress(FileNotFoundError):
                    client(self.at.address).delete_dir(inner)

            with suppress(RecSmithError, OSError):
                tried(address, "remove", remove)


def _gone(there: dict[str, StoredFile], job: str) -> set[str]:
    """Names of tries among the objects at an address that belong to a job, or whose newest object is old."""
    newest: dict[str, int] = {}
    for key, found in there.items():
        name = PurePosixPath(key).parts[0]
        if TRY.fullmatch(name):
            newest[name] = max(newest.get(name, 0), found.st_mtime_ns)
    now = time.time()
    return {name for name, ns in newest.items() if f".{job}." in name or now - ns / 1e9 > FORGOTTEN_S}


def _put(file: Path, name: str, target: RemotePath) -> PublishedFile:
    def attempt() -> PublishedFile:
        held, size = hashlib.sha256(), 0
        with file.open("rb") as source, client(target.address).open_output_stream(target.address.inner) as sink:
            while block := source.read(BLOCK):
                held.update(block)
                sink.write(block)
                size += len(block)
        return PublishedFile(name=name, bytes=size, sha256=held.hexdigest())

    return tried(target.address, "write", attempt)


def _take(path: RemotePath, wanted: PublishedFile, here: Path) -> None:
    """Download a file by several ranges at once; CorruptFile if its bytes are wrong TAKES times."""
    partial = here.with_name(f"{here.name}.part")
    for _ in range(TAKES):
        with partial.open("wb") as file, ThreadPoolExecutor(AT_ONCE) as threads:

            def bring(first: int, handle: int = file.fileno()) -> None:
                os.pwrite(handle, path.read_range(first, min(RANGE, wanted.bytes - first)), first)

            list(threads.map(bring, range(0, wanted.bytes, RANGE)))
        with partial.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == wanted.sha256:
                partial.replace(here)
                return
    partial.unlink()
    raise CorruptFile(
        f"'{path}' is damaged: its bytes are not those that were published; give the address of another job, or remove "
        f"its folder from {INDEX} there, and training goes on from the one before"
    )
