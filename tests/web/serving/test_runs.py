"""Training runs and sweeps as the server tells them, and an address by which nothing can be changed."""

import json
import math
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

import pytest
from support.served import TOKEN, Client

import recsmith
from recsmith.analyses.sweep import sweep
from recsmith.files import dump_json
from recsmith.plans import plan_to_raw
from recsmith.reports.comparisons import knee_words, sweep_to_raw
from recsmith.web.serving import run_log
from recsmith.web.serving.app import make_app, make_server
from recsmith.web.serving.operations import OPERATIONS
from recsmith.web.serving.run_folders import RunFolders
from recsmith.web.serving.run_log import ThinnedCurve
from recsmith.web.serving.settings import Settings

READER = "a-token-that-reads"


def line(step: int, **more: Any) -> str:
    values = {
        "event": "train", "step": step, "logloss": 0.7 - step / 10_000, "samples_per_s": 1000.0 + step, "step_s": 0.02,
        "data_s": 0.001, "forward_s": 0.008, "backward_s": 0.011, **more,
    }  # fmt: skip
    return json.dumps(values) + "\n"


@pytest.fixture
def run(tmp_path: Path, plan: recsmith.Plan) -> Path:
    """The folder of a run of which ten lines are written."""
    folder = tmp_path / "monday"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    (folder / "plan.json").write_text(dump_json(plan_to_raw(plan)))
    started = '{"event": "start", "step": 0, "predicted_step_s": 0.018}\n'
    (folder / "log.jsonl").write_text(started + "".join(line(step) for step in range(10, 101, 10)))
    return folder


def append(folder: Path, text: str) -> None:
    with (folder / "log.jsonl").open("a") as file:
        file.write(text)


def serving(tmp_path: Path, *runs: Path, folder: Path | None = None) -> Client:
    settings = Settings(token=TOKEN, reader=READER, runs=tuple(map(str, runs)), folder=folder and str(folder))
    server = make_server(settings)
    return Client(server, make_app(server))


def test_a_run_is_told_beside_its_plan_and_followed(tmp_path: Path, run: Path, plan: recsmith.Plan):
    client = serving(tmp_path, run)
    (summary,) = client.ask("GET", "/api/kept").json()["runs"]
    assert (summary["id"], summary["step"], summary["ended"]) == ("monday", 100, False)
    view = client.ask("GET", "/api/runs/monday").json()
    curves = {each["name"]: each["points"] for each in view["curves"]}
    assert curves["train logloss"] == [[step, 0.7 - step / 10_000] for step in range(10, 101, 10)]
    assert curves["train forward_s"][-1] == [100, 0.008]
    assert plan.cost is not None
    assert (view["plan"]["digest"], view["plan"]["step_s"]) == (plan.digest, plan.cost.step_s)
    assert view["predicted_s"] == 0.018
    assert view["measured"]["step_s"] == pytest.approx(0.02)
    assert view["measured"]["samples_per_s"] == pytest.approx(harmonic_mean(range(1010, 1101, 10)))
    append(run, line(110, step_s=0.5) + line(120)[:-10])  # one that is half written
    append(run, "")
    view = client.ask("GET", "/api/runs/monday").json()
    assert (view["summary"]["step"], view["damaged"]) == (110, 0)
    append(run, line(120)[-10:])
    assert client.ask("GET", "/api/runs/monday").json()["summary"]["step"] == 120
    (run / "model").mkdir()
    (run / "model" / "card.json").write_text("{}")
    assert client.ask("GET", "/api/runs/monday").json()["summary"]["ended"] is True


def test_alarms_have_what_was_done_about_them(tmp_path: Path, run: Path):
    because = "logloss rose"
    alarm = {"event": "alarm", "step": 60, "since": 55, "kind": "loss", "because": because, "action": "save"}
    other = {"event": "watcher", "step": 80, "what": "stop", "because": "asked to", "done": "stopped"}
    done = {"event": "watcher", "step": 62, "what": "save", "because": because, "done": "saved step 62"}
    append(run, "".join(json.dumps(each) + "\n" for each in (alarm, done, other)))
    alarms = serving(tmp_path, run).ask("GET", "/api/runs/monday").json()["alarms"]
    assert alarms == [
        {"step": 60, "since": 55, "kind": "loss", "because": because, "done": "save: saved step 62"},
        {"step": 80, "since": 80, "kind": "stop", "because": "asked to", "done": "stopped"},
    ]


@pytest.mark.parametrize(
    "damage",
    ["\n", "no JSON\n", "[" * 5000 + "\n", '{"event": 3}\n', '{"event": "train", "step": true}\n', "[]\n", '"a"\n'],
)
def test_a_damaged_line_is_counted_and_the_rest_is_told(tmp_path: Path, run: Path, damage: str):
    append(run, damage + line(110))
    view = serving(tmp_path, run).ask("GET", "/api/runs/monday").json()
    assert (view["damaged"], view["summary"]["step"]) == (1, 110)


def test_numbers_that_are_none_are_no_points(tmp_path: Path, run: Path):
    append(run, line(110, logloss=math.nan, samples_per_s=math.inf, step_s="1", data_s=True, forward_s=None))
    view = serving(tmp_path, run).ask("GET", "/api/runs/monday").json()
    assert all(points["points"][-1][0] == 100 for points in view["curves"] if points["name"] != "train backward_s")


def test_a_log_that_goes_on_from_a_checkpoint_is_read_anew(tmp_path: Path, run: Path):
    client = serving(tmp_path, run)
    assert client.ask("GET", "/api/runs/monday").json()["summary"]["step"] == 100
    (run / "new").write_text(line(10) + line(20))  # as files are replaced
    (run / "new").rename(run / "log.jsonl")
    view = client.ask("GET", "/api/runs/monday").json()
    assert view["summary"]["step"] == 20
    assert all(len(each["points"]) == 2 for each in view["curves"])


def test_a_look_reads_a_bounded_piece_of_a_log(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_log, "BLOCK", 1000)
    runs = RunFolders((str(run),), None)
    looks = 1
    while runs.view("monday").more:
        looks += 1
    assert looks > 1
    assert runs.view("monday").summary.step == 100
    curve = ThinnedCurve()
    for step in range(10_001):
        curve.add(step, 1.0)
    assert len(curve.points) <= run_log.MOST_POINTS + 1
    assert (curve.points[0], curve.points[-1]) == ((0, 1.0), (10_000, 1.0))
    assert [step for step, _ in curve.points] == sorted({step for step, _ in curve.points})


def test_runs_inside_the_folder_of_plans_are_shown_and_twins_are_told_apart(tmp_path: Path, run: Path):
    plans = tmp_path / "plans"
    (plans / "monday").mkdir(parents=True)
    for name in ("run.json", "log.jsonl", "plan.json"):
        (plans / "monday" / name).write_bytes((run / name).read_bytes())
    (plans / "no run").mkdir()
    client = serving(tmp_path, run, folder=plans)
    found = client.ask("GET", "/api/kept").json()
    assert [each["id"] for each in found["runs"]] == ["monday", "monday_2"]
    assert found["plans"] == []
    assert client.ask("GET", "/api/runs/tuesday").status_code == 404
    (run / "plan.json").write_text("{")
    view = client.ask("GET", "/api/runs/monday").json()
    assert (view["plan"], "plan.json" in view["trouble"]) == (None, True)


def test_a_look_writes_nothing(tmp_path: Path, run: Path):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.iterdir()}
    serving(tmp_path, run).ask("GET", "/api/runs/monday")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.iterdir()} == before


# --- sweeps ---------------------------------------------------------------------------------------------------------


def test_a_sweep_is_opened_and_its_knee_is_told_in_the_words_of_the_terminal(client: Client):
    tables = recsmith.sample_workload(12, 0, max_bytes=2**28)
    found = sweep(tables, devices=[2, 4], device=["h100"], batch_sizes=[512], planner="size_greedy")
    opened = client.upload(dump_json(sweep_to_raw(found)), "sweep.json").json()
    assert opened["kind"] == "sweep"
    view = client.ask("GET", f"/api/sweeps/{opened['sweep']['id']}").json()
    assert [each["devices"] for each in view["points"]] == [2, 4]
    assert view["points"][0]["total_s"] == found.points[0].total_s
    assert view["knees"] == [knee_words(each, found.fixed) for each in found.knees]
    assert client.ask("GET", "/api/kept").json()["sweeps"][0]["said"] == view["knees"][0]
    assert client.upload('{"schema": "recsmith/sweep/1", "points": 3}', "sweep.json").status_code == 422


# --- an address that only shows -------------------------------------------------------------------------------------


def test_who_only_reads_sees_all_and_changes_nothing(tmp_path: Path, run: Path, plan_text: str):
    plans = tmp_path / "plans"
    plans.mkdir()
    (plans / "mine.json").write_text(plan_text)
    client = serving(tmp_path, run, folder=plans)
    reads = {"authorization": f"Bearer {READER}"}
    assert client.bare("GET", "/api/choices", headers=reads).json()["read_only"] is True
    assert client.ask("GET", "/api/choices").json()["read_only"] is False
    for path in ("/api/kept", "/api/plans/mine", "/api/plans/mine/file", "/api/plans/mine/report", "/api/runs/monday"):
        assert client.bare("GET", path, headers=reads).status_code == 200, path
    before = sorted((path.name, path.read_bytes()) for path in plans.iterdir())
    changing = [each for each in OPERATIONS if each.method != "GET"]
    refused = {
        (each.method, each.path): client.bare(each.method, each.path.replace("{id}", "mine"), headers=reads, json={})
        for each in changing
    }
    harmless = refused.pop(("POST", "/api/plans/{id}/price"))
    assert harmless.status_code == 200
    assert len(refused) == len(changing) - 1 > 10
    for (method, path), answer in refused.items():
        assert answer.status_code == 403, (method, path)
        assert answer.json()["error"].startswith("this address only shows, and changes nothing")
    assert sorted((path.name, path.read_bytes()) for path in plans.iterdir()) == before


def test_its_cookie_reads_alone_too_and_no_token_reads_by_being_empty(tmp_path: Path):
    client = serving(tmp_path, folder=tmp_path)
    opened = client.bare("GET", f"/?token={READER}")
    assert opened.status_code == 303
    cookie = {"cookie": opened.headers["set-cookie"].partition(";")[0], "origin": "http://127.0.0.1:8000"}
    assert client.bare("GET", "/api/choices", headers=cookie).json()["read_only"] is True
    assert client.bare("POST", "/api/samples", headers=cookie, json={"tables": 3, "seed": 0}).status_code == 403
    writer = client.bare("GET", f"/?token={TOKEN}", headers=cookie)  # the same browser, by the other address
    assert writer.headers["set-cookie"] != opened.headers["set-cookie"]
    server = make_server(Settings(token=TOKEN))
    without = Client(server, make_app(server))
    assert without.bare("GET", "/api/kept", headers={"authorization": "Bearer "}).status_code == 401
    assert without.bare("GET", "/?token=").status_code == 401
