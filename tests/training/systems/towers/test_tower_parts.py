"""Towers without torch: which tables are one, what is refused, and which plans have each on its host."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan
from recsmith.plans.towers import placed_towers
from recsmith.problems import Constraints, TableRule
from recsmith.training import Run, RunData, RunModel, RunOptimizers, RunTable, SparseOptimizer
from recsmith.training.run.parts import PlannedTables
from recsmith.training.systems.towers.of_run import check_same_towers, tower_lines, with_towers
from recsmith.training.systems.towers.parts import TowersOfHosts
from recsmith.training.systems.towers.settings import Towers, towers_of
from recsmith.workloads import workload_from_raw

TABLES = {"a": 8, "b": 8, "c": 16}


def a_plan(hosts: int = 2, **kinds: str) -> Plan:
    """Tables a, b and c, each by a sharding type; a and b on the first host."""
    tables = [
        {"name": name, "num_embeddings": 64, "embedding_dim": dim, "pooling_factor": 1} for name, dim in TABLES.items()
    ]
    workload = {"schema": "recsmith/workload/1", "batch_size": 32, "optimizer": "sgd", "tables": tables}
    wide = ("row_wise", "data_parallel")
    rules = [
        TableRule(
            tables=name, sharding_types=(kinds.get(name, "table_wise"),),
            hosts=None if hosts == 1 or kinds.get(name) in wide else (int(name == "c"),),
        )
        for name in TABLES
    ]  # fmt: skip
    limits = Constraints(rules=tuple(rules))
    return recsmith.plan(workload_from_raw(workload, "tables"), f"cpu:2x{hosts}", constraints=limits).plan


def placed(plan: Plan) -> tuple[tuple[str, ...], ...]:
    return placed_towers(plan.placements, plan.cluster)


def a_run(module: Any, plan: str = "auto") -> Run:
    tables = tuple(RunTable(name=name, num_embeddings=64, embedding_dim=dim) for name, dim in TABLES.items())
    return Run(data=RunData(train="x"), output="out", plan=plan, model=RunModel(tables=tables, table_module=module))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ratio": 0}, "ratio is 0"),
        ({"ratio": 2, "rank": 0}, "rank is 0"),
        ({"ratio": 2, "towers": [["a"], []]}, "tower 1 has no table; give it one"),
        ({"ratio": 2, "towers": [["a"], ["b", "a"]]}, "'a' is in two towers; name it in one"),
        ({"ratios": 2}, "ratio"),
        ({"ratio": 2, "module": "wide"}, "module"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        towers_of(RunModel(table_module={"name": "towers", **settings}))


@pytest.mark.parametrize(
    ("towers", "ratio", "said"),
    [
        ((("a", "b"),), 2, "'c' is in no tower"),
        ((("a", "b"), ("c", "cc")), 2, "'cc' is no table of the model; did you mean 'c'"),
        ((("a", "b"), ("c",)), 16, "'a' has 8 columns, and ratio 16 leaves no column; give a ratio that divides 8"),
        ((("a", "b"), ("c",)), 3, "ratio 3 does not divide its columns"),
    ],
)
def test_towers_hold_every_table_and_leave_columns(towers: Any, ratio: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Towers(ratio=ratio, towers=towers).check_tables(TABLES)


def test_towers_are_those_of_the_plan_file(tmp_path: Path) -> None:
    recsmith.save_plan(a_plan(), tmp_path / "plan.json")
    run = with_towers(a_run({"name": "towers", "ratio": 2}, str(tmp_path / "plan.json")))
    found = towers_of(run.model)
    assert found is not None
    assert (found.towers, found.module) == ((("a", "b"), ("c",)), "linear")
    deep = with_towers(
        replace(run, model=replace(run.model, name="dlrm_dcn", table_module={"name": "towers", "ratio": 2}))
    )
    assert towers_of(deep.model) == replace(found, module="cross")
    with pytest.raises(UsageError, match="nobody says which tables are a tower"):
        with_towers(a_run({"name": "towers", "ratio": 2}))
    assert with_towers(a_run(None)) == a_run(None)


def test_plans_that_have_no_towers_are_refused() -> None:
    with pytest.raises(PlanMismatch, match="'a' on 2 hosts, and a tower is the tables of one"):
        placed(a_plan(a="row_wise"))
    plan = a_plan()
    first = replace(plan, placements=tuple(replace(each, ranks=(0,)) for each in plan.placements))
    with pytest.raises(PlanMismatch, match="no table on host 1"):
        placed(first)


def test_rules_make_plans_that_keep_towers() -> None:
    found = Towers(ratio=2, towers=(("c",), ("a", "b")))
    assert found.rules(1) == ()
    assert {rule.tables: rule.hosts for rule in found.rules(2)} == {"c": (0,), "a": (1,), "b": (1,)}


@pytest.mark.parametrize(
    ("plan", "towers", "said"),
    [
        (a_plan(), (("a", "b"), ("c",)), None),
        (a_plan(a="table_row_wise"), (("a", "b"), ("c",)), None),
        (a_plan(hosts=1, a="row_wise"), (("a",), ("b",), ("c",)), None),
        (a_plan(), (("a", "c"), ("b",)), "'b' of tower 1 is on rank . in the plan, which is of host 0"),
        (a_plan(), (("a",), ("b",), ("c",)), "more towers than hosts: 3 towers, and the plan is for 2 hosts"),
        (a_plan(), (("a", "b", "c"),), "fewer towers than hosts"),
        (a_plan(a="row_wise"), (("a", "b"), ("c",)), "'a' is row_wise in the plan, which crosses hosts"),
        (a_plan(b="data_parallel"), (("a", "b"), ("c",)), "'b' is data_parallel in the plan, which crosses hosts"),
    ],
)
def test_plans_have_each_tower_on_its_host(plan: Plan, towers: Any, said: str | None) -> None:
    sentence = TowersOfHosts(towers=Towers(ratio=2, towers=towers)).refuses(PlannedTables(plan, "cpu"))
    assert (sentence is None) == (said is None)
    assert said is None or re.search(said, sentence or "")


def test_checkpoints_of_ratio_1_are_of_any_towers() -> None:
    def model(ratio: int, *towers: list[str]) -> RunModel:
        return RunModel(table_module={"name": "towers", "ratio": ratio, "towers": list(towers), "module": "linear"})

    check_same_towers(model(1, ["a"], ["b"]), model(1, ["b"], ["a"]))
    check_same_towers(RunModel(), model(1, ["a", "b"]))
    check_same_towers(model(2, ["a"], ["b"]), model(2, ["a"], ["b"]))
    with pytest.raises(UsageError, match="no towers, and the run has 2 towers of ratio 2"):
        check_same_towers(RunModel(), model(2, ["a"], ["b"]))


def test_plain_tables_are_judged_under_their_own_plan(tmp_path: Path) -> None:
    """64 rows are cheaper copied than sent, which a plan of towers may not do; an optimizer without copies may not."""
    plan = a_plan()
    slow = replace(plan.cluster, links=replace(plan.cluster.links, inter_host_bandwidth=1e5))
    kept = Constraints(rules=Towers(ratio=4, towers=(("a", "b"), ("c",))).rules(2))
    recsmith.save_plan(recsmith.plan(plan.workload, slow, constraints=kept).plan, tmp_path / "slow")
    run = a_run({"name": "towers", "ratio": "auto"}, str(tmp_path / "slow"))
    many = replace(run, data=replace(run.data, batch_size=4096))
    (line,) = tower_lines(many)
    assert "towers do not pay" in line
    assert "so ratio auto leaves plain tables; plan again without --towers, for a step of " in line
    assert with_towers(many).model.table_module is None
    split = replace(many, optimizers=RunOptimizers(sparse=SparseOptimizer(name="adam")))
    (line,) = tower_lines(split)
    assert "towers pay" in line


def test_auto_takes_towers_where_the_plans_links_are_slow(tmp_path: Path) -> None:
    plan = a_plan()
    slow = replace(plan.cluster.links, inter_host_bandwidth=1e4)
    for name, links in (("fast", replace(slow, inter_host_bandwidth=1e15)), ("slow", slow)):
        made = replace(plan, cluster=replace(plan.cluster, links=links), digest="")
        recsmith.save_plan(made, tmp_path / name)
    fast, here = (a_run({"name": "towers", "ratio": "auto"}, str(tmp_path / name)) for name in ("fast", "slow"))
    assert with_towers(fast).model.table_module is None
    assert "towers do not pay" in tower_lines(fast)[0]
    assert "so ratio auto leaves plain tables" in tower_lines(fast)[0]
    found = towers_of(with_towers(here).model)
    assert found is not None
    assert (found.ratio, found.towers) == (4, (("a", "b"), ("c",)))
    assert tower_lines(here)[0].startswith("towers of ratio 4")
    assert "leaves" not in tower_lines(here)[0].replace("leave a host", "")
    nowhere = a_run({"name": "towers", "ratio": "auto"})  # as dense: auto, which goes on where it cannot pay
    assert with_towers(nowhere).model.table_module is None
    (why,) = tower_lines(nowhere)
    assert why.startswith("towers: plan: auto knows no links between hosts; `recsmith plan RUN.yaml --cluster CLUSTER")
    assert why.endswith("; so ratio auto leaves plain tables")
    recsmith.save_plan(a_plan(a="row_wise"), tmp_path / "wide")
    wide = a_run({"name": "towers", "ratio": "auto"}, str(tmp_path / "wide"))
    (why,) = tower_lines(wide)
    assert why.startswith("towers: the plan has table 'a' on 2 hosts, and a tower is the tables of one")
    assert why.endswith("; so ratio auto leaves plain tables")
    with pytest.raises(PlanMismatch, match="'a' on 2 hosts"):
        tower_lines(replace(wide, model=replace(wide.model, table_module={"name": "towers", "ratio": 2})))
    assert tower_lines(a_run(None)) == []
