"""A disk is measured by reading a file of it past the page cache."""

from pathlib import Path

import pytest

from recsmith.errors import UsageError
from recsmith.measuring import disk
from recsmith.measuring.disk import measure_disk


def test_a_disk_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    try:
        found = measure_disk(tmp_path, seconds=0.1, size=disk.LEAST)
    except UsageError as error:
        pytest.skip(str(error))  # a file system without O_DIRECT, or without room
    assert found.access_bytes == disk.ACCESS
    assert min(found.bandwidth, found.reads_per_s) > 0  # which is larger by bytes, only an idle machine says
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the disk of '.*nowhere' cannot be measured: No such file"):
        measure_disk(tmp_path / "nowhere")


def test_memory_is_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    assert disk.file_system("/usr", str(mounts)) == "ext4"
    assert disk.file_system(tmp_path / "inner", str(mounts)) == "tmpfs"
    assert disk.file_system("/usr", str(tmp_path / "none")) is None
    monkeypatch.setattr(disk, "file_system", lambda _: "tmpfs")
    with pytest.raises(UsageError, match="is tmpfs, which lies in memory, not on a disk"):
        measure_disk(tmp_path)


def test_too_little_room_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has .* free"):
        measure_disk(tmp_path, size=disk.LEAST - 1)
