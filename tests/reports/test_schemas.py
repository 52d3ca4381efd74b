"""The JSON Schemas of all files: real files fit them, and what the reader refuses they refuse too."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.schema import problems

from recsmith.analyses.step_memory import step_memory
from recsmith.analyses.table_switches import advise
from recsmith.clusters import catalogue, cluster_to_raw, load_cluster
from recsmith.planning import Result
from recsmith.plans import Cache, Placement, plan_to_raw
from recsmith.reports.advice import advice_to_raw
from recsmith.reports.plans import result_to_raw
from recsmith.reports.schemas import schema_of
from recsmith.reports.step_memory import step_memory_to_raw
from recsmith.workloads import AccessProfile, Feature, builtins, load_workload, workload_to_raw

LONG = workload(
    table("a", access=AccessProfile(zipf=1.2), pooling="mean", data_type="int8", collection="x.ebc"),
    table("b", features=(Feature(name="f", pooling_factor=1.0, batch_size=4), Feature(name="g", pooling_factor=0.0))),
    table("c", access=AccessProfile(reuse_bins=tuple([1 / 17] * 17), lookups=9, unique_rows=3)),
    comm_dtype="bf16",
    pipeline="sparse_dist",
    name="n",
    source="s",
)
PLAIN = plan_of(
    LONG,
    cluster(hbm_bytes=(2**30, 2**31), reserve_bytes=1, ddr_bytes_per_host=2**40),
    placed("a", "column_wise", [0, 1], [8, 24]),
    placed("b", "row_wise", [0, 1]),
    Placement(
        table="c", sharding_type="table_wise", compute_kernel="fused_uvm_caching", ranks=(0,),
        cache=Cache(load_factor=0.2),
    ),
)  # fmt: skip
PLAN = replace(PLAIN, extrapolated={"device ids": 1.25})
RULES = [{"tables": "user_*", "sharding_types": ["table_wise"], "compute_kernels": ["fused"], "min_width": 64}]
MEASURED = plan_of(workload(table("a", 64, 16)), cluster(), placed("a", "table_wise", [0]))
CHOICES = [("optimizer state divided over ranks", "nothing", step_memory(MEASURED))]
REAL = {
    "workload": [workload_to_raw(LONG), *(workload_to_raw(load_workload(name)) for name in builtins())],
    "cluster": [cluster_to_raw(PLAN.cluster), *(cluster_to_raw(load_cluster(name)) for name in catalogue())],
    "model": [{"schema": "recsmith/model/1", "kind": "mlp", "layers": [64, 32]}],
    "train-bench": [{"schema": "recsmith/train-bench/1", "run": "run.yaml", "seeds": [0], "variants": {"a": {}}}],
    "constraints": [{"schema": "recsmith/constraints/1", "rules": RULES}],
    "plan": [plan_to_raw(PLAIN), plan_to_raw(PLAN)],
    "result": [
        result_to_raw(Result(plan=PLAIN, elapsed_s=0.5, iterations=3)),
        result_to_raw(Result(plan=PLAN, elapsed_s=0.5, iterations=3, members=("a", "b"), left_out=("c: left out",))),
    ],
    "step-memory": [step_memory_to_raw(step_memory(MEASURED)), step_memory_to_raw(step_memory(MEASURED), CHOICES)],
    "advice": [json.loads(json.dumps(advice_to_raw(advise(MEASURED.workload, "h100:2", cost_model="analytic"))))],
}
FILES = [pytest.param(noun, raw, id=f"{noun} {i}") for noun, raws in REAL.items() for i, raw in enumerate(raws)]


@pytest.mark.parametrize(("noun", "raw"), FILES)
def test_real_files_fit_their_schema(noun: str, raw: dict[str, Any]):
    assert problems(raw, schema_of(noun)) == []


@pytest.mark.parametrize(("noun", "raw"), FILES)
def test_every_top_level_field_is_checked(noun: str, raw: dict[str, Any]):
    schema = schema_of(noun)
    assert set(raw) <= set(schema["properties"])
    assert problems(raw | {"unknown": 1}, schema) == [".unknown is unknown"]
    for name in schema["required"]:
        rest = {key: value for key, value in raw.items() if key != name}
        assert f".{name} is missing" in problems(rest, schema)
        assert problems(raw | {name: object()}, schema)


@pytest.mark.parametrize("noun", REAL)
def test_a_schema_is_plain_json_and_made_anew_each_time(noun: str):
    schema = schema_of(noun)
    assert json.loads(json.dumps(schema)) == schema
    schema["properties"].clear()
    assert schema_of(noun)["properties"]


def test_a_table_has_features_or_the_short_form():
    schema = schema_of("workload")
    raw = workload_to_raw(workload(table("a")))
    short = raw["tables"][0]
    raw["tables"] = [short | {"features": [{"name": "a", "pooling_factor": 1}]}]
    assert problems(raw, schema)
    del short["pooling_factor"]
    raw["tables"] = [short]
    assert problems(raw, schema)


@pytest.mark.parametrize(
    ("field", "value"),
    [("embedding_dim", "128"), ("embedding_dim", 1.5), ("pooling", "max"), ("weighted", 1), ("x", 1)],
)
def test_a_bad_table_fits_no_schema(field: str, value: object):
    raw = workload_to_raw(workload(table("a")))
    raw["tables"][0][field] = value
    assert problems(raw, schema_of("workload"))


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"format": "generator", "num_samples": 9, "features": [{"name": "a", "num_embeddings": 9}]}, True),
        (
            {
                "format": "generator",
                "num_samples": 9,
                "features": [{"name": "a", "num_embeddings": 9}],
                "wrong": "skip",
            },
            True,
        ),
        ({"format": "generator", "num_samples": "9", "features": []}, False),
        ({"format": "parquett", "paths": ["a"]}, False),
        ({"num_samples": 9}, False),
    ],
)
def test_specs_of_data_fit_the_schema_of_their_format(spec: dict[str, Any], fits: bool):
    schema = schema_of("dataset")
    formats = {each["properties"]["format"]["const"]: each for each in schema["oneOf"]}
    assert list(formats) == schema["properties"]["format"]["enum"]
    own = formats.get(spec.get("format", ""))
    wrong = problems(spec, own | {"$defs": schema["$defs"]}) if own else ["no format"]
    assert (wrong == []) is fits
