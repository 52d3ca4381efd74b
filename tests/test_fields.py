"""Values built in Python are checked as files are: kept as a file would keep them, or refused with the rule."""

# pyright: reportArgumentType=false
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.build import cluster, placed, table, workload

from recsmith import Cluster, Feature, Space, TableRule, load_plan, plan, save_plan
from recsmith.errors import UsageError
from recsmith.plans import Cache
from recsmith.sharding import Shard
from recsmith.training import DenseOptimizer, Run, RunData, RunModel, RunOptimizers, RunTask

ONE = Feature(name="a", pooling_factor=1)


def test_what_a_file_would_keep_is_kept(tmp_path: Path):
    made = table(
        rows=np.int64(1_000), dim=64.0, features=[Feature(name="a", pooling_factor=np.float32(2.5), num_poolings=1)]
    )
    assert (made.num_embeddings, made.embedding_dim) == (1_000, 64)
    assert [type(value) for value in (made.num_embeddings, made.embedding_dim, made.features)] == [int, int, tuple]
    assert type(made.features[0].pooling_factor) is float
    assert placed("a", "row_wise", np.arange(2)).ranks == (0, 1)
    result = plan(workload(made, batch_size=1e3), "h100:2", iterations=1).plan
    save_plan(result, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == result


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: table(rows=100.5), "num_embeddings of Table 'a' is 100.5; it must be a whole number"),
        (lambda: table(rows=True), "num_embeddings of Table 'a' is True; it must be a whole number"),
        (lambda: table(rows="100"), "num_embeddings of Table 'a' is '100'; it must be a whole number"),
        (lambda: table(rows=10**5_000), "is a number of 16610 bits; it must be a whole number below 2^63"),
        (lambda: table(pooling="max"), "pooling of Table 'a' is 'max'; it must be 'sum', 'mean' or 'none'"),
        (lambda: table(features="a"), "features of Table 'a' is 'a'; it must be a tuple or list"),
        (lambda: table(features=[ONE, {"name": "b"}]), r"features\[1\] of Table 'a' is {'name': 'b'}; it must be a F"),
        (lambda: table(access=0.9), "access of Table 'a' is 0.9; it must be an AccessProfile or None"),
        (lambda: Feature(name="a", pooling_factor="2"), "pooling_factor of Feature 'a' is '2'; it must be a number"),
        (lambda: Feature(name="a", pooling_factor=1, weighted=1), "weighted of Feature 'a' is 1; it must be True or"),
        (lambda: Feature(name=3, pooling_factor=1), "name of Feature is 3; it must be text"),
        (lambda: workload(optimizer="adamw"), "optimizer of Workload is 'adamw'; it must be 'sgd', "),
        (lambda: Space(types=[1]), r"types\[0\] of Space is 1; it must be text"),
        (lambda: Space(types="row_wise"), "types of Space is 'row_wise'; it must be a tuple or list"),
        (lambda: placed("a", "row_wise", [0, 1.5]), r"ranks\[1\] of Placement 'a' is 1.5; it must be a whole number"),
        (lambda: cluster(hbm_bytes="80GiB"), "hbm_bytes of Cluster is '80GiB'; it must be a whole number or a tuple"),
        (lambda: TableRule(tables="a", min_width=10**39), "must be a whole number below 2^63 or None"),
    ],
)
def test_what_no_file_could_hold_is_refused(build: Any, words: str):
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace("^", r"\^")):
        build()


def test_functions_and_classes_are_kept_by_their_names(monkeypatch: pytest.MonkeyPatch):
    own = Run(
        data=RunData(train="a"), output="out", model=RunModel(name=json.dumps), pipeline={"name": Counter, "steps": 2},
        watchers=(json.loads, {"name": Counter}), optimizers=RunOptimizers(dense=DenseOptimizer(name=Counter)),
    )  # fmt: skip
    assert (own.model.name, own.pipeline) == ("json:dumps", {"name": "collections:Counter", "steps": 2})
    assert own.watchers == ("json:loads", {"name": "collections:Counter"})
    assert own.optimizers.dense.name == "collections:Counter"
    assert RunTask(label="a", loss=json.dumps).loss == "json:dumps"
    monkeypatch.setattr(json.dumps, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/work/mine.py", raising=False)
    assert RunModel(name=json.dumps).name == "mine:dumps"
    with pytest.raises(
        UsageError, match=r"name of RunModel is <function.*; it must be a function or class that has a name"
    ):
        RunModel(name=lambda tables, dense: tables)


def test_one_figure_or_one_per_rank():
    assert cluster(hbm_bytes=[2**30, 2**31]).hbm_per_rank == (2**30, 2**31)
    assert cluster(hbm_bytes=np.int32(2**30)).hbm_bytes == 2**30


def test_tuples_of_two_and_records():
    with pytest.raises(UsageError, match=r"load_factor of Cache is None; it must be a number"):
        Cache(load_factor=None)
    assert Shard(table="a", rank=0, rows=(0, 1), columns=(0, 4)).rows == (0, 1)
    with pytest.raises(UsageError, match=r"rows of Shard 'a' is \(0,\); it must be a tuple of 2"):
        Shard(table="a", rank=0, rows=(0,), columns=(0, 4))


# --- short words for large nouns ----------------------------------------------------------------------------------


def test_a_repr_leaves_out_defaults_and_shortens_what_is_long():
    assert repr(ONE) == "Feature(name='a', pooling_factor=1.0)"
    many = placed("a", "row_wise", range(128))
    assert repr(many).endswith("ranks=<0, 1, 2, 3, ... 128 in all>)")


def test_reprs_of_large_nouns_are_a_line():
    result = plan(workload(*(table(f"t{i}") for i in range(200)), name="big"), "h100:2", planner="size_greedy")
    assert repr(result.plan.workload) == "Workload('big', 200 tables, 2.441 MiB, batch_size=16, 'sgd')"
    assert repr(result.plan.cluster) == "Cluster(h100:2, 79.2 GiB less 1.66 GiB reserve a device)"
    assert len(repr(result)) < 250
    assert "200 tables on h100:2" in repr(result)
    assert isinstance(result.plan.cluster, Cluster)
