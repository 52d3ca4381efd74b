"""Addresses of stores: what they name, what a store refuses, what is tried again, and that nobody sees a key."""

from pathlib import Path

import pytest
from support.stores import KEY, SECRET, Store, cut_line, one_in

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import check_target, path_of, read_text, shown_address, write_text
from recsmith.files.remote.paths import RemotePath, remote_path


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        (f"s3://{KEY}:{SECRET}@clicks/day", r"'s3://\*\*\*@clicks/day' holds credentials"),
        (f"s3://clicks/day?access_key={KEY}&secret_key={SECRET}", r"'s3://clicks/day\?\*\*\*' holds credentials"),
        (f"s3://{KEY}:with/a/stroke{SECRET}@clicks/day", r"'s3://\*\*\*@clicks/day' holds credentials"),
        ("s3:///day", "names no bucket"),
        ("gs://", "names no bucket"),
        ("s3://clicks/../other", r"has '\.' or '\.\.' in it"),
    ],
)
def test_an_address_that_names_nothing_or_holds_credentials_is_refused(address: str, rule: str):
    for read in (read_text, path_of, lambda text: write_text(text, ""), lambda text: check_target(text)):
        with pytest.raises(UsageError, match=rule) as caught:
            read(address)
        assert SECRET not in str(caught.value)
        assert KEY not in str(caught.value)
    assert SECRET not in shown_address(f"https://{KEY}:{SECRET}@host/day?X-Amz-Signature={SECRET}")


def test_a_path_is_a_path_and_an_address_answers_as_a_path_does(store: Store):
    assert path_of("/some/s3/file") == path_of("file:///some/s3/file") == Path("/some/s3/file")
    for key in ("a/part-10.csv", "a/part-2.csv", "a/b/part-1.csv", "ab/part-3.csv"):
        store.put(key, b"x" * len(key))
    folder = path_of(f"{store.at}/a")
    assert isinstance(folder, RemotePath)
    assert folder.is_dir()
    assert not folder.is_file()
    assert [str(each) for each in folder.iterdir()] == [f"{store.at}/a/part-10.csv", f"{store.at}/a/part-2.csv"]
    assert [str(each.relative_to(folder)) for each in folder.rglob("*-1.csv")] == ["b/part-1.csv"]
    file = folder / "part-2.csv"
    assert (file.name, file.stem, file.suffix, file.stat().st_size) == ("part-2.csv", "part-2", ".csv", 12)
    assert str(file.parent) == str(folder)
    assert file.exists()
    assert not (folder / "part-1.csv").exists()
    assert str(folder / f"{store.at}/ab") == f"{store.at}/ab"


def test_a_file_at_an_address_is_read_and_written_whole(store: Store, tmp_path: Path):
    text = f"{store.at}/plans/plan.json"
    write_text(text, "{}")
    assert read_text(text) == "{}"
    check_target(text, inputs=["s3://other/plan.json"], kind=rb"\{")
    with pytest.raises(UsageError, match="this command reads it"):
        check_target(text, inputs=[f"{store.at}//plans/plan.json"])
    with pytest.raises(UsageError, match="a file of another kind is there"):
        check_target(text, kind=rb"\[")
    write_text(f"file://{tmp_path}/here.json", "1")
    assert read_text(f"file://{tmp_path}/here.json") == "1"
    store.put("large", b"\xff")
    with pytest.raises(CorruptFile, match="is not UTF-8"):
        read_text(f"{store.at}/large")


def test_what_a_store_refuses_is_told_at_once_without_keys(store: Store, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match=rf"cannot read '{store.at}/nothing': there is no such bucket or object"):
        read_text(f"{store.at}/nothing")
    with pytest.raises(UsageError, match="cannot write 's3://no-such-bucket/a': there is no such bucket or object"):
        write_text("s3://no-such-bucket/a", "")
    store.put("there", b"1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    found = r"\(ACCESS_DENIED\), and no credentials were found; set AWS_ACCESS_KEY_ID and .* that may read it"
    with pytest.raises(UsageError, match=found):
        read_text(f"{store.at}/there")
    monkeypatch.setenv("RECSMITH_STORE_PATIENCE", "soon")
    with pytest.raises(UsageError, match=r"RECSMITH_STORE_PATIENCE is 'soon'; it must be a number of seconds"):
        read_text(f"{store.at}/there")


def test_cut_connections_are_tried_again_and_given_up_at_the_deadline(store: Store, monkeypatch: pytest.MonkeyPatch):
    data = bytes(range(256)) * 4096
    store.put("many", data)
    with cut_line(store.server, cut=one_in(30)) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        path = remote_path(f"{store.at}/many")
        for _ in range(3):
            assert path.read_bytes() == data
        with path.open() as file:
            assert file.seek(-700_000, 2) == len(data) - 700_000
            assert file.read(5) == data[-700_000:][:5]
            assert file.read() == data[-699_995:]
        assert line.cuts >= 2
        empty = store.put("none", b"")
        assert remote_path(empty).read_bytes() == b""
        line.cut = lambda _: True  # at the same place of each answer, so that all of them say the same
        monkeypatch.setenv("RECSMITH_STORE_PATIENCE", "1")
        with pytest.raises(RecSmithError, match="cut off or gave no answer"):
            remote_path(f"{store.at}/many").stat()
        with pytest.raises(RecSmithError, match=r"cut off or gave no answer \((NETWORK|its ans).*\), after [0-9]+ tr"):
            path.read_bytes()
