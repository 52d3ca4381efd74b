"""Every public function takes a noun, a name or a path alike."""

import json
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.errors import CorruptFile, UsageError

TABLES = {
    "schema": "recsmith/workload/1", "batch_size": 64, "optimizer": "sgd",
    "tables": [{"name": name, "num_embeddings": 1000, "embedding_dim": 32, "pooling_factor": 2} for name in "ab"],
}  # fmt: skip
RULES = {"schema": "recsmith/constraints/1", "rules": [{"tables": "a", "sharding_types": ["row_wise"]}]}
BY_HAND = [
    {"table": "a", "sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1]},
    {"table": "b", "sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind."""
    made = tmp_path_factory.mktemp("sources")
    (made / "tables.json").write_text(json.dumps(TABLES))
    (made / "rules.json").write_text(json.dumps(RULES))
    cluster = recsmith.plan(made / "tables.json", "h100:2", planner="size_greedy").plan
    recsmith.save_plan(cluster, made / "plan.json")
    raw = json.loads((made / "plan.json").read_text())
    (made / "cluster.json").write_text(json.dumps(raw["cluster"]))
    by_hand = {"schema": raw["schema"], "workload": TABLES, "cluster": raw["cluster"], "placements": BY_HAND}
    (made / "by_hand.json").write_text(json.dumps(by_hand))
    return made


def both(path: Path, load: Any) -> list[Any]:
    """A path as text, as a Path, and the noun that it holds."""
    return [str(path), path, load(path)]


def test_readers_take_all_three(folder: Path):
    for name, load in (
        ("tables.json", recsmith.load_workload),
        ("cluster.json", recsmith.load_cluster),
        ("rules.json", recsmith.load_constraints),
        ("plan.json", recsmith.load_plan),
    ):
        text, path, noun = both(folder / name, load)
        assert load(text) == load(path) == noun
        assert load(noun) is noun


def test_plan_takes_paths_of_everything(folder: Path):
    workloads = both(folder / "tables.json", recsmith.load_workload)
    clusters = both(folder / "cluster.json", recsmith.load_cluster)
    rules = both(folder / "rules.json", recsmith.load_constraints)
    made = [
        recsmith.plan(*some, constraints=limits, planner="size_greedy").plan
        for *some, limits in zip(workloads, clusters, rules, strict=True)
    ]
    assert len({each.digest for each in made}) == 1
    assert made[0].placements[0].sharding_type == "row_wise"


def test_analyses_take_all_three(folder: Path):
    plans = both(folder / "plan.json", recsmith.load_plan)
    assert len({recsmith.simulate(each).digest for each in plans}) == 1
    assert len({recsmith.explain(each).total_s for each in plans}) == 1
    assert {recsmith.diff(each, other).unchanged for each in plans for other in plans} == {2}
    tables, cluster = folder / "tables.json", folder / "cluster.json"
    assert len({recsmith.price(tables, cluster, each).cost.total_s for each in plans}) == 1
    for each in plans:
        compared = recsmith.compare(tables, cluster, planners=(), judges=(), baseline=each)
        assert compared.row("baseline").fits
        assert recsmith.plan(tables, cluster, start=each, planner="size_greedy").plan.cost.total_s > 0
    for source in both(cluster, recsmith.load_cluster):
        assert len(recsmith.sweep(tables, devices=[1], device=source, planner="size_greedy").points) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: recsmith.load_workload(5), "a int is neither a Workload nor a name or path"),  # pyright: ignore[reportArgumentType]
        (lambda: recsmith.plan("dlrm-v2", None), "a NoneType is neither a Cluster nor a name or path"),  # pyright: ignore[reportArgumentType]
        (lambda: recsmith.simulate(recsmith.plan("criteo-kaggle", "h100:2", iterations=1)), "give its .plan"),  # pyright: ignore[reportArgumentType]
        (lambda: recsmith.price("criteo-kaggle", "h100:2", ["a"]), "placements hold a str; give a list of Placement"),  # pyright: ignore[reportArgumentType]
        (lambda: recsmith.load_plan(b"plan.json"), "a bytes is neither"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_neither_is_refused(call: Any, words: str):
    with pytest.raises(UsageError, match=words):
        call()


# --- plans written by hand ----------------------------------------------------------------------------------------


def test_a_plan_by_hand_is_priced(folder: Path):
    found = recsmith.simulate(folder / "by_hand.json")
    assert [each.sharding_type for each in found.placements] == ["table_wise", "row_wise"]
    placements = [recsmith.Placement(**each) for each in BY_HAND]
    assert found == recsmith.price(folder / "tables.json", folder / "cluster.json", placements)
    assert found.bound.value_s is not None
    assert found.cost.total_s >= found.bound.value_s
    assert recsmith.simulate(folder / "by_hand.json", "torchrec").cost_model == "torchrec"


def test_a_plan_by_hand_keeps_its_constraints_and_cost_model(folder: Path, tmp_path: Path):
    raw = json.loads((folder / "by_hand.json").read_text())
    raw |= {"cost_model": "torchrec", "constraints": {"types": ["table_wise", "row_wise"], "widths": "torchrec"}}
    (tmp_path / "limited.json").write_text(json.dumps(raw))
    found = recsmith.simulate(tmp_path / "limited.json")
    assert found.cost_model == "torchrec"
    assert found.bound.space.startswith("table_wise + row_wise; widths torchrec; kernels fused, dense")


def test_what_needs_a_price_says_so(folder: Path):
    with pytest.raises(CorruptFile, match="is a plan without a price: `planner` is missing; "):
        recsmith.explain(folder / "by_hand.json")


@pytest.mark.parametrize("key", ["cost", "bound", "gap", "constraints"])
def test_a_part_of_a_price_is_found_anew(folder: Path, tmp_path: Path, key: str):
    raw = json.loads((folder / "plan.json").read_text())
    del raw[key]
    if key == "constraints":
        del raw["digest"]
    (tmp_path / "part.json").write_text(json.dumps(raw))
    again, whole = recsmith.simulate(tmp_path / "part.json"), recsmith.load_plan(folder / "plan.json")
    assert (again.cost, again.gap, again.digest) == (whole.cost, whole.gap, whole.digest)
