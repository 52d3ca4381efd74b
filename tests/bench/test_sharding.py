"""A run that is ended goes on where it was, and ends as one that was not; tables say what was measured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.bench.gain_tables import references
from recsmith.bench.plans import Attempt, attempt, check_planner, default_model
from recsmith.bench.run_store import BenchSettings, load_settings
from recsmith.bench.sharding import BenchProgress, BenchResults, bench_sharding, device_of
from recsmith.bench.tasks import TaskRow, draw_tasks
from recsmith.errors import CorruptFile, MissingExtra, UsageError
from recsmith.reports.bench_sharding import bench_lines, bench_to_raw

SETTINGS = BenchSettings(
    hardware="simulated:h100?noise=0.03", cost_model="analytic", rows=("4x128", "4x64"), tasks=1,
    planners=("random", "cost_greedy", "size_greedy@torchrec"), visits=2, seed=2026, global_batch=65_536,
)  # fmt: skip
TASK = draw_tasks(TaskRow(devices=4, max_dim=64), 1, 2026, "h100", 65_536).tasks[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BenchResults]:
    path = tmp_path_factory.mktemp("bench") / "new"
    return path, bench_sharding(SETTINGS, path)


def results(outcome: BenchResults) -> tuple[Any, ...]:
    """All that does not depend on how long things took."""
    attempts = {key: replace(each, plan_s=0.0) for key, each in outcome.attempts.items()}
    kernels = {key: {word: k.tolist() for word, k in each.kernels.items()} for key, each in outcome.measured.items()}
    comm = {key: {word: c.tolist() for word, c in each.comm.items()} for key, each in outcome.measured.items()}
    return outcome.drawn, attempts, kernels, comm, outcome.complete


def test_every_plan_of_every_task_is_measured(whole: tuple[Path, BenchResults]):
    _, outcome = whole
    assert outcome.complete
    assert len(outcome.attempts) == 2 * 3
    assert {row.row for row in outcome.drawn} == {TaskRow(devices=4, max_dim=64), TaskRow(devices=4, max_dim=128)}
    assert set(outcome.measured) == {(row.tasks[0].name, visit) for row in outcome.drawn for visit in range(2)}
    for visit in outcome.measured.values():
        assert set(visit.kernels) == set(SETTINGS.planners)
        for word in SETTINGS.planners:
            assert visit.kernels[word].shape == visit.comm[word].shape == (4, 2)
            assert (visit.kernels[word].sum(axis=-1) > 0).any()


@pytest.mark.parametrize("after", [0, 4, 7, 9])
def test_a_run_that_is_ended_goes_on_and_ends_alike(whole: tuple[Path, BenchResults], tmp_path: Path, after: int):
    heard: list[BenchProgress] = []

    def stop(progress: BenchProgress) -> None:
        heard.append(progress)
        if len(heard) > after:
            raise KeyboardInterrupt

    first = bench_sharding(SETTINGS, tmp_path, on_progress=stop)
    assert not first.complete
    assert len(first.attempts) == min(after, 6)
    assert len(first.measured) == max(0, after - 6)
    assert "goes on" in bench_lines(first)[-1]
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"task": "4x4-1", "att')  # killed while it wrote
    assert results(bench_sharding(SETTINGS, tmp_path)) == results(whole[1])


def test_a_run_that_is_done_measures_nothing_again(whole: tuple[Path, BenchResults]):
    path, outcome = whole
    before = (path / "journal.jsonl").read_text()
    assert results(bench_sharding(SETTINGS, path)) == results(outcome)
    assert (path / "journal.jsonl").read_text() == before


def test_visits_can_be_added(whole: tuple[Path, BenchResults], tmp_path: Path):
    first = bench_sharding(replace(SETTINGS, visits=1), tmp_path)
    assert {visit for _, visit in first.measured} == {0}
    assert results(bench_sharding(SETTINGS, tmp_path)) == results(whole[1])


def test_plans_are_made_where_the_gpu_is_not(tmp_path: Path):
    """The device's own model does not ship, or does; either way the tasks are those of its clusters."""
    settings = replace(SETTINGS, hardware="cuda:h100", planners=("size_greedy",), rows=("4x64",))
    outcome = bench_sharding(settings, tmp_path, plan_only=True)
    assert not outcome.complete
    assert [each.planner for each in outcome.attempts.values()] == ["size_greedy"]
    assert outcome.drawn[0].tasks == (TASK,)
    assert not outcome.measured
    assert "0 of 2 visits measured" in "\n".join(bench_lines(outcome))
    with pytest.raises((UsageError, MissingExtra)):
        bench_sharding(settings, tmp_path)  # no such GPU here


def test_a_budget_ends_a_run(tmp_path: Path):
    outcome = bench_sharding(SETTINGS, tmp_path, budget_s=1e-9)
    assert not outcome.complete
    assert not outcome.attempts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed 2026 instead of 1"),
        ({"hardware": "simulated:h100"}, r"hardware simulated:h100\?noise=0.03 instead of simulated:h100"),
        ({"visits": 4, "rows": ("4x64",)}, "rows 4x64,4x128 instead of 4x64 and visits 2 instead of 4"),
        ({"visits": 1}, "visits 2 instead of 1"),
        ({"planners": ("cost_greedy",)}, "planners random,cost_greedy,size_greedy@torchrec instead of cost_greedy"),
        ({"cost_model": "torchrec"}, "cost_model analytic instead of torchrec"),
    ],
)
def test_a_folder_of_other_settings_is_refused(whole: tuple[Path, BenchResults], change: dict[str, Any], words: str):
    path, _ = whole
    with pytest.raises(UsageError, match=f"holds a run with {words}; give another folder"):
        bench_sharding(replace(SETTINGS, **change), path)
    assert load_settings(path) == SETTINGS


def test_folders_that_are_something_else_are_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'notes.txt' and no settings.json"):
        bench_sharding(SETTINGS, tmp_path)
    with pytest.raises(UsageError, match="cannot write to"):
        bench_sharding(SETTINGS, tmp_path / "notes.txt")


def test_a_damaged_line_is_named(whole: tuple[Path, BenchResults], tmp_path: Path):
    path, _ = whole
    (tmp_path / "settings.json").write_text((path / "settings.json").read_text())
    for line in ("{]", '{"task": "4x64-1"}', '{"measured": {"task": 1}}', '{"task": "4x64-1", "attempt": {}}'):
        (tmp_path / "journal.jsonl").write_text(line + "\n")
        with pytest.raises(CorruptFile, match="journal"):
            bench_sharding(SETTINGS, tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"rows": ("4x5",)}, {"rows": ()}, {"tasks": 0}, {"visits": 0}, {"seed": -1}, {"planners": ()},
     {"planners": ("auto", "auto")}, {"global_batch": 0}],
)  # fmt: skip
def test_settings_are_checked(change: dict[str, Any]):
    with pytest.raises(UsageError):
        replace(SETTINGS, **change)


def test_a_model_of_another_device_is_refused_before_a_folder_is_made(tmp_path: Path):
    with pytest.raises(UsageError, match="was measured on cpu"):
        bench_sharding(replace(SETTINGS, cost_model="neural:cpu"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hardware", ["gpu", "simulated", "simulated:", "cuda", "cuda:", "cuda:h20", "simulated:tpu"])
def test_only_hardware_that_can_be_measured_is_taken(hardware: str):
    with pytest.raises(UsageError):
        device_of(hardware)


def test_the_device_is_the_hardwares():
    assert device_of("simulated:a100-80?noise=0.1") == "a100-80"
    assert device_of("cuda:h200") == "h200"


@pytest.mark.parametrize("word", ["aut", "auto@neurl", "torchrec@analytic", "auto@neural:none.safetensors"])
def test_unknown_planners_and_cost_models_are_refused(word: str):
    with pytest.raises(UsageError):
        check_planner(word, "analytic", TASK)


def test_a_planner_may_have_a_cost_model_of_its_own(whole: tuple[Path, BenchResults]):
    check_planner("auto@torchrec", "analytic", TASK)
    own, other = (attempt(word, TASK, "analytic", 0) for word in ("cost_greedy", "cost_greedy@torchrec"))
    assert own.placements
    assert other.placements
    assert own.placements == whole[1].attempts[TASK.name, "cost_greedy"].placements


def test_the_learned_model_of_the_hardware_is_the_default():
    assert default_model("cpu") == "neural:cpu"
    assert default_model("simulated:v100-32?noise=0.1") == default_model("cuda:v100-32") == "analytic"


def test_ctrl_c_within_a_search_ends_the_run_and_keeps_no_half_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from recsmith.planners.neuroshard.planner import NeuroShard

    search = NeuroShard.plan

    def pressed(self: NeuroShard, *words: Any, **named: Any) -> Any:
        return search(self, *words, **named, on_improve=lambda _: True)  # as if it were pressed at the first plan

    monkeypatch.setattr(NeuroShard, "plan", pressed)
    outcome = bench_sharding(replace(SETTINGS, planners=("neuroshard",), rows=("4x64",)), tmp_path)
    assert (outcome.attempts, outcome.complete) == ({}, False)


# --- what a run says ------------------------------------------------------------------------------------------------


def test_the_table_has_a_line_for_every_row_and_what_they_come_to(whole: tuple[Path, BenchResults]):
    lines = bench_lines(whole[1])
    text = "\n".join(lines)
    assert "1 a row, 4 of 4 visits measured; 65,536 samples of all devices; seed 2026" in text
    assert [line.split()[0] for line in lines if line[:3] in ("4x6", "4x1", "all")] == ["4x64", "4x128", "all"]
    assert "random: significantly worse than: " in text
    assert "kernels are simulated" in text
    assert "rows of fewer than 5 tasks tell nothing apart" in text
    on_cpu = replace(whole[1], settings=replace(SETTINGS, hardware="cpu"))
    assert "kernels are measured" in "\n".join(bench_lines(on_cpu))


def test_planners_stand_beside_auto_and_neuroshard_where_they_take_part(whole: tuple[Path, BenchResults]):
    words = ("random", "neuroshard", "auto@torchrec", "auto")
    changed = replace(whole[1], settings=replace(SETTINGS, planners=words))
    assert references(changed) == ("auto@torchrec", "auto", "neuroshard")
    assert references(whole[1]) == ("random",)


def test_the_data_holds_the_figures(whole: tuple[Path, BenchResults]):
    raw = bench_to_raw(whole[1])
    (table,) = raw["tables"]
    assert (table["reference"], len(table["fastest"]), len(table["median"])) == ("random", 3, 3)
    for row in (row for way in ("fastest", "median", "kernels") for row in table[way]):
        for gain in row["gains"]:
            interval = gain["interval"]
            assert interval["low"] <= interval["value"] <= interval["high"]
    ratios: list[float] = []
    for task in (row.tasks[0].name for row in whole[1].drawn):
        visits = [whole[1].measured[task, visit].kernels for visit in range(2)]
        step = {word: np.median([each[word] for each in visits], axis=0).sum(axis=-1).max() for word in visits[0]}
        ratios.append(step["cost_greedy"] / step["random"] - 1)
    assert table["kernels"][2]["gains"][0]["interval"]["value"] == pytest.approx(np.mean(ratios))


def test_failures_are_counted_and_left_out(whole: tuple[Path, BenchResults]):
    _, outcome = whole
    name = outcome.drawn[0].tasks[0].name
    lost = Attempt(planner="cost_greedy", error="found no room", plan_s=0.1)
    measured = {
        key: replace(each, kernels={w: k for w, k in each.kernels.items() if (key[0], w) != (name, "cost_greedy")})
        for key, each in outcome.measured.items()
    }
    changed = replace(outcome, attempts=outcome.attempts | {(name, "cost_greedy"): lost}, measured=measured)
    text = "\n".join(bench_lines(changed))
    assert "cost_greedy: no plan of 1 tasks, left out of its means: found no room" in text
    assert "% (1)" in text
    assert bench_to_raw(changed)["without_plan"][0]["task"] == name
