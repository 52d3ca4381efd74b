"""Arms side by side: which pays is judged by losses of the next period, and a run on `auto` learns by it."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from jobs.test_log_lines import write
from training.systems.periods.test_period_jobs import a_run, data, events, of_periods

from recsmith.errors import CorruptFile, UsageError
from recsmith.reports.online import online_lines, online_picture, online_to_raw
from recsmith.training import RunData, RunMetrics
from recsmith.training.results.arms import PeriodLoss, Replayed, chosen, judged, rows_of
from recsmith.training.systems.periods.arms import ARMS, _measured, first_judged, read_arms
from recsmith.training.systems.periods.settings import Periods

needs_torchrec = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]


def test_a_benchmark_refuses_a_period_that_is_none(tmp_path: Path) -> None:
    class Made:
        output = str(tmp_path)

    write(tmp_path, json.dumps({"event": "period", "period": "x", "ahead": 1, "logloss": 0.5, "ne": None}).encode())
    with pytest.raises(CorruptFile, match='period is "x"'):
        _measured(Made(), "arm", 0)  # type: ignore[arg-type]


def replayed(arm: str, seed: int, losses: list[float], cost: float) -> Replayed:
    found = [PeriodLoss(period=at, ahead=1, logloss=loss, ne=2 * loss) for at, loss in enumerate(losses)]
    found += [PeriodLoss(period=at, ahead=2, logloss=loss, ne=2 * loss + 0.1) for at, loss in enumerate(losses) if at]
    return Replayed(arm=arm, seed=seed, losses=tuple(found), cpu_s=cost)


def arms(difference: float, noise: float, seeds: int = 3, periods: int = 12) -> list[Replayed]:
    """Incremental, and a dearer arm whose losses are lower by a difference that is blurred from seed to seed."""
    found: list[Replayed] = []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        plain = 0.5 + 0.02 * draw.normal(size=periods)
        other = plain - difference + noise * draw.normal() + 0.1 * noise * draw.normal(size=periods)
        found += [replayed("incremental", seed, plain.tolist(), 1.0), replayed("dear", seed, other.tolist(), 3.0)]
    return found


def test_the_cheapest_arm_that_is_not_worse_is_chosen() -> None:
    found = judged(arms(0.02, 0.001), 2)
    assert found.chosen == "dear"
    assert found.because.startswith("dear has the least loss of the next period, 0.4")
    blurred = judged(arms(0.002, 0.02), 2)
    assert blurred.chosen == "incremental"
    assert judged(arms(-0.02, 0.001), 2).chosen == "incremental"
    best = min(blurred.rows, key=lambda row: row.logloss)
    assert (best.worse, best.worse_within) == (0, 0)
    assert [row.cost for row in blurred.rows] == [1, 3]
    one = rows_of([each for each in arms(0.02, 0.001) if not each.seed], range(2, 12))
    assert one[0].worse == pytest.approx(0.02, abs=0.003)
    assert one[0].worse_within is not None, "of one seed the interval is over periods"
    with pytest.raises(UsageError, match="periods 50 to 59 were not all scored by all arms and seeds"):
        rows_of(arms(0, 0.1), range(50, 60))


def test_a_better_forecast_with_larger_losses_is_not_chosen() -> None:
    """A trial: future gradient forecast with 0.378 of the plain gradient's 1.087 as its error, and its loss was 0.4836
    beside 0.4643. No forecast error enters the choice, and none of what a log says of weights."""
    losses = {"incremental": 0.4643, "window": 0.4746, "future_gradient": 0.4836}
    found = [
        replayed(name, seed, [loss + 0.001 * (seed - 1)] * 12, cost)
        for seed in range(3)
        for (name, loss), cost in zip(losses.items(), (1, 3, 2), strict=True)
    ]
    assert judged(found, 2).chosen == "incremental"
    assert not {"error", "forecast", "weights"} & set(PeriodLoss.__dataclass_fields__ | Replayed.__dataclass_fields__)


def test_arms_are_read_as_people_write_them() -> None:
    assert read_arms(None) == ARMS
    assert read_arms(["incremental", "window=7", "future_gradient"]) == {
        "incremental": "incremental", "window=7": {"name": "window", "periods": 7},
        "future_gradient": {"name": "future_gradient", "periods": 3},
    }  # fmt: skip
    assert first_judged(ARMS) == 4
    assert first_judged(read_arms(["window=7"])) == 7
    for texts, said in (
        (["windows"], "no update is called 'windows'; did you mean 'window'"),
        (["window=x"], "--arms has 'window=x'; write name=K"),
        (["window", "window"], "--arms has 'window' twice"),
        (["auto"], "--arms has auto, which chooses among the others"),
    ):
        with pytest.raises(UsageError, match=said):
            read_arms(texts)


def test_reports_say_what_was_found() -> None:
    found = judged(arms(0.02, 0.001), 2)
    lines = online_lines(found)
    assert re.fullmatch(r" +NE of the next +log loss +above the best +cost +NE 2 ahead", lines[0])
    assert re.fullmatch(
        r"incremental +[01]\.\d{4} ± 0\.0\d{3} +0\.\d{5} +\+0\.0\d{4} ± 0\.00\d{3} +1\.00 +1\.\d{4}", lines[1]
    )
    assert lines[-2] == "pays: dear"
    picture = online_picture(found)
    assert picture.count("<polyline") == 4
    assert picture.count("<circle") == 2 * 11 + 2 * 2
    assert found.rows[0].late["2"] == pytest.approx(found.rows[0].late["1"] + 0.1), "of the same periods"
    assert "NE by how late a model scores" in picture
    raw = json.loads(json.dumps(online_to_raw(found)))
    assert (raw["schema"], raw["chosen"], len(raw["replays"])) == ("recsmith/bench-online-result/1", "dear", 6)
    assert chosen(found.rows)[0] == found.chosen


class TestJobs:
    """Real replays of a small stream."""

    pytestmark = needs_torchrec

    def test_a_replay_learns_each_arm_and_goes_on_in_its_folder(self, tmp_path: Path) -> None:
        from recsmith.training.systems.periods.replay import bench_online

        said: list[str] = []
        run = a_run(tmp_path / "unused", metrics=RunMetrics(every=1000))
        compared = read_arms(["incremental", "window=2"])
        found = bench_online(run, tmp_path / "bench", arms=compared, seeds=[0], on_progress=said.append)
        assert said == ["incremental, seed 0", "window=2, seed 0"]
        assert [row.late for row in found.rows] == [{}, {}], "four periods: none is scored by models of all ages"
        assert "NE by how late a model scores: too few periods" in online_picture(found)
        assert found.rows[1].cost > 0
        losses = of_periods(tmp_path / "bench" / "incremental-0")
        assert {loss.period: loss.logloss for loss in found.replays[0].losses if loss.ahead == 1} == {
            period: loss for (period, ahead), loss in losses.items() if ahead == 1
        }
        again = bench_online(run, tmp_path / "bench", arms=compared, seeds=[0], on_progress=said.append)
        assert (again, len(said)) == (found, 2)
        with pytest.raises(CorruptFile, match=r"was measured with other settings; give another folder"):
            bench_online(run, tmp_path / "bench", settings=("steps=3",), arms=compared, seeds=[0])
        with pytest.raises(UsageError, match=r"arms are judged from period 9 on, and the last of the 4 periods is 3"):
            bench_online(run, tmp_path / "bench", arms=compared, seeds=[0], first=9)
        with pytest.raises(UsageError, match=r"the run has no data.periods"):
            bench_online(run, tmp_path / "bench", settings=("data.periods=null",))
        with pytest.raises(UsageError, match=r"update needs 9 periods, and the data has 4"):
            bench_online(run, tmp_path / "bench", arms=read_arms(["window=9"]))

    def test_auto_trains_by_what_a_replay_of_the_first_periods_chose(self, tmp_path: Path) -> None:
        from recsmith.training import train

        update = {"name": "auto", "periods": 2, "replayed": 8}
        stream = RunData(train=data(0, 1000), batch_size=30, periods=Periods(samples=90, update=update))
        run = a_run(tmp_path / "out", data=stream)
        said: list[str] = []
        result = train(run, on_progress=lambda message: said.append(message.get("note", "")))
        decision = json.loads((tmp_path / "out/update.json").read_text())
        assert decision["arm"] in ARMS
        assert any(note.startswith(f"data.periods.update: auto takes {decision['arm']}: ") for note in said)
        for arm in ARMS:
            periods = {line["period"] for line in events(tmp_path / "out/replay" / f"{arm}-0", "period")}
            assert periods == set(range(8)), "no more than the first ones"
        assert result["complete"]
        trained = events(run.output, "trained")
        assert len(trained) == 11
        assert json.loads((tmp_path / "out/run.json").read_text())["data"]["periods"]["update"] == decision["update"]
        kept = json.loads((tmp_path / "out/replay/incremental-0/measured.json").read_text())["measured"]["losses"]
        if decision["arm"] == "incremental":
            ours = of_periods(run.output)
            assert [ours[loss["period"], 1] for loss in kept] == [loss["logloss"] for loss in kept]
        train(run)
        assert json.loads((tmp_path / "out/update.json").read_text()) == decision

    def test_auto_needs_periods_to_judge_by(self) -> None:
        with pytest.raises(UsageError, match=r"replayed is 7 and periods 3; replay at least 8"):
            Periods(samples=10, update={"name": "auto", "replayed": 7}).mixed  # noqa: B018


def test_a_run_without_torchrec_can_still_be_described() -> None:
    assert Periods(samples=10, update="future_gradient").mixed == 3
    assert Periods(samples=10, update="auto").mixed == 3
    assert Periods(samples=10).mixed == 1
