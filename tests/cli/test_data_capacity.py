"""recsmith data capacity."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "format: generator\nnum_samples: 12000\nfeatures:\n"
        "  - {name: user, num_embeddings: 1000000, zipf: 1.0}\n  - {name: place, num_embeddings: 50}\n"
    )
    return path


def test_a_curve_in_the_terminal(run: Run, spec: Path):
    done = run("data", "capacity", spec, "--embedding-dim", 16, "--policies", "lru,lfu")
    assert done.code == 0
    assert "samples  12,000, read in order" in done.out
    assert "feature  'user': 12,000 lookups of " in done.out
    assert "99 % of what any table can serve (" in done.out
    assert max(map(len, done.out.splitlines())) <= 80 or "whole" not in done.out
    raw = json.loads(run("data", "capacity", spec, "--format", "json", "--features", "user").out)
    assert (raw["schema"], raw["samples"], [each["feature"] for each in raw["features"]]) == (
        "recsmith/capacity/1", 12_000, ["user"],
    )  # fmt: skip


def test_the_beginning_of_a_stream_and_the_plan_of_a_cluster(run: Run, spec: Path):
    words = ("--samples", 6000, "--features", "user", "--policies", "lru", "--cluster", "h100:2", "--format", "json")
    raw = json.loads(run("data", "capacity", spec, *words).out)
    assert (raw["samples"], raw["whole"]) == (6000, 12_000)
    assert raw["features"][0]["forecast"]["rows"]["lru"] > raw["features"][0]["policies"][0]["rows"]
    assert [each["times"] for each in raw["sized"]] == [0.25, 0.5, 1.0, 2.0]
    assert all(0 < each["step_s"] < 1 and each["device_bytes"] > 0 for each in raw["sized"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--serve", "1"), "no bounded table serves all lookups while new ids come; ask for 0.99"),
        (("--features", "usr"), "the data has no feature 'usr'; did you mean 'user'?"),
        (("--policies", "random"), "no policy is called 'random'; there are lru, lfu, age"),
        (("--optimizer", "adagad"), "no optimizer is called 'adagad'; did you mean 'adagrad'?"),
    ],
)
def test_one_sentence_for_what_cannot_be(run: Run, spec: Path, words: tuple[str, ...], said: str):
    done = run("data", "capacity", spec, *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


@pytest.mark.parametrize(("column", "said"), [("[3, -1, 4]", "negative ids"), ('["a", "b", "c"]', "text")])
def test_ids_are_whole_numbers(run: Run, tmp_path: Path, column: str, said: str):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"user": json.loads(column), "label": [0.0, 1.0, 0.0]}), tmp_path / "d.parquet")
    spec = tmp_path / "d.yaml"
    spec.write_text(
        "format: parquet\npaths: [d.parquet]\nlabels: [label]\nfeatures: [{name: user, num_embeddings: 9}]\n"
    )
    done = run("data", "capacity", spec)
    assert (done.code, done.out) == (2, "")
    assert "user" in done.err


def test_interrupted_reading_tells_what_was_read(run: Run, spec: Path, monkeypatch: pytest.MonkeyPatch):
    from recsmith.data.generator.source import GeneratorSource

    read, asked = GeneratorSource.read, list[int]()

    def stopped(self: GeneratorSource, block: int) -> Any:
        asked.append(block)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return read(self, block)

    monkeypatch.setattr(GeneratorSource, "read", stopped)
    done = run("data", "capacity", spec, "--format", "json", "--features", "place")
    raw = json.loads(done.out)
    assert (done.code, raw["stopped"], 0 < raw["samples"] < 12_000) == (0, True, True)
    assert "interrupted; the result is for what was read until then" in done.err


def test_a_report_says_what_rows_of_a_plan_serve(run: Run, spec: Path, tmp_path: Path):
    (tmp_path / "w.yaml").write_text(
        "schema: recsmith/workload/1\nbatch_size: 8\noptimizer: sgd\n"
        "tables: [{name: user, num_embeddings: 500, embedding_dim: 4, pooling_factor: 1}]\n"
    )
    words = ("--planner", "cost_greedy", "-o", tmp_path / "plan.json")
    assert run("plan", tmp_path / "w.yaml", "--cluster", "h100:1", *words).code == 0
    for feature in ("user", "place"):
        raw = run("data", "capacity", spec, "--features", feature, "--policies", "lru", "--format", "json").out
        (tmp_path / f"{feature}.json").write_text(raw)
    page = tmp_path / "plan.html"
    assert run("report", tmp_path / "plan.json", "--capacity", tmp_path / "user.json", "-o", page).code == 0
    assert "has 500 rows, which serve " in page.read_text()
    assert "it has too few" in page.read_text()
    other = run("report", tmp_path / "plan.json", "--capacity", tmp_path / "place.json", "-o", tmp_path / "no.html")
    assert (other.code, (tmp_path / "no.html").exists()) == (2, False)
    assert "the capacity is of place, which no table of the plan reads: it is of other data" in other.err
    damaged = run("report", tmp_path / "plan.json", "--capacity", tmp_path / "plan.json", "-o", tmp_path / "no.html")
    assert (damaged.code, "recsmith/capacity/1" in damaged.err) == (2, True)
