"""Plain data to nouns and back: what is refused, and what it says."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.values import PRINTABLE, VALUES, raw_workload

from recsmith.clusters import Links, load_cluster
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import decode, did_you_mean, dump_json, parse
from recsmith.files.nouns import LARGE
from recsmith.files.validators import adapter, brief_validator, rules_validator
from recsmith.plans import Placement
from recsmith.problems import Constraints, load_constraints
from recsmith.workloads import Workload, load_workload, workload_from_raw


def refusal(raw: Any) -> str:
    with pytest.raises(CorruptFile) as caught:
        workload_from_raw(raw, "w.json")
    return str(caught.value)


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
        (raw_workload() | {"qqq": 1}, "qqq is not a known field; known: backward_comm_dtype, batch_size, "),
    ],
)
def test_unknown_fields_are_refused_with_the_nearest_name(raw: dict[str, Any], words: str):
    assert words in refusal(raw)


def test_a_misspelt_short_form_is_refused_with_the_nearest_name():
    raw = raw_workload(poling_factor=1)
    del raw["tables"][0]["pooling_factor"]
    assert "did you mean 'pooling_factor'?" in refusal(raw)


def test_all_wrong_fields_are_told_at_once():
    raw = raw_workload(embedding_dim="1", pooling="max") | {"batch_size": "8", "optimiser": "sgd"}
    said = refusal(raw)
    assert said.startswith("'w.json': 4 fields are wrong: optimiser is not a known field")
    for name in ("batch_size", "embedding_dim", "pooling"):
        assert f"{name} is " in said
    many = refusal(raw_workload() | {f"x{i}": 1 for i in range(20)})
    assert "20 fields are wrong" in many
    assert many.endswith("; and 12 more")


@pytest.mark.parametrize("text", ["batch_size: x\noptimizer: sgd\n", '{\n "optimizer": "sgd",\n "batch_size": "8"\n}'])
def test_lines_of_wrong_fields_are_told(text: str, tmp_path: Path):
    """Of a file, in YAML and in JSON; a missing field has the line of what it is missing in."""
    file = tmp_path / "w.yaml"
    file.write_text(text)
    with pytest.raises(CorruptFile) as refused:
        decode(Workload, parse(text, "w.yaml"), str(file))
    line = 1 + text[: text.index("batch_size")].count("\n")
    assert re.search(rf"batch_size is \"\w\": [\w ]+ \(line {line}\)", str(refused.value))
    assert "tables is missing (line 1)" in str(refused.value)
    with pytest.raises(CorruptFile, match=rf"\(line {line}\)"):
        decode(Workload, parse(text, "w.yaml"), f"file://{file}")


BROKEN: dict[str, tuple[Callable[[str], object], str, list[tuple[str, int]]]] = {
    "workload": (
        load_workload,
        """\
schema: recsmith/workload/1
batch_size: 8
optimizer: sgd
tables:
- {name: a, num_embeddings: 0, embedding_dim: 8, pooling_factor: 1}
- name: b
  num_embeddings: 0
  embedding_dim: 0
  features: [{name: f, pooling_factor: 1}]
- name: c
  num_embeddings: 4
  embedding_dim: 4
  features:
  - name: f
    pooling_factor: -1
""",
        [
            ("num_embeddings of table 'a' is 0", 5),
            ("num_embeddings of table 'b' is 0", 7),
            ("embedding_dim of table 'b' is 0", 8),
            ("pooling_factor of feature 'f' is -1.0", 15),
        ],
    ),
    "cluster": (
        load_cluster,
        """\
schema: recsmith/cluster/1
device:
  base: h100
  hbm_bandwidth: 0
  l2_bytes: 0
links:
  intra_host_latency_s: 0
""",
        [
            ("hbm_bandwidth of device 'h100' is 0.0", 4),
            ("l2_bytes of device 'h100' is 0", 5),
            ("intra_host_latency_s is 0.0", 7),
        ],
    ),
    "constraints": (
        load_constraints,
        """\
schema: recsmith/constraints/1
rules:
- tables: a
  min_width: 1
- {tables: b, sharding_types: [x], compute_kernels: []}
""",
        [
            ("min_width of rule 'a' is 1", 4),
            ("no sharding type is called 'x'", 5),
            ("at least one compute kernel must be allowed", 5),
        ],
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_all_broken_rules_are_told_at_once_with_their_lines(kind: str, tmp_path: Path):
    load, text, rules = BROKEN[kind]
    file = tmp_path / f"{kind}.yaml"
    file.write_text(text)
    with pytest.raises(CorruptFile) as refused:
        load(str(file))
    said = str(refused.value)
    assert said.startswith(f"'{file}': {len(rules)} rules are broken: ")
    for words, line in rules:
        assert re.search(rf"{re.escape(words)}[^()]*\(line {line}\)", said), (words, said)


def test_broken_rules_and_wrong_fields_are_told_together():
    raw = raw_workload(num_embeddings=0)
    raw["tables"].append(raw["tables"][0] | {"name": "other", "embedding_dim": "8"})
    said = refusal(raw)
    assert said.startswith("'w.json': 2 things are wrong: ")
    assert "num_embeddings of table 'user_id' is 0" in said
    assert "('other').embedding_dim is \"8\"" in said


def test_all_broken_rules_of_a_value_are_told_in_python_too():
    with pytest.raises(
        UsageError, match=r"^2 rules are broken: intra_host_bandwidth is 0.*; inter_host_bandwidth is 0"
    ):
        Links(intra_host_bandwidth=0, inter_host_bandwidth=0)


def test_a_large_file_tells_its_first_broken_rule_only():
    """As of wrong fields: each error of a list takes a kilobyte until all are known."""
    raw = raw_workload(num_embeddings=0)
    raw["tables"] *= 2**10
    assert refusal(raw) == "'w.json': num_embeddings of table 'user_id' is 0; it must be at least 1 and below 2^53"


def test_a_large_file_gets_the_defaults_of_a_small_one():
    raw = {"table": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0]}
    rules = [{"tables": f"t{i}", "pin": {"sharding_type": "table_wise", "ranks": [0]}} for i in range(2000)]
    assert len(json.dumps(rules)) > LARGE
    assert (
        decode(Constraints, {"rules": rules}, "x").rules[-1] == decode(Constraints, {"rules": rules[-1:]}, "x").rules[0]
    )
    for validator in (adapter(Placement), brief_validator(Placement), rules_validator(Placement, brief=True)):
        assert validator.validate_json(json.dumps(raw), strict=True).widths == ()


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
        ({"plan": {}}, "looks like a ShardingPlan of TorchRec; that is read beside the tables"),
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


# --- and back -----------------------------------------------------------------------------------------------------


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


def test_a_million_errors_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    """Each takes a kilobyte; of a large file only the first is looked for, and it is the same one."""
    raw = raw_workload() | {"tables": [raw_workload()["tables"][0] | {"features": 1}] * 2 + [1] * 50_000}
    del raw["tables"][0]["pooling_factor"]
    with pytest.raises(CorruptFile, match=r"^'x': tables\[0\] \('user_id'\)\.features is 1: [a-z ]*$"):
        workload_from_raw(raw, "x")


def test_long_words_are_shown_in_part_and_nothing_is_near_them():
    word = "batch_size" * 10**5
    with pytest.raises(CorruptFile, match=r"batch_sizebatch.*… is not a known field; known: ") as caught:
        workload_from_raw(raw_workload() | {word: 1}, "x")
    assert len(str(caught.value)) < 1000


def test_a_field_of_a_noun_inside_is_told_with_the_field_that_holds_it():
    raw = raw_workload()
    raw["tables"][0]["zipf"] = 1.3
    assert "is not a known field; write access: {zipf: 1.3}" in refusal(raw)


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({"zipf": -1}, "zipf is -1.0; it must lie between 0"),
        ({"reuse_bins": [0.5], "lookups": 2, "unique_rows": 1}, "reuse_bins must be 17 shares"),
        ({"reuse_bins": [1] + [0] * 16, "lookups": 2}, "these are 2 and missing"),
        ({}, "give one of the two, or none of them and block_lookups or hot_rows"),
    ],
)
def test_a_broken_rule_names_the_table_where_its_words_do_not(access: dict[str, Any], words: str):
    raw = raw_workload()
    raw["tables"].append(raw["tables"][0] | {"name": "other", "access": access})
    said = refusal(raw)
    assert "tables[1] ('other').access: " in said
    assert words in said


@pytest.mark.parametrize("name", [None, 123, "", "a\x07"])
def test_a_wrong_name_is_told_once_and_of_the_table(name: Any):
    short = {"num_embeddings": 10, "embedding_dim": 4, "pooling_factor": 1} | ({} if name is None else {"name": name})
    said = refusal({"schema": "recsmith/workload/1", "batch_size": 8, "optimizer": "sgd", "tables": [short]})
    assert "wrong" not in said
    assert "feature" not in said
