"""`recsmith replan`: what it prints where, what it writes, and what it refuses."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recsmith

FAST = ("--planner", "cost_greedy")


@pytest.fixture
def old(tmp_path: Path, tables: Path) -> Path:
    """A plan of three tables on four devices."""
    path = tmp_path / "old.json"
    recsmith.save_plan(recsmith.plan(tables, "h100:4", planner="cost_greedy").plan, path)
    return path


@pytest.fixture
def busier(tmp_path: Path, tables: Path) -> Path:
    """The same tables, one of them read more often."""
    path = tmp_path / "busier.yaml"
    path.write_text(tables.read_text().replace("pooling_factor: 20", "pooling_factor: 200"))
    return path


def test_a_plan_and_what_it_moves(run: Callable[..., Any], old: Path, busier: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    done = run("replan", old, "--workload", busier, "--max-moved", "100%", "-o", new, *FAST)
    assert (done.code, done.err) == (0, "")
    assert done.says(f"old {old}: ")
    assert "of the weights that stay" in done.out
    assert recsmith.load_plan(new).workload.tables[1].features[0].pooling_factor == 200


def test_json_holds_the_plan_and_its_moves(run: Callable[..., Any], old: Path) -> None:
    done = run("replan", old, "--cluster", "h100:8", "--max-moved", "0%", "--format", "json", *FAST)
    raw = json.loads(done.out)
    assert (raw["moved_bytes"], raw["new_bytes"], raw["plan"]["schema"]) == (0, 0, "recsmith/plan/1")
    assert raw["plan"]["cluster"]["local_world_size"] == 8


def test_a_curve_as_table_json_and_csv(run: Callable[..., Any], old: Path, busier: Path, tmp_path: Path) -> None:
    words = ("replan", old, "--workload", busier, "--steps-left", "1000000", *FAST)
    table, raw, text = (run(*words, "--format", form) for form in ("table", "json", "csv"))
    assert "pays     moving " in table.out
    points = json.loads(raw.out)["points"]
    rows = list(csv.DictReader(io.StringIO(text.out)))
    assert [float(row["step_s"]) for row in rows] == [point["step_s"] for point in points]
    assert [point["recommended"] for point in points].count(True) == 1
    new = tmp_path / "new.json"
    assert run(*words, "-o", new).code == 0
    best = next(point for point in points if point["recommended"])
    assert recsmith.load_plan(new).cost.total_s == best["step_s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("--format", "csv"), "--format csv is of curves; add --curve", id="csv without a curve"),
        pytest.param(("--link", "25GB/s"), "add --steps-left", id="link without steps"),
        pytest.param(("--curve", "--max-moved", "5%"), "a curve has limits of its own", id="curve with a limit"),
        pytest.param(("--curve", "-o", "x.json"), "add --steps-left to choose one", id="curve into a file"),
        pytest.param(("--max-moved", "5"), "'5' is not a quantity with a unit", id="no unit"),
        pytest.param(("--workload", "nothing.yaml"), "nothing.yaml", id="no such file"),
        pytest.param(("--link", "fast", "--steps-left", "9"), "'fast' is not a speed with a unit", id="no speed"),
    ],
)
def test_one_sentence_for_what_is_wrong(run: Callable[..., Any], old: Path, words: tuple[str, ...], message: str):
    done = run("replan", old, *words, *FAST)
    assert done.code != 0
    assert message in done.err
    assert done.out == ""


def test_the_old_plan_is_not_overwritten_by_mistake(run: Callable[..., Any], old: Path) -> None:
    before = old.read_text()
    done = run("replan", old, "-o", old, *FAST)
    assert done.code != 0
    assert old.read_text() == before


def test_devices_that_go_need_a_move(run: Callable[..., Any], old: Path) -> None:
    done = run("replan", old, "--cluster", "h100:1", "--max-moved", "0%", *FAST)
    assert done.code != 0
    assert "the least that was found moves" in done.err
