"""Folders that are published: whole or not there, whatever is cut; older ones go afterwards, and nothing else does."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.stores import Store, cut_line, one_in

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files.remote import folders
from recsmith.files.remote.folders import FolderStore, PublishedFile, PublishedFolder

JOB, OTHER = "a" * 16, "b" * 16


def a_folder(at: Path, seed: int = 0, size: int = 70_000) -> Path:
    """A folder of three files, one of them empty, one in a folder."""
    (at / "state").mkdir(parents=True)
    drawn = np.random.default_rng(seed).bytes(size)
    for name, data in {"state/__0_0.distcp": drawn, "progress.json": b"{}", "random-0.json": b""}.items():
        (at / name).write_bytes(data)
    return at


def published(store: FolderStore, folder: Path, name: str, job: str = JOB, number: int = 0, keep: int = 2) -> None:
    attempt = f"{name}.{job}.{number}"
    files = store.upload(folder, [each for each in folder.rglob("*") if each.is_file()], attempt)
    store.publish(PublishedFolder(name=name, attempt=attempt, files=tuple(files)), keep, job)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_folder_is_there_once_it_is_whole_and_comes_back_as_it_was(store: Store, tmp_path: Path):
    there, here = FolderStore(f"{store.at}/runs/a"), a_folder(tmp_path / "made", size=2 * folders.RANGE + 5)
    there.check()
    assert there.folders() == {}
    attempt = f"step-00000005.{JOB}.0"
    files = there.upload(here, [each for each in here.rglob("*") if each.is_file()], attempt)
    assert there.folders() == {}  # all of its files are there, and no index names them
    there.publish(PublishedFolder(name="step-00000005", attempt=attempt, files=tuple(files)), 2, JOB)
    (wanted,) = there.folders().values()
    there.fetch(wanted, tmp_path / "step-00000005")
    assert contents(tmp_path / "step-00000005") == contents(here)
    (tmp_path / "step-00000005" / "progress.json").unlink()
    there.fetch(wanted, tmp_path / "step-00000005")  # of a folder that lacks a file
    assert contents(tmp_path / "step-00000005") == contents(here)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["made", "step-00000005"]


def test_the_newest_of_many_steps_is_the_newest(store: Store, tmp_path: Path):
    there, here = FolderStore(f"{store.at}/runs/a"), a_folder(tmp_path / "made", size=1)
    for name in ("step-99999999", "step-100000000"):
        published(there, here, name)
    assert list(there.folders()) == ["step-99999999", "step-100000000"]


def test_older_folders_go_when_a_newer_one_is_there_and_nothing_else(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    there, here = FolderStore(f"{store.at}/runs/a"), a_folder(tmp_path / "made")
    store.put("runs/a/notes.txt", b"of somebody else")
    store.put(f"runs/a/step-00000020.{OTHER}.0/state", b"of a job that puts it just now")
    store.put(f"runs/a/step-00000001.{JOB}.9/state", b"of a try of this job that failed")
    published(there, here, "model")
    for step in (5, 10, 15):
        published(there, here, f"step-{step:08d}", number=step)
    assert list(there.folders()) == ["model", "step-00000010", "step-00000015"]
    tries = {key.split("/")[2] for key in store.names("runs/a/") if key.count("/") > 2}
    assert tries == {
        f"model.{JOB}.0", f"step-00000010.{JOB}.10", f"step-00000015.{JOB}.15", f"step-00000020.{OTHER}.0",
    }  # fmt: skip
    assert store.get("runs/a/notes.txt") == b"of somebody else"
    published(there, here, "step-00000012", OTHER)  # trained again from step 10 on
    assert list(there.folders()) == ["model", "step-00000010", "step-00000012"]
    monkeypatch.setattr(folders, "FORGOTTEN_S", -1.0)
    published(there, here, "step-00000013")
    assert not store.names(f"runs/a/step-00000020.{OTHER}.0")


def test_no_half_folder_is_ever_read_over_a_line_that_is_cut(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RECSMITH_STORE_PATIENCE", "60")
    with cut_line(store.server, cut=one_in(6)) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        there = FolderStore(f"{store.at}/runs/a")
        for step in (1, 2, 3):
            here = a_folder(tmp_path / f"made-{step}", step)
            published(there, here, f"step-{step:08d}", number=step)
            (*_, newest) = there.folders().values()
            assert newest.name == f"step-{step:08d}"
            there.fetch(newest, tmp_path / newest.name)
            assert contents(tmp_path / newest.name) == contents(here)
        assert line.cuts >= 10
        line.cut = lambda _: True
        monkeypatch.setenv("RECSMITH_STORE_PATIENCE", "0.1")
        with pytest.raises(RecSmithError, match="the connection to the store was cut off"):
            published(there, a_folder(tmp_path / "made-4", 4), "step-00000004")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.server}")
    assert list(there.folders()) == ["step-00000002", "step-00000003"]


def test_what_is_damaged_or_missing_is_neither_published_nor_brought(store: Store, tmp_path: Path):
    there, here = FolderStore(f"{store.at}/a"), a_folder(tmp_path / "made")
    lost = PublishedFile(name="lost", bytes=3, sha256="")
    with pytest.raises(RecSmithError, match="lost' is missing in the store, and 3 were put there"):
        there.publish(PublishedFolder(name="step-1", attempt=f"step-1.{JOB}.0", files=(lost,)), 2, JOB)
    assert there.folders() == {}
    published(there, here, "step-00000001")
    (wanted,) = there.folders().values()
    store.put(f"a/{wanted.attempt}/state/__0_0.distcp", b"x" * 70_000)
    with pytest.raises(CorruptFile, match="is damaged: its bytes are not those that were published"):
        there.fetch(wanted, tmp_path / "step-00000001")
    assert not (tmp_path / "step-00000001").exists()


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"name": "step-2"}, "is no try of 'step-2'"),
        ({"files": [{"name": "../../etc/cron", "bytes": 1, "sha256": ""}]}, "is no file within a folder"),
        ({"files": [{"name": "/etc/cron", "bytes": 1, "sha256": ""}]}, "is no file within a folder"),
        ({"files": [{"name": "a", "bytes": -1, "sha256": ""}]}, "bytes is -1"),
        ({"more": 1}, "more"),
    ],
)
def test_an_index_that_names_other_places_is_refused(store: Store, changed: dict[str, object], rule: str):
    entry = {"name": "step-1", "attempt": f"step-1.{JOB}.0", "files": [], **changed}
    store.put("a/published.json", json.dumps({"schema": folders.SCHEMA, "folders": [entry]}).encode())
    with pytest.raises(UsageError, match=rule):
        FolderStore(f"{store.at}/a").folders()
