"""Strict reading and atomic writing: what is refused, what it says, and what a failed write leaves behind."""

import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith import files
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import check_target, did_you_mean, dump_json, parse, parse_json, parse_yaml, read_text, write_text
from recsmith.workloads import load_workload, workload_from_raw

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e20, 1e20) | PRINTABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PRINTABLE, inner, max_size=3),
    max_leaves=8,
)


def raw_workload(**table: Any) -> dict[str, Any]:
    """Plain data of a workload of one table; fields given here are put on the table."""
    fields = {"name": "user_id", "num_embeddings": 1000, "embedding_dim": 128, "pooling_factor": 1.5}
    return {"schema": "recsmith/workload/1", "batch_size": 8, "optimizer": "sgd", "tables": [fields | table]}


def refusal(raw: Any) -> str:
    with pytest.raises(CorruptFile) as caught:
        workload_from_raw(raw, "w.json")
    return str(caught.value)


# --- YAML ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1_000_000),
        ("2.0", 2),
        ("1.5e-3", 0.0015),
        (".5", 0.5),
        ("1.", 1),
        ("+7", 7),
        ("-0", 0),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e300", 1e300),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("nULL", "nULL"),
        ("tRUE", "tRUE"),
        ("12:30", "12:30"),
        ("190:20:30", "190:20:30"),
        ("2020-01-01", "2020-01-01"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("1e", "1e"),
        ("=", "="),
        ("'128'", "128"),
        ('"1e6"', "1e6"),
    ],
)
def test_yaml_has_the_core_meanings_of_yaml_1_2(text: str, value: object):
    found: Any = parse_yaml(f"a: {text}", "w.yaml")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2", "'a' stands twice in one object; keep one (line 2"),
        ("a: {b: 1, b: 2}", "'b' stands twice"),
        ("a:\n- c: 1\n  c: 1", "'c' stands twice in one object; keep one (line 3"),
        ("a: &x 1\nb: *x", "anchors and aliases are not allowed (line 1)"),
        ("a: 1\nb: &x 1", "anchors and aliases are not allowed (line 2)"),
        ("a: !!int '1'", "tags are not allowed"),
        ("a: !Python 1", "tags are not allowed"),
        ("a: ! 1", "tags are not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "tags are not allowed"),
        ("a: .nan", ".nan is not a number"),
        ("a: .inf", ".inf is not a number"),
        ("a: -.INF", "every value must be finite"),
        ("a: 1e999", "1e999 is out of range"),
        ("1: 2", "key 1 is not text"),
        ("? [1]\n: 2", "is not text"),
        ("a: [1", "line 2"),
        ("\ta: 1", "line 1, column 1"),
        ("--- a\n--- b", "another document"),
        ("a: \0", "control characters are not allowed"),
        ("a: " + "1" * 5000, "4300 digits"),
    ],
)
def test_yaml_refuses_what_could_be_read_two_ways(text: str, words: str):
    with pytest.raises(CorruptFile) as caught:
        parse_yaml(text, "w.yaml")
    assert str(caught.value).startswith("'w.yaml' is not strict YAML: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=60)
@given(VALUES)
def test_json_means_the_same_when_it_is_read_as_yaml(value: object):
    text = json.dumps({"a": value}, ensure_ascii=False)
    assert parse_yaml(text, "w.yaml") == parse_json(text, "w.json")


# --- JSON ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"x": [{"b": 1, "b": 2}]}', "'b' stands twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": Infinity}', "every value must be finite"),
        ('{"a": -Infinity}', "every value must be finite"),
        ('{"a": 1e999}', "1e999 is out of range"),
        ('{"a": ' + "1" * 5000 + "}", "4300 digits"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": 1} x', "Extra data"),
        ('{"a": 1,}', "line 1"),
        ('{"a": 01}', "line 1"),
    ],
)
def test_json_refuses_what_could_be_read_two_ways(text: str, words: str):
    with pytest.raises(CorruptFile, match=r"^'w\.json' is not (strict )?JSON: ") as caught:
        parse_json(text, "w.json")
    assert words in str(caught.value)


def test_whole_floats_of_json_may_stand_where_a_count_is_asked():
    found: Any = parse_json('{"a": 1e6, "b": 2.0, "c": 1.5, "d": 1e16}', "w.json")
    assert found == {"a": 1_000_000, "b": 2, "c": 1.5, "d": 1e16}
    assert [type(value) for value in found.values()] == [int, int, float, float]


# --- either -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "# nothing", "- a", "[1, 2]", "just words", "3", '"a"'])
def test_a_file_holds_a_mapping_at_its_top(text: str):
    with pytest.raises(CorruptFile, match="holds no mapping at its top"):
        parse(text, "w.yaml")


@pytest.mark.parametrize("depth", [65, 400, 991, 992, 993, 100_000])
@pytest.mark.parametrize("text", ["a: {}{}", '{{"schema": "recsmith/workload/1", "a": {}{}}}', '{{"schema": {}{}}}'])
def test_values_nested_too_deeply_are_refused_and_crash_nothing(text: str, depth: int):
    with pytest.raises(CorruptFile):
        workload_from_raw(parse(text.format("[" * depth, "]" * depth), "w"), "w")


def test_block_yaml_nested_too_deeply_says_where():
    with pytest.raises(CorruptFile, match=r"nested more than 64 deep \(line 65\)"):
        parse_yaml("\n".join(" " * level + "a:" for level in range(70)), "w.yaml")


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


def test_the_limit_is_512_mib():
    assert files.LARGEST_FILE == 512 * 2**20


def test_files_over_the_limit_are_refused_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "w.yaml"
    monkeypatch.setattr(files, "LARGEST_FILE", 10)
    path.write_text("a" * 10)
    assert read_text(str(path)) == "a" * 10
    path.write_text("a" * 11)
    with pytest.raises(CorruptFile, match="larger than 512 MiB"):
        load_workload(str(path))


def test_standard_input_is_read_under_the_same_rules(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "LARGEST_FILE", 3)
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


@pytest.mark.parametrize(("source", "text"), [("w.json", "a: 1"), ("w.yaml", "{a: 1}"), ("-", " \n{a: 1}")])
def test_json_is_what_is_named_so_or_starts_with_a_brace(source: str, text: str):
    with pytest.raises(CorruptFile, match="is not JSON"):
        parse(text, source)


# --- nouns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("embedding_dim", "128"),
        ("embedding_dim", True),
        ("embedding_dim", 1.5),
        ("embedding_dim", 0),
        ("embedding_dim", -4),
        ("embedding_dim", None),
        ("embedding_dim", [128]),
        ("num_embeddings", 0),
        ("num_embeddings", 2**53),
        ("num_embeddings", 10**400),
        ("num_embeddings", 1e16),
        ("num_embeddings", False),
        ("num_embeddings", "1e6"),
        ("pooling_factor", "1"),
        ("pooling_factor", -0.5),
        ("pooling_factor", True),
        ("pooling_factor", 1e300),
        ("num_poolings", -1),
        ("weighted", 1),
        ("weighted", "yes"),
        ("pooling", "max"),
        ("data_type", "fp8"),
        ("access", {}),
        ("access", {"zipf": True}),
        ("access", {"zipf": 11}),
    ],
)
def test_a_bad_field_is_refused_with_its_table(field: str, value: object):
    message = refusal(raw_workload(**{field: value}))
    assert message.startswith("'w.json': ")
    if field != "access":
        assert "user_id" in message
        assert field in message


@pytest.mark.parametrize("size", [0, -1, 2**53, 1.5, "8", True, None])
def test_the_batch_size_is_a_count(size: object):
    assert "batch_size" in refusal(raw_workload() | {"batch_size": size})


def test_the_message_says_the_value_and_the_rule():
    assert refusal(raw_workload(embedding_dim="128")) == (
        "'w.json': tables[0] ('user_id').embedding_dim is \"128\": input should be a valid integer"
    )
    assert refusal(raw_workload(num_embeddings=0)) == (
        "'w.json': num_embeddings of table 'user_id' is 0; it must be at least 1 and below 2^53"
    )


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[31mb", "a\x00", "a\u2028b", "a\u202eb", "\ud800", 5, None])
def test_names_are_printable_text(name: object):
    assert "name" in refusal(raw_workload(name=name))


def test_two_tables_of_one_name_are_refused():
    raw = raw_workload()
    assert "two tables are named 'user_id'" in refusal(raw | {"tables": raw["tables"] * 2})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (raw_workload() | {"optimiser": "sgd"}, "optimiser is not a known field; did you mean 'optimizer'?"),
        (raw_workload(embeding_dim=4), "tables[0] ('user_id').embeding_dim is not a known field; did you mean"),
        (raw_workload(access={"zip": 1}), "tables[0] ('user_id').access.zip is not a known field; did you mean 'zipf'"),
        (raw_workload() | {"qqq": 1}, "qqq is not a known field; known: access, batch_size"),
    ],
)
def test_unknown_fields_are_refused_with_the_nearest_name(raw: dict[str, Any], words: str):
    assert words in refusal(raw)


def test_a_misspelt_short_form_is_refused_with_the_nearest_name():
    raw = raw_workload(poling_factor=1)
    del raw["tables"][0]["pooling_factor"]
    assert "did you mean 'pooling_factor'?" in refusal(raw)


def test_further_errors_are_counted():
    raw = raw_workload(embedding_dim="1", pooling="max") | {"batch_size": "8"}
    assert refusal(raw).endswith("(and 2 more)")
    assert "more" not in refusal(raw_workload(embedding_dim="1"))


def test_a_word_like_no_other_gets_the_whole_list():
    assert did_you_mean("qqq", ["one", "two"]) == "; known: one, two"
    assert did_you_mean("qqq", []) == ""


@pytest.mark.parametrize("field", ["batch_size", "optimizer", "tables"])
def test_missing_fields_are_named(field: str):
    raw = raw_workload()
    del raw[field]
    assert refusal(raw) == f"'w.json': {field} is missing"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "names no schema; add `schema: recsmith/workload/1`"),
        ({"schema": None}, "names no schema"),
        ({"schema": "recsmith/workload/2"}, "'recsmith/workload/2'; expected `recsmith/workload/1`"),
        ({"schema": "recsmith/plan/1"}, "expected `recsmith/workload/1`"),
        ({"schema": 1}, "has a schema that is not text; expected `recsmith/workload/1`"),
        ([], "holds no object"),
        ("dlrm-v2", "holds no object"),
        (None, "holds no object"),
    ],
)
def test_the_schema_must_be_the_right_one(raw: Any, words: str):
    assert words in refusal(raw)


@pytest.mark.parametrize("tables", ["x", {}, [1], [None], [[]], None, 3])
def test_tables_of_another_shape_are_refused(tables: object):
    assert "tables" in refusal(raw_workload() | {"tables": tables})


# --- writing ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.dictionaries(PRINTABLE, VALUES, min_size=1, max_size=4))
def test_what_is_dumped_reads_back(raw: dict[str, Any]):
    assert parse(dump_json(raw), "x.json") == raw


def test_names_are_dumped_as_they_are_and_nan_never():
    assert dump_json({"name": "日本"}) == '{\n"name": "日本"\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json({"a": float("nan")})


def test_a_dumped_list_has_a_line_an_item():
    assert dump_json({"a": 1, "b": [{"c": 1}, 2], "d": []}) == '{\n"a": 1,\n"b": [\n  {"c": 1},\n  2\n],\n"d": []\n}\n'


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


def test_a_folder_must_exist(tmp_path: Path):
    with pytest.raises(UsageError, match="does not exist; create it first"):
        check_target(str(tmp_path / "no" / "plan"))
    with pytest.raises(UsageError, match="No such file or directory"):
        write_text(str(tmp_path / "no" / "plan"), "new")


def test_a_folder_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(UsageError, match="permission denied; choose a folder you may write to"):
        check_target(str(tmp_path / "plan"))
    with pytest.raises(UsageError, match="Permission denied; choose a folder you may write to"):
        write_text(str(tmp_path / "plan"), "new")


@pytest.mark.parametrize("target", [None, "-"])
def test_standard_output_is_always_a_target(target: str | None):
    check_target(target)
