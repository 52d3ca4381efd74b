"""Reading under a limit, and atomic writing: what a failed write leaves behind."""

import bz2
import gzip
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.values import raw_workload

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import check_target, in_order, read_text, texts, write_text
from recsmith.files.writable import check_writable
from recsmith.workloads import load_workload

# --- reading ------------------------------------------------------------------------------------------------------


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path):
    path = tmp_path / "w.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(raw_workload()).encode())
    assert load_workload(str(path)).tables[0].name == "user_id"


@pytest.mark.parametrize("data", [b"\xff\xfea\x00", b"a: \xe9", "schema: ü".encode("latin-1")])
def test_only_utf8_is_read(tmp_path: Path, data: bytes):
    path = tmp_path / "w.yaml"
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"is not UTF-8 text .* save it as UTF-8$"):
        load_workload(str(path))


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gzip"), (bz2.compress, "bzip2")])
def test_a_packed_file_is_named_as_such(tmp_path: Path, pack: Callable[[bytes], bytes], name: str):
    path = tmp_path / "w.json"
    path.write_bytes(pack(json.dumps(raw_workload()).encode()))
    with pytest.raises(CorruptFile, match=f"w.json' is packed by {name}, and text is wanted; unpack it$"):
        load_workload(str(path))


def test_the_limit_is_512_mib():
    assert texts.LARGEST_FILE == 512 * 2**20


def test_files_over_the_limit_are_refused_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "w.yaml"
    monkeypatch.setattr(texts, "LARGEST_FILE", 10)
    path.write_text("a" * 10)
    assert read_text(str(path)) == "a" * 10
    path.write_text("a" * 11)
    with pytest.raises(CorruptFile, match="larger than 512 MiB"):
        load_workload(str(path))


def test_standard_input_is_read_under_the_same_rules(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "LARGEST_FILE", 3)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abcd")))
    with pytest.raises(CorruptFile, match="larger than 512 MiB"):
        read_text("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input is closed"):
        read_text("-")


@pytest.mark.parametrize("source", ["nowhere.yaml", ".", "a\0b", "x" * 5000])
def test_a_source_that_cannot_be_read_is_a_usage_error(source: str):
    with pytest.raises(UsageError, match=r"^cannot read"):
        read_text(source)


def test_pipes_are_read_and_silent_ones_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "PATIENCE_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match=r"nothing came through this pipe for 0\.1 s"):  # nobody writes
        read_text(str(pipe))
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"half of a ")
    with pytest.raises(UsageError, match="nothing came through"):  # the writer stays silent
        read_text(str(pipe))
    os.close(writer)
    with subprocess.Popen(["sh", "-c", f"sleep 0.05; seq 100000 > {pipe}"]):
        assert read_text(str(pipe)).split()[-1] == "100000"


def test_devices_and_endless_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for device in ("/dev/zero", "/dev/urandom", "/dev/null"):
        with pytest.raises(UsageError, match="it is a device; give the path of a readable file"):
            read_text(device)
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(CorruptFile, match="larger than 512 MiB"):
        read_text(str(tmp_path / "sparse.json"))
    monkeypatch.setattr(texts, "LARGEST_FILE", 2**20)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"yes > {pipe} 2> /dev/null"]), pytest.raises(CorruptFile, match="larger than"):
        read_text(str(pipe))


# --- writing ------------------------------------------------------------------------------------------------------


def test_a_new_file_has_the_usual_permissions(tmp_path: Path):
    old = os.umask(0o027)
    try:
        write_text(str(tmp_path / "new"), "ü")
    finally:
        os.umask(old)
    assert (tmp_path / "new").read_bytes() == "ü".encode()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_an_existing_file_keeps_its_permissions(tmp_path: Path):
    path = tmp_path / "old"
    path.write_text("old")
    path.chmod(0o604)
    write_text(str(path), "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o604


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, stop: BaseException
):
    def fail(*_: object) -> None:
        raise stop

    (tmp_path / "plan").write_text("old")
    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises((RecSmithError, KeyboardInterrupt)) as caught:
        write_text(str(tmp_path / "plan"), "new" * 10_000)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan", "old")]
    if isinstance(caught.value, RecSmithError):
        assert "No space left on device; any file that was there is unchanged" in str(caught.value)
        assert caught.value.exit_code == 1


def test_a_link_stays_a_link_and_the_file_behind_it_is_replaced(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "plan").write_text("old")
    (tmp_path / "link").symlink_to("real/plan")
    check_target(str(tmp_path / "link"))
    write_text(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "plan").read_text() == "new"
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["plan"]


def test_a_dangling_link_gets_its_file(tmp_path: Path):
    (tmp_path / "link").symlink_to("plan")
    write_text(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plan").read_text() == "new"


def test_pipes_and_devices_are_written_to_and_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(os, "access", lambda *_: False)  # the folder of a device need not be writable
    check_target(str(pipe))
    write_text(str(pipe), "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    check_target("/dev/null")
    write_text("/dev/null", "new")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(RecSmithError, match="No space left"):
        write_text("/dev/full", "new")


def test_a_folder_is_no_target(tmp_path: Path):
    with pytest.raises(UsageError, match="it is a folder"):
        check_target(str(tmp_path))
    with pytest.raises(RecSmithError, match=r"^cannot write"):
        write_text(str(tmp_path), "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_a_usage_error(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=r"cannot write '.*; choose a folder you may write to"):
        write_text(f"{tmp_path}/{name}", "x")


def test_a_folder_must_exist(tmp_path: Path):
    with pytest.raises(UsageError, match="does not exist; create it first"):
        check_target(str(tmp_path / "no" / "plan"))
    with pytest.raises(UsageError, match="No such file or directory"):
        write_text(str(tmp_path / "no" / "plan"), "new")


def test_a_folder_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    (tmp_path / "kept").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(UsageError, match="kept': Permission denied; choose a folder you may write to"):
        check_target(str(tmp_path / "kept"))
    for make in ("mkstemp", "TemporaryFile"):
        monkeypatch.setattr(tempfile, make, refuse)
    for write in (check_target, check_writable, lambda path: write_text(path, "new")):
        with pytest.raises(UsageError, match=r"\Acannot write '.*/plan': Read-only file system; choose a folder"):
            write(str(tmp_path / "plan"))


@pytest.mark.parametrize("target", [None, "-"])
def test_standard_output_is_always_a_target(target: str | None):
    check_target(target)


# --- files of a folder -----------------------------------------------------------------------------------------------


def test_numbers_in_names_count_as_numbers():
    wanted = [
        Path(each)
        for each in (
            "2/part-9",
            "10/part-1",
            "10/part-01",
            "10/part-2.gz",
            "a",
            "day_2",
            "day_10",
            "day_10b",
            "day_b",
            "x1y2",
            "x1y10",
        )
    ]
    wanted[1:3] = sorted(wanted[1:3], key=str)
    mixed = random.Random(3).sample(wanted, len(wanted))
    assert in_order(mixed) == wanted
