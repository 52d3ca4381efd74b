"""`recsmith watch`: what it shows of a run and of a series, the workload that it writes, and what it refuses."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")
pytest.importorskip("recsmith.training.systems.watch")
pytest.importorskip("datasketches")

import recsmith
from recsmith.streaming.sketch_files import SketchFiles, read_sketches

Run = Callable[..., Any]


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """A noisy series with one value that is far out, beside a constant one."""
    values = np.random.default_rng(0).normal(10, 1, 1000)
    values[900] = 40
    path = tmp_path / "series.csv"
    path.write_text("time,latency,still\n" + "".join(f"t{at},{value:.4f},1\n" for at, value in enumerate(values)))
    return path


@pytest.fixture
def job(tmp_path: Path, tables: Path) -> Path:
    """The folder of a job: a log with one alarm, its plan, and sketches of the ids of two ranks."""
    folder = tmp_path / "run"
    folder.mkdir()
    alarm = {"event": "alarm", "step": 96, "since": 88, "kind": "hot_set", "of": "medium", "because": "another hot set",
             "action": None}  # fmt: skip
    events = [{"event": "watch", "step": 50, "loss": 0.25, "hot_set/medium": 0.5}, alarm]
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    recsmith.save_plan(recsmith.plan(tables, "h100:2", planner="cost_greedy").plan, folder / "plan.json")
    chance = np.random.default_rng(0)
    for rank in range(2):
        sketches = SketchFiles(folder, rank, ("small", "medium", "large"), 100)
        for name, length in (("small", 1), ("medium", 3), ("large", 5)):
            lengths = np.full(100, length, np.int32)
            sketches.add(name, lengths, chance.integers(0, 100, 100 * length), lengths)
        sketches.write(100)
    return folder


def test_a_disk_that_refuses_a_sketch_costs_the_sketch_alone(tmp_path: Path) -> None:
    (tmp_path / "watch").write_text("no folder")
    sketches, one = SketchFiles(tmp_path, 0, ("small",), 100), np.ones(1, np.int32)
    told = []
    for step in (100, 200):
        sketches.add("small", one, np.zeros(1, np.int64), one)
        told.append(sketches.write(step))
    assert told[0] is not None
    assert told[0].startswith("sketches of step 100 are lost (")
    assert told[1] is None  # said once
    (tmp_path / "watch").unlink()
    sketches.add("small", one, np.zeros(1, np.int64), one)
    assert sketches.write(300) is None
    step, found = read_sketches(tmp_path)
    assert (step, found["small"].sketched) == (300, 1)


def test_a_run_is_shown_as_text_and_as_data(run: Run, job: Path) -> None:
    done = run("watch", job)
    assert (done.code, done.err) == (0, "")
    assert f"{job}: step 96, under way, or was stopped; watched as it trains" in " ".join(done.out.split())
    assert "loss 0.25, lookups of hot sets 50% to 50%" in done.out
    assert "another hot set" in done.out
    raw = json.loads(run("watch", job, "--format", "json").out)
    assert (raw["schema"], [each["kind"] for each in raw["alarms"]]) == ("recsmith/watch/1", ["hot_set"])
    assert "alarms   none" in run("watch", job, "--until", 90).out


def test_following_ends_when_the_run_does(run: Run, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(seconds: float) -> None:
        (job / "model").mkdir()
        (job / "model/card.json").write_text("{}")

    monkeypatch.setattr("recsmith.training.systems.watch.command.time.sleep", ends)
    done = run("watch", job, "--follow")
    assert done.code == 0
    assert done.out.count("another hot set") == 2
    assert "step 96, ended" in done.out


def test_the_workload_of_a_runs_ids_can_be_planned_from(run: Run, job: Path, tmp_path: Path) -> None:
    target = tmp_path / "now.json"
    done = run("watch", job, "--workload", target)
    assert (done.code, done.out) == (0, "")
    assert "the tables as ids read them in the steps up to 100" in done.err
    now = recsmith.load_workload(target)
    assert {table.name: table.features[0].pooling_factor for table in now.tables} == {
        "small": 1,
        "medium": 3,
        "large": 5,
    }
    again = run("watch", job, "--workload", target)
    assert again.code == 0  # a workload may be replaced by a newer one
    plan = run("plan", target, "--cluster", "h100:2", "--planner", "cost_greedy")
    assert plan.code == 0


def test_what_the_ids_look_like_is_shown(run: Run, job: Path) -> None:
    (small, medium, _) = json.loads(run("watch", job, "--ids", "--format", "json").out)["ids"]
    assert (small["feature"], small["lookups"], small["sketched"], small["new_share"]) == ("small", 200, 200, None)
    assert medium["lengths"] == [3, 3]
    assert medium["different"] == pytest.approx(95, abs=6)  # of 100, in 600 lookups
    assert 0.2 <= medium["top_share"] <= 0.5
    later = SketchFiles(job, 0, ("small",), 100)
    for first, name in ((0, "small"), (1000, "small")):
        later.add(name, np.full(100, 1, np.int32), np.arange(first, first + 100), np.full(100, 1, np.int32))
    later.write(200)
    done = run("watch", job, "--ids")
    assert done.code == 0
    assert f"{job}: the steps up to 200" in " ".join(done.out.split())
    (row,) = json.loads(run("watch", job, "--ids", "--format", "json").out)["ids"]
    some = SketchFiles(job, 0, ("small",), 100, looks=8)
    some.add("small", np.full(100, 1, np.int32), np.arange(100), np.full(100, 1, np.int32))
    some.write(300)
    assert "the steps up to 300; one lookup in 8 was looked at" in " ".join(run("watch", job, "--ids").out.split())
    assert row["new_share"] == pytest.approx(0.5, abs=0.1)  # 100 of 200 lookups read ids that were not read before


def test_series_are_judged_one_by_one(run: Run, series: Path) -> None:
    done = run("watch", series, "--detector", "ewma")
    assert (done.code, done.err) == (0, "")
    assert "series   latency: 1,000 values, 1 alarm\n" in done.out
    assert re.search(r"latency +t900 +a spike up by 30\S*, \S+ deviations +40 +9\.\d+", done.out)
    assert "still: 1,000 values, constant, so nothing in it is unusual" in done.out
    raw = json.loads(run("watch", series, "--column", "latency", "--format", "json").out)
    assert [each["name"] for each in raw["series"]] == ["latency"]
    assert ("t900", "spike") in [(each["at"], each["kind"]) for each in raw["series"][0]["alarms"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "nowhere"),
        (("RUN", "--column", "x"), "--column is of series, and"),
        (("RUN", "--threshold", "3"), "--threshold is of series, and"),
        (("CSV", "--follow"), "--follow is of runs, and"),
        (("CSV", "--ids"), "--ids is of runs, and"),
        (("EMPTY", "--ids"), "has no sketches; train with `watch: auto`"),
        (("CSV", "--workload", "now.json"), "--workload is of runs, and"),
        (("CSV", "--column", "latencies"), "no column 'latencies'; did you mean 'latency'"),
        (("CSV", "--column", "time"), "'time' tells where rows are, such as 't0', and holds no numbers to judge"),
        (("CSV", "--detector", "tial"), "did you mean 'tail'"),
        (("CSV", "--column", "still", "--detector", "tial"), "did you mean 'tail'"),  # of a constant series, too
        (("CSV", "--threshold", "nan"), "threshold is nan; it must be finite"),
        (("RUN", "--workload", "RUN/plan.json"), "plan.json"),
        (("EMPTY",), "has no log.jsonl; give the output folder of a run, or a CSV file"),
        (("EMPTY", "--workload", "now.json"), "has no sketches; train with `watch: auto`"),
        (("SHORT",), "series 'x' has 20 values, and the detector judges none before it has seen"),
        (("ONE",), "series 'x' has 1 values, and the detector judges none before it has seen"),
    ],
)
def test_one_sentence_for_what_is_wrong(
    run: Run, job: Path, series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.csv").write_text("x\n1\n")
    (tmp_path / "short.csv").write_text("x\n" + "1\n2\n" * 10)
    places = {"RUN": job, "CSV": series, "EMPTY": tmp_path / "empty", "SHORT": tmp_path / "short.csv",
              "ONE": tmp_path / "one.csv"}  # fmt: skip
    named = [str(places.get(word, word)).replace("RUN/", f"{job}/") for word in words]
    done = run("watch", *named)
    assert done.code == 2
    assert message in done.err.replace("\n", " ")
    assert done.out == ""
    assert not (tmp_path / "now.json").exists()


def test_packages_that_are_missing_are_named(
    run: Run, series: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("river.drift", "river", "datasketches"):
        monkeypatch.setitem(sys.modules, module, None)
    done = run("watch", series, "--column", "latency", "--detector", "adwin")
    assert done.code == 2
    assert "detector adwin needs river: pip install" in done.err
    done = run("watch", job, "--workload", job / "now.json")
    assert done.code == 2
    assert "sketches need datasketches: pip install" in done.err


def test_a_detector_takes_settings(run: Run, tmp_path: Path) -> None:
    """A spike out of season, which nothing but the period shows."""
    place = np.arange(2000)
    values = 10 * np.sin(2 * np.pi * place / 288) + np.random.default_rng(0).normal(0, 0.3, 2000)
    values[1656] = 10.0  # in a trough
    path = tmp_path / "series.csv"
    path.write_text("load\n" + "".join(f"{value:.4f}\n" for value in values))
    raw = json.loads(run("watch", path, "--detector", "seasonal", "--set", "period=288", "--format", "json").out)
    assert [alarm["at"] for alarm in raw["series"][0]["alarms"]] == ["1658"]  # the line of the file
    assert (
        "detector.perod is no setting; did you mean 'period'?"
        in run("watch", path, "--detector", "seasonal", "--set", "perod=9").err
    )
    assert "'period' is not key=value" in run("watch", path, "--set", "period").err
    wanted = "seasonal judges by a period: 'load' repeats every 288 values; add --column load --set period=288"
    done = run("watch", path, "--detector", "seasonal")
    assert (done.code, wanted in done.err) == (2, True)
    done = run("watch", path, "--detector", "seasonal", "--set", "period=24")
    assert (done.code, "'load' repeats every 288 values, and was judged by a period of 24" in done.err) == (0, True)
    flat = tmp_path / "flat.csv"
    flat.write_text("load\n" + "".join(f"{value:.4f}\n" for value in np.random.default_rng(0).normal(size=900)))
    assert "no column repeats; leave --detector seasonal out" in run("watch", flat, "--detector", "seasonal").err


def test_a_run_is_watched_before_its_first_look(run: Run, job: Path) -> None:
    from recsmith.training import Run as TrainingRun
    from recsmith.training import RunData, RunModel
    from recsmith.training.run import save_run

    (job / "log.jsonl").write_text(json.dumps({"event": "train", "step": 4, "logloss": 0.7}) + "\n")
    assert "not watched" in " ".join(run("watch", job).out.split())  # a long name of the folder breaks the line
    data = {"format": "generator", "seed": 1, "dense": 1, "num_samples": 9, "features": []}
    save_run(
        TrainingRun(
            data=RunData(train=data), model=RunModel(embedding_dim=4, name="dlrm"), output=str(job), watch="auto"
        ),
        job / "run.json",
    )
    assert "watched as it trains" in " ".join(run("watch", job).out.split())


def test_a_long_tail_is_named_where_it_alarms(run: Run, tmp_path: Path) -> None:
    """A level that moved has no tail, though percentiles of the whole series are as skewed."""
    noise = np.random.default_rng(0).lognormal(size=2000)
    (tmp_path / "series.csv").write_text("\n".join(["latency", *map(str, noise.tolist())]))
    done = run("watch", tmp_path / "series.csv")
    assert "'latency' has a long tail: in most stretches of 100 values the 95th percentile is" in done.err
    assert "has a long tail" not in run("watch", tmp_path / "series.csv", "--set", "scale=log").err
    shifted = np.random.default_rng(0).normal(size=1000) + 8 * (np.arange(1000) >= 700)
    (tmp_path / "series.csv").write_text("\n".join(["latency", *map(str, shifted.tolist())]))
    done = run("watch", tmp_path / "series.csv")
    assert "the level moved from" in done.out
    assert done.err == ""
