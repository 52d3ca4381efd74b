"""Strict JSON and YAML: what is refused, and what it says."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from support.values import VALUES

from recsmith.errors import CorruptFile
from recsmith.files import parse, parse_json, parse_yaml, parsing
from recsmith.workloads import workload_from_raw

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
        ("a: *x\nb: &x 1", "alias 'x' (line 1) names no value that is complete before it"),
        ("a: &x [1, *x]", "alias 'x' (line 1) names no value that is complete before it"),
        ("a: &x {b: 1}\nc: {<<: *x}", "merge keys (<<) are not allowed"),
        (
            "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
            "aliases make more than 100,000 values",
        ),
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
        ("a: " + "1" * 5000, "has 5,000 digits; whole numbers are below 2^63"),
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
        ('{"a": ' + "1" * 5000 + "}", "has 5,000 digits; whole numbers are below 2^63"),
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


@pytest.mark.parametrize(("source", "text"), [("w.json", "a: 1"), ("w.yaml", "{a: 1}"), ("-", " \n{a: 1}")])
def test_json_is_what_is_named_so_or_starts_with_a_brace(source: str, text: str):
    with pytest.raises(CorruptFile, match="is not JSON"):
        parse(text, source)


def test_large_yaml_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parsing, "LARGEST_YAML", 10)
    assert parse_yaml("a: 1234567", "x") == {"a": 1234567}
    with pytest.raises(CorruptFile, match="is YAML of 11 characters, above 10; big workloads are JSON or CSV"):
        parse_yaml("a: 12345678", "x")


@pytest.mark.parametrize("read", [parse_json, parse_yaml])
def test_objects_of_very_many_keys_are_refused(monkeypatch: pytest.MonkeyPatch, read: Any):
    monkeypatch.setattr(parsing, "MOST_KEYS", 3)
    assert read('{"a": 1, "b": 2, "c": 3}', "x") == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(CorruptFile, match="an object has 4 keys; none has more than 3"):
        read('{"a": 1, "b": 2, "c": 3, "d": 4}', "x")


def test_what_does_not_fit_into_memory_is_said_of_the_file(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(parsing.json, "loads", full)
    with pytest.raises(CorruptFile, match=r"'x\.json' does not fit into memory: 2 characters"):
        parse_json("{}", "x.json")


def test_anchors_stand_for_what_they_name():
    text = "sizes: &sizes [1, 2]\nbefore: {sizes: *sizes, name: &name user}\nafter: *name\n"
    assert parse_yaml(text, "x.yaml") == {
        "sizes": [1, 2], "before": {"sizes": [1, 2], "name": "user"}, "after": "user",
    }  # fmt: skip
    many = "a: &a 1\n" + "\n".join(f"b{n}: *a" for n in range(9000))
    assert len(parse_yaml(many, "x.yaml")) == 9001  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_file_is_called_so(text: str):
    with pytest.raises(CorruptFile, match=r"^'x\.json' is empty$"):
        parse_json(text, "x.json")


@pytest.mark.parametrize("half", [r"\ud83d", r"\uDE00", r"a\ud83dz"])
def test_half_of_a_character_is_refused_with_its_escape(half: str):
    with pytest.raises(CorruptFile, match="is half of a character; write the character itself"):
        parse_json(f'{{"name": "{half}"}}', "x.json")
    assert parse_json(r'{"name": "\ud83d\ude00 \\ud83d"}', "x.json") == {"name": "😀 \\ud83d"}
