"""Output paths: never an input, and no file of another kind unless it is forced."""

import os
from pathlib import Path

import pytest

from recsmith.errors import RecSmithError, UsageError
from recsmith.files import check_target, locked_folder, starts_with_schema
from recsmith.files.writable import whole_folder

PLAN = starts_with_schema("recsmith/plan/1")
INPUT = "this command reads it"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    file = tmp_path / "tables.json"
    file.write_text('{"schema": "recsmith/plan/1"}')
    return file


def test_an_input_is_refused_under_any_name_even_if_forced(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "link").symlink_to(tables)
    os.link(tables, tmp_path / "twin")
    monkeypatch.chdir(tmp_path)
    for target in (str(tables), "tables.json", "./tables.json", "link", "twin"):
        for word in (str(tables), "link", f"neural:{tables}", f"file://{tables}", str(tmp_path)):
            with pytest.raises(UsageError, match=INPUT):
                check_target(target, inputs=["h100:8", None, word], kind=PLAN, force=True)
    check_target("other.json", inputs=[str(tables), "x" * 5000, "a\0b"], kind=PLAN)


@pytest.mark.parametrize("refused", [1, 2])
def test_a_folder_that_cannot_be_replaced_is_as_before_or_said_to_lie_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
):
    target, rename, left = tmp_path / "out", Path.rename, iter(range(refused))
    target.mkdir()
    (target / "old").touch()

    def refusing(path: Path, to: Path) -> Path:
        if to == target and next(left, None) is not None:
            raise OSError(5, "Input/output error")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refusing)
    aside = f", and what it held is in '{target}.old'" if refused == 2 else ""
    with pytest.raises(RecSmithError, match=f"'{target}': Input/output error{aside}; make room"), whole_folder(target):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["out" if refused == 1 else "out.old"]
    assert [each.name for each in tmp_path.rglob("old")] == ["old"]


def test_standard_input_is_an_input(tables: Path, monkeypatch: pytest.MonkeyPatch):
    kept = os.dup(0)
    with tables.open() as file:
        os.dup2(file.fileno(), 0)
    try:
        with pytest.raises(UsageError, match=INPUT):
            check_target(str(tables), inputs=["-"])
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.mark.parametrize(
    "text",
    ['{"schema": "recsmith/plan/1", "digest": ""}', '\n{\n  "schema" : "recsmith/plan/2"}', "",
     "\ufeffschema: recsmith/plan/1", "# by hand\n---\nschema: recsmith/plan/1\n"],
)  # fmt: skip
def test_files_of_the_same_kind_and_empty_ones_are_overwritten(tmp_path: Path, text: str):
    (tmp_path / "x").write_text(text)
    check_target(str(tmp_path / "x"), kind=PLAN)


@pytest.mark.parametrize(
    "text",
    [
        "my thesis",
        '{"schema": "recsmith/workload/1"}',
        '{"plan": {"schema": "recsmith/plan/1"}}',
        "# " * 10**6,
        "\0\xff",
    ],
)
def test_files_of_other_kinds_need_force(tmp_path: Path, text: str):
    (tmp_path / "x").write_text(text)
    with pytest.raises(
        UsageError, match="a file of another kind is there and would be lost; give another path, or --force"
    ):
        check_target(str(tmp_path / "x"), kind=PLAN)
    check_target(str(tmp_path / "x"), kind=PLAN, force=True)
    check_target(str(tmp_path / "x"))


@pytest.mark.parametrize(
    ("target", "cause"), [("x" * 5000, "File name too long"), ("a\0b", "null"), ("n/x", "create it")]
)
def test_what_the_system_says_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, cause: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"^cannot write .*{cause}"):
        check_target(target, kind=PLAN)


def test_a_folder_that_cannot_be_locked_is_refused_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refusing(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refusing)
    held = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(UsageError, match=f"cannot write '{tmp_path}': No locks available"), locked_folder(tmp_path):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == held


def test_a_folder_made_for_a_run_that_wrote_nothing_is_removed_again(tmp_path: Path):
    new, old, used = tmp_path / "new", tmp_path / "old", tmp_path / "used"
    old.mkdir()
    for folder in (new, old, used):
        with pytest.raises(UsageError, match="refused"):
            _begin_and_fail(folder, writes=folder is used)
    assert [folder.exists() for folder in (new, old, used)] == [False, True, True]


def _begin_and_fail(folder: Path, *, writes: bool) -> None:
    with locked_folder(folder):
        (folder / "checkpoints" / "deeper").mkdir(parents=True)
        if writes:
            (folder / "checkpoints" / "log.jsonl").touch()
        raise UsageError("refused")
