"""Files that are sent: read as the command line reads them, in its words; nothing of this machine is read for them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.planner_logs import bare
from support.served import Client, client_of
from support.streams import a_stream

import recsmith
from recsmith.errors import RecSmithError
from recsmith.files import dump_json
from recsmith.plans import plan_to_raw
from recsmith.reports.online import online_to_raw
from recsmith.web.serving.settings import Settings
from recsmith.web.serving.uploads import read_upload

TABLES = {
    "schema": "recsmith/workload/1", "batch_size": 64, "optimizer": "sgd", "name": "mine",
    "tables": [{"name": name, "num_embeddings": 1000, "embedding_dim": 32, "pooling_factor": 2} for name in "ab"],
}  # fmt: skip
CLUSTER = {"schema": "recsmith/cluster/1", "device": {"base": "h100", "name": "mine", "hbm_bytes": "60GiB"}}
RULES = {"schema": "recsmith/constraints/1", "apart": [["a", "b"]], "rules": [{"tables": "a", "ranks": [0]}]}
CSV = "name,num_embeddings,embedding_dim,pooling_factor\na,1000,32,2\n"


def test_every_kind_of_file_is_opened(client: Client, plan_text: str):
    texts = {"workload": json.dumps(TABLES), "cluster": json.dumps(CLUSTER), "constraints": json.dumps(RULES),
             "stream": json.dumps(online_to_raw(a_stream()))}  # fmt: skip
    for kind, text in (texts | {"plan": plan_text}).items():
        answer = client.upload(text, f"{kind}.json")
        assert (answer.status_code, answer.json()["kind"]) == (201, kind), answer.text
    kept = client.ask("GET", "/api/kept").json()
    assert [len(kept[name]) for name in ("workloads", "clusters", "plans", "streams")] == [1, 1, 1, 1]
    assert kept["workloads"][0]["name"] == "mine"
    assert kept["clusters"][0]["hbm_bytes"] == 60 * 2**30


def test_a_stream_shows_its_arms_and_the_one_that_pays(client: Client):
    key = client.upload(json.dumps(online_to_raw(a_stream())), "online.json").json()["stream"]["id"]
    found = client.ask("GET", f"/api/streams/{key}").json()
    assert found["summary"] == {"id": key, "name": "online.json", "arms": 2, "seeds": 2, "chosen": "window"}
    assert [row["name"] for row in found["rows"]] == ["incremental", "window"]
    assert found["curves"][1] == {
        "name": "window",
        "points": [[at, pytest.approx(0.9 - 0.01 * at)] for at in (1, 2, 3)],
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"chosen": "passes"}, "chosen is 'passes', which is none of ['incremental', 'window']"),
        ({"rows": []}, "rows are of [], replays of ['incremental', 'window']; each arm has one row, and replays"),
        ({"schema": "recsmith/bench-online-result/2"}, "recsmith/bench-online-result/2"),
        ({"replays": None}, "replays is null"),
    ],
)
def test_a_damaged_stream_is_refused(client: Client, wrong: dict[str, Any], said: str):
    answer = client.upload(json.dumps(online_to_raw(a_stream()) | wrong), "online.json")
    assert answer.status_code in (400, 422)
    assert said in answer.json()["error"]


def test_a_csv_needs_its_batch(client: Client):
    assert "add --batch-size" in client.upload(CSV, "tables.csv").json()["error"]
    opened = client.upload(CSV, "tables.csv", batch_size=512).json()["workload"]
    assert (opened["tables"], opened["batch_size"]) == (1, 512)


@pytest.mark.parametrize(
    ("text", "name", "kinds", "assumed", "numbered"),
    [
        (CSV, "tables.csv", ["fp32"], ["data_type", "optimizer", "batch_size"], 0),
        (f"\n{CSV}", "pasted", ["fp32"], ["data_type", "optimizer", "batch_size"], 0),
        (f"\n{CSV[:-1]}".replace("_factor\n", "_factor,data_type\n").replace(",2", ",2,bf16"), "t.csv", ["bf16"],
         ["optimizer", "batch_size"], 0),
        (json.dumps(TABLES), "pasted", ["fp32"], [], 0),
        (json.dumps(TABLES).replace('"b"', '"a#2"'), "pasted", ["fp32"], [], 1),
        (bare("mixed"), "job.log", ["fp32"], ["data_type", "optimizer"], 0),
    ],
    ids=["csv", "pasted csv", "csv with types", "json", "numbered", "log"],
)  # fmt: skip
def test_what_a_file_did_not_tell_is_named_and_can_be_told(
    client: Client, text: str, name: str, kinds: list[str], assumed: list[str], numbered: int
):
    read = client.upload(text, name, assume="true").json()["workload"]
    assert (read["data_types"], read["assumed"], read["numbered"]) == (kinds, assumed, numbered)
    told = {"optimizer": "adam", "data_type": "fp16", "batch_size": 17}
    now = client.ask("PATCH", f"/api/workloads/{read['id']}", json=told).json()
    assert (now["optimizer"], now["data_types"], now["batch_size"]) == ("adam", ["fp16"], 17)
    wrong = client.ask("PATCH", f"/api/workloads/{read['id']}", json={"data_type": "fp61"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "no data type is called 'fp61'; did you mean 'fp16'?")


def test_a_log_holds_tables_and_a_running_plan_which_is_priced_as_import_does(client: Client, tmp_path: Path):
    opened = client.upload(bare("mixed"), "job.log").json()
    assert (opened["kind"], opened["running"]["tables"], opened["running"]["devices"]) == ("workload", 3, 4)
    where = {"workload": opened["workload"]["id"], "cluster": "h100:4"}
    made = client.ask("POST", f"/api/running/{opened['running']['id']}/plan", json=where)
    assert made.status_code == 201, made.text
    (tmp_path / "job.log").write_text(bare("mixed"))
    wanted = recsmith.price(tmp_path / "job.log", "h100:4", tmp_path / "job.log")
    assert (made.json()["total_s"], made.json()["digest"]) == (wanted.cost.step_s, wanted.digest)
    assert (made.json()["name"], made.json()["origin"]) == ("job, running", "running plan of job.log")
    refused = client.ask("POST", f"/api/running/{opened['running']['id']}/plan", json=where | {"cluster": "h100:8"})
    assert refused.status_code == 400
    assert "runs on 4 ranks, the cluster has 8 devices" in refused.json()["error"]


@pytest.mark.parametrize("form", ["print(plan)", "dump"])
def test_a_plan_of_torchrec_alone_is_known(client: Client, form: str):
    spec = {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1],
            "shards": [{"shard_offsets": [0, 0], "shard_sizes": [1000, 32], "placement": "rank:1/cuda:1"}]}  # fmt: skip
    printed = (
        "module: m\n\nparam | sharding type | compute kernel | ranks\n----- | ------------- | -------------- | -----\n"
        "a     | table_wise    | fused          | [1]\n\nparam | shard offsets | shard sizes | placement\n"
        "----- | ------------- | ----------- | -------------\na     | [0, 0]        | [1000, 32]  | rank:1/cuda:1\n"
    )
    text = json.dumps({"plan": {"m": {"a": spec}}}) if form == "dump" else printed
    opened = client.upload(text, "pasted").json()
    assert (opened["kind"], opened["running"]["tables"], opened["running"]["devices"]) == ("running", 1, 2)


def test_a_plan_by_hand_is_priced(client: Client, plan: recsmith.Plan):
    raw = plan_to_raw(plan)
    by_hand = {name: raw[name] for name in ("schema", "workload", "cluster", "placements")}
    assert client.upload(json.dumps(by_hand)).json()["plan"]["total_s"] == plan.cost.total_s


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tables.json", "{"),
        ("tables.yaml", "a: [1\n"),
        ("tables.yaml", "schema: recsmith/workload/1\nbatch_size: 0\noptimizer: sgd\ntables: []\n"),
        ("tables.json", json.dumps(TABLES | {"optimizer": "none"})),
        ("rules.yaml", "schema: recsmith/constraints/1\nrules:\n- tables: a\n  rank: [0]\n"),
        ("cluster.yaml", "schema: recsmith/cluster/1\ndevice: {base: h1000}\n"),
        ("plan.json", '{"schema": "recsmith/plan/1"}'),
    ],
)
def test_errors_are_those_of_the_command_line(client: Client, tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    load: Any = recsmith.load_workload
    for kind in ("constraints", "cluster", "plan"):
        if f"recsmith/{kind}/1" in text:
            load = getattr(recsmith, f"load_{kind}")
    with pytest.raises(RecSmithError) as found:
        load(path)
    answer = client.upload(text, name)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"] == str(found.value).replace(str(path), name)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "..\\..\\secret.json", "a\nb\x1b[31m.json", "", "x" * 5000, "h100:8", "dlrm-v2"]
)
def test_a_name_is_for_people_alone(client: Client, name: str):
    answer = client.upload("{", name)
    assert answer.status_code == 422
    assert "root:" not in answer.text
    assert "\x1b" not in answer.json()["error"]
    assert len(answer.json()["error"]) < 300


def test_no_file_of_this_machine_is_read(client: Client, plan_text: str, plan: recsmith.Plan, tmp_path: Path):
    (tmp_path / "old.json").write_text(plan_text)
    pins = {"schema": "recsmith/constraints/1", "pin_to": str(tmp_path / "old.json")}
    assert "did not come with it" in client.upload(json.dumps(pins)).json()["error"]
    raw = plan_to_raw(plan) | {"cost_model": f"neural:{tmp_path / 'x.safetensors'}"}
    assert "no cost model of this page" in client.upload(json.dumps(raw)).json()["error"]
    for word in ({"cluster": str(tmp_path / "old.json")}, {"workload": str(tmp_path / "old.json")},
                 {"planner": f"dreamshard:{tmp_path / 'old.json'}"}, {"cost_model": "neural:/etc/passwd"}):  # fmt: skip
        answer = client.ask("POST", "/api/searches", json={"workload": "dlrm-v2", "cluster": "h100:8"} | word)
        assert answer.status_code == 400, answer.text
        assert " is called '" in answer.json()["error"]


def test_what_is_too_large_is_refused():
    client = client_of(upload_bytes=1000, most_tables=5, most_cells=16, body_bytes=100)
    assert client.upload("x" * 1001).status_code == 413
    assert client.upload(dump_json(TABLES)).status_code == 201
    assert client.ask("POST", "/api/samples", json={"tables": 6}).status_code == 413
    assert client.ask("POST", "/api/searches", content=b" " * 101).status_code == 413
    answer = client.ask("POST", "/api/searches", json={"workload": "dlrm-v2", "cluster": "h100:8"})
    assert answer.status_code == 413
    assert "use `recsmith plan`" in answer.json()["error"]


fuzzed = client_of()
BEGINNINGS = (
    b"",
    b"{",
    b'{"schema": "recsmith/plan/1"',
    b"schema: recsmith/workload/1\n",
    b"name,embedding_dim\n",
    b"# --- Planner",
)


@given(st.sampled_from(BEGINNINGS), st.binary(max_size=200), st.text(max_size=20))
@example(b"", b"[" * 100_000, "deep.json")
@example(b"", b"a: " * 5_000, "deep.yaml")
@example(b"", b'{"schema": 5}', "x.json")
@example(b"", b'{"schema": "recsmith/workload/1", "tables": 1e999}', "x.json")
def test_noise_is_refused_with_a_sentence(beginning: bytes, noise: bytes, name: str):
    answer = fuzzed.upload(beginning + noise, name)
    assert answer.status_code in (400, 422)
    assert len(answer.json()["error"]) > 10


def test_a_changed_plan_is_refused_or_read(plan_text: str):
    """Every value of a plan in turn becomes another kind of thing."""
    raw, asked = json.loads(plan_text), 0
    for wrong in (None, -1, 1e300, "x", [], {}, [[]], True):
        for key in raw:
            asked += 1
            assert fuzzed.upload(json.dumps(raw | {key: wrong})).status_code in (201, 400, 422)
    assert asked > 80


def test_a_cluster_file_is_the_one_of_the_command_line(tmp_path: Path):
    """One that states neither memory nor reserve gets the estimated reserve there and here."""
    text = json.dumps({"schema": "recsmith/cluster/1", "device": "h100", "local_world_size": 2})
    (tmp_path / "c.json").write_text(text)
    told = recsmith.load_cluster(tmp_path / "c.json")
    assert told.reserve_bytes is None
    assert read_upload(text.encode(), "c.json", Settings(token="x")).held == told


def test_a_plan_that_was_edited_is_priced_anew(client: Client, plan_text: str):
    raw = json.loads(plan_text)
    whole = next(each for each in raw["placements"] if each["sharding_type"] == "table_wise")
    for each in raw["placements"]:
        if each["sharding_type"] == "table_wise":
            each["ranks"] = whole["ranks"]
    del raw["digest"], raw["shards"]
    told = client.upload(json.dumps(raw), "edited.json").json()["plan"]["total_s"]
    assert told > raw["cost"]["total_s"]
