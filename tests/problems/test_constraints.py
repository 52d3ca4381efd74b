"""Constraints as files and plans hold them, and what is wrong with them in one sentence."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith import Apart, Constraints, PerRank, Pin, TableRule, Together, load_constraints, pins_of, plan, save_plan
from recsmith.errors import Infeasible, UsageError
from recsmith.plans import Plan, load_plan
from recsmith.problems import build_problem, constraints_from_raw, constraints_to_raw, in_space
from recsmith.problems.constraints import RulesByTable
from recsmith.problems.space import Space

WORK = workload(*(table(f"t{i}", 1000 * (i + 1), 32) for i in range(4)))
NARROW = Pin(sharding_type="column_wise", ranks=(0, 1), widths=(8, 8))
FILE = """schema: recsmith/constraints/1
rules:
  - {tables: t0, ranks: [0], max_shards: 2}
  - {tables: t1, pin: {sharding_type: column_wise, ranks: [0, 1], widths: [16, 16]}}
pin_to: old.json
together: [[t2, t3]]
apart:
  - {tables: [t0, t2], per: host}
per_rank:
  - {max_tables: 3}
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    older = workload(*(table(f"t{i}", 1000 * (i + 1), 32) for i in (2, 3, 8)))
    save_plan(plan(older, cluster(2, 2), planner="cost_greedy").plan, folder / "old.json")
    return folder


def test_a_file_survives_the_way_into_a_plan_and_back(old: Path) -> None:
    (old / "rules.yaml").write_text(FILE)
    read = load_constraints(old / "rules.yaml")
    assert [rule.tables for rule in read.rules] == ["t0", "t1", "t2", "t3", "t8"]
    assert read.together == (Together(tables=("t2", "t3")),)
    assert read.apart == (Apart(tables=("t0", "t2"), per="host"),)
    assert read.per_rank == (PerRank(max_tables=3),)
    space, back = constraints_from_raw(constraints_to_raw(Space(), read), "plan")
    assert space == Space()
    assert back == replace(read, source="")


def test_partial_planning_keeps_what_an_old_plan_has_and_plans_the_rest(old: Path) -> None:
    rules = pins_of(old / "old.json", but=("t3",))
    made = plan(WORK, cluster(2, 2), constraints=Constraints(rules=rules), iterations=5).plan
    pinned = {rule.tables: rule.pin for rule in rules}
    found = {each.table: Pin.of(each) for each in made.placements}
    assert found["t2"] == pinned["t2"]
    assert set(found) == {"t0", "t1", "t2", "t3"}
    assert "t8" not in str(made.constraints)


def test_a_plan_that_breaks_a_constraint_lies_outside_of_the_space() -> None:
    free = plan(WORK, cluster(2, 2), planner="cost_greedy").plan
    where = free.placements[0].ranks[0]
    rules = (TableRule(tables=free.placements[0].table, not_ranks=(where,)),)
    problem = build_problem(WORK, cluster(2, 2), constraints=Constraints(rules=rules))
    assert not in_space(problem, free.placements)
    assert in_space(build_problem(WORK, cluster(2, 2)), free.placements)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (Constraints(rules=(TableRule(tables="t9", ranks=(0,)),)), "rule 't9' matches no table; known: t0, t1, t2, t3"),
        (Constraints(apart=(Apart(tables=("t1", "tt2")),)), "apart 'tt2' matches no table; did you mean 't2'"),
        (Constraints(rules=(TableRule(tables="t1", ranks=(4,)),)), "names rank 4; the cluster has ranks 0 to 3"),
        (Constraints(rules=(TableRule(tables="t1", not_hosts=(2,)),)), "names host 2; the cluster has hosts 0 to 1"),
        (
            Constraints(rules=(TableRule(tables="t1", pin=NARROW),)),
            "widths [8, 8] add up to 16, not 32",
        ),
    ],
)  # fmt: skip
def test_what_names_nothing_is_refused(constraints: Constraints, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(WORK, cluster(2, 2), constraints=constraints)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: TableRule(tables="a", widths=(6,)), "widths are multiples of 4"),
        (lambda: TableRule(tables="a", ranks=()), "ranks of rule 'a' is empty"),
        (lambda: TableRule(tables="a", max_shards=0), "max_shards of rule 'a' is 0; it must be at least 1"),
        (lambda: TableRule(tables="a", max_shards=2**40), "it must be at most 2,147,483,648"),
        (lambda: PerRank(tables=("a",)), "say max_tables or max_shards"),
        (lambda: Apart(tables=()), "apart names no table"),
        (lambda: Pin(sharding_type="table_wide", ranks=(0,)), "no sharding type is called 'table_wide'"),
    ],
)
def test_what_says_nothing_is_refused(build: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        build()  # type: ignore[operator]
    assert words in str(caught.value)


def test_a_contradiction_names_the_fewest_constraints_and_their_lines(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "schema: recsmith/constraints/1\n"
        "rules:\n"
        "  - {tables: t0, ranks: [0]}\n"
        "  - {tables: t3, max_shards: 1}\n"
        "  - {tables: t1, sharding_types: [table_wise], ranks: [0]}\n"
        "together: [[t2, t3]]\n"
        "apart: [[t0, t1]]\n"
    )
    with pytest.raises(Infeasible) as caught:
        plan(WORK, cluster(2, 2), constraints=tmp_path / "rules.yaml")
    said = str(caught.value)
    assert "no plan keeps these 3 constraints together" in said
    assert "'t0' ranks [0] (line 3)" in said
    assert "(line 5)" in said
    assert "'t0', 't1' apart (line 7)" in said
    assert "t3" not in said
    assert "checked: without any one of them, the others can be kept" in said


def test_a_plan_that_a_file_names_often_is_read_once(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counting(source: Plan | str) -> Plan:
        read.extend([source] if isinstance(source, str) else [])
        return load_plan(source)

    monkeypatch.setattr("recsmith.problems.constraint_files.load_plan", counting)
    pins = [*[{"plan": "old.json", "tables": ["t2"]}] * 2000, *[{"plan": "old.json", "tables": ["t3"]}] * 2000]
    (old / "many.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "pin_to": pins}))
    assert [rule.tables for rule in load_constraints(old / "many.json").rules] == ["t2", "t3"]
    assert read == [str(old / "old.json")]


def test_plans_to_pin_to_may_be_addresses(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (old / "rules.yaml").write_text(FILE)
    there = load_constraints(old / "rules.yaml")
    assert load_constraints(f"file://{old}/rules.yaml").rules == there.rules
    (old / "far.yaml").write_text(FILE.replace("old.json", f"file://{old}/old.json"))
    assert load_constraints(old / "far.yaml").rules == there.rules
    asked, made = list[str](), load_plan(old / "old.json")

    def asking(source: Plan | str) -> Plan:
        asked.extend([source] if isinstance(source, str) else [])
        return made

    monkeypatch.setattr("recsmith.problems.constraint_files.load_plan", asking)
    (old / "far.yaml").write_text(FILE.replace("old.json", "s3://bucket/old.json"))
    load_constraints(old / "far.yaml")
    assert asked == ["s3://bucket/old.json"]


NAMES = st.text("ab*?[]", min_size=1, max_size=3)


@given(patterns=st.lists(st.tuples(NAMES, st.booleans()), max_size=8), table=NAMES)
def test_the_rules_of_a_table_are_those_that_match_it_in_their_order(
    patterns: list[tuple[str, bool]], table: str
) -> None:
    rules = tuple(
        TableRule(tables=name, max_shards=place + 1, optional=optional)
        for place, (name, optional) in enumerate(patterns)
    )
    matching = [
        rule for rule in rules
        if rule.tables == table or (not rule.optional and fnmatchcase(table, rule.tables))
    ]  # fmt: skip
    assert list(RulesByTable(rules).of(table)) == matching
