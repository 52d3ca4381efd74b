"""Checkpoints and models of a job in a store (`checkpoint.publish`): all ranks upload files, then rank 0 the index.

They are written into the run's folder as usual, and uploaded from there; a start whose folder has an older checkpoint,
or none, downloads the newest one from the store.
"""

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist

from recsmith.adapters.rank_0 import from_rank_0
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import Raw, by_number, decode, encode
from recsmith.files.remote.folders import FolderStore, PublishedFile, PublishedFolder
from recsmith.training.job.resuming import CHECKPOINTS, checkpoint_folders
from recsmith.training.run import Run

OF_RANK = re.compile(r"(?:__|random-)([0-9]+)(?:_[0-9]+\.distcp|\.json)")  # files of a checkpoint by rank


class Publisher:
    """Uploads folders of a job to a store, on every rank.

    address: address of the store. keep: number of checkpoints that are kept. group: process group of the ranks.
    """

    def __init__(self, address: str, keep: int, group: Any) -> None:
        self.store, self.keep, self._count = FolderStore(address), keep, 0
        self._job: str = from_rank_0(lambda: {"job": secrets.token_hex(8)}, group)["job"]

    def bring(self, folder: Path, group: Any) -> None:
        """Download the newest checkpoint into the checkpoints folder unless that has a newer one; on every rank.

        Raises:
            UsageError: the store refuses, or its content is damaged.
        """
        from_rank_0(lambda: _brought(self.store, folder), group)

    def publish(self, folder: Path, name: str, group: Any) -> str | None:
        """Upload a folder to which every rank has written its part, under a name; returns what went wrong, in words."""
        attempt = f"{name}.{self._job}.{self._count}"
        self._count += 1
        said: list[Raw] = [{}] * dist.get_world_size(group)
        dist.all_gather_object(said, self._put(folder, attempt, dist.get_rank(group)), group=group)
        problem = next((each["problem"] for each in said if "problem" in each), None)

        def put_index() -> Raw:
            files = [decode(PublishedFile, file, str(folder)) for each in said for file in each["files"]]
            made = PublishedFolder(name=name, attempt=attempt, files=tuple(files))
            return {"problem": _problem_of(lambda: self.store.publish(made, self.keep, self._job))}

        return problem or from_rank_0(put_index, group)["problem"]

    def _put(self, folder: Path, attempt: str, rank: int) -> Raw:
        """Upload this rank's files; returns them with their sizes at that time, or the problem."""
        try:
            return {"files": [encode(each) for each in self.store.upload(folder, own_files(folder, rank), attempt)]}
        except (OSError, RecSmithError) as error:
            return {"problem": str(error)}


def own_files(folder: Path, rank: int) -> Iterator[Path]:
    """The files of a folder that a rank uploads: those with its number; rank 0 also those without a number."""
    for path in folder.rglob("*"):
        found = OF_RANK.fullmatch(path.name)
        if path.is_file() and (int(found[1]) if found else 0) == rank:
            yield path


def published_note(run: Run) -> list[str]:
    """A line that says that a start would download a checkpoint from the store, which a dry run does not."""
    if run.checkpoint is None or run.checkpoint.publish is None:
        return []
    newest = _newest(FolderStore(run.checkpoint.publish))
    here = [each.name for each in checkpoint_folders(Path(run.output) / CHECKPOINTS)]
    if newest is None or (here and by_number(newest.name) <= by_number(here[-1])):
        return []
    where = run.checkpoint.publish
    return [f"training brings {newest.name} from '{where}' and goes on from there; this dry run has not looked into it"]


def _brought(store: FolderStore, folder: Path) -> Raw:
    """Download the newest checkpoint; if another job replaces it meanwhile, download its successor.

    Returns {}.
    """
    newest = _newest(store)
    here = [each.name for each in checkpoint_folders(folder)]
    while newest is not None and (not here or by_number(newest.name) >= by_number(here[-1])):
        try:
            store.fetch(newest, folder / newest.name)
            break
        except UsageError:
            before, newest = newest, _newest(store)
            if newest == before:
                raise
        except OSError as error:
            raise RecSmithError(
                f"'{store.at / newest.name}' cannot be brought to '{folder}': {error.strerror or error}; make room, or "
                "give an output on another disk"
            ) from None
    return {}


def _newest(store: FolderStore) -> PublishedFolder | None:
    found = [each for each in store.folders().values() if each.kind == "step"]
    return found[-1] if found else None


def _problem_of(act: Any) -> str | None:
    try:
        act()
    except RecSmithError as error:
        return str(error)
    return None
