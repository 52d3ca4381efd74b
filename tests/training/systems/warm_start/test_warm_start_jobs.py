"""Jobs that begin with what another one learned: the same bits as one job of both days, under any plan."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.systems import is_here, needs_systems, of_system
from training.test_jobs import BATCH, DIM, FEATURES, STEPS, a_run, data, losses, plan_for_two

import recsmith.training
from recsmith.errors import RecSmithError, UsageError
from recsmith.training import Run, RunData, RunModel, RunOptimizers, RunTable, SparseOptimizer, train
from recsmith.training.launch.dry_run import described

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
WATCH: Any = {"every": 1, "sketch_every": 0} if is_here("watch") and find_spec("river") else "none"
StartFrom: Any = recsmith.training.StartFrom
DAY = STEPS * BATCH
WEIGHTS = "model/weights.safetensors"


def of_days(output: Path, first: int, days: int, **words: Any) -> Run:
    made = RunData(train=data(first * DAY, days * DAY), test=data(20_000, 101), global_batch_size=BATCH, shuffle=False)
    return a_run(output, **{"data": made, "steps": None, "ranks": 2, **words})


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The first day, on two ranks, each table sharded by another type."""
    folder = tmp_path_factory.mktemp("monday")
    run = of_days(folder / "out", 0, 1, plan=plan_for_two(folder), watch=WATCH)
    train(run)
    return run


@pytest.fixture(scope="module")
def both(monday: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both days in one job."""
    run = of_days(tmp_path_factory.mktemp("both") / "out", 0, 2, plan=monday.plan)
    train(run)
    return run


def weights(run: Run) -> bytes:
    return Path(run.output, WEIGHTS).read_bytes()


def loaded(run: Run) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(str(Path(run.output, WEIGHTS)))


def test_two_days_in_two_jobs_end_with_the_bits_of_one(monday: Run, both: Run, tmp_path: Path):
    tuesday = of_days(tmp_path / "out", 1, 1, plan=monday.plan, start_from=monday.output, watch=WATCH)
    if WATCH != "none":
        known = f"watch: a look every 1 steps; what is usual is known from {STEPS - 1} looks of '{monday.output}'"
        assert known in described(tuesday).notes
    train(tuesday)
    assert weights(tuesday) == weights(both)
    if WATCH != "none":
        newest = sorted((tmp_path / "out/checkpoints").iterdir())[-1]
        kept = json.loads((newest / "progress.json").read_text())["watchers"]["anomalies"]
        assert kept["signals"]["_looks"] == 2 * (STEPS - 1), "the watch of Tuesday went on from Monday's"
    said = [each.said for each in described(tuesday).systems if each.key == "start_from"]
    assert said == []  # it goes on from its own checkpoint now
    again = tmp_path / "again"
    shutil.copytree(tuesday.output, again)
    shutil.rmtree(again / "model")
    shutil.rmtree(sorted((again / "checkpoints").iterdir())[-1])
    train(tuesday, settings=(f"output={again}",))
    assert (again / WEIGHTS).read_bytes() == weights(both)


def test_a_day_of_other_size_is_told_of(monday: Run, tmp_path: Path):
    told = {DAY // 4: "0.25", DAY: None, 2 * DAY: "2"}
    for samples, times in told.items():
        made = RunData(train=data(DAY, samples), global_batch_size=BATCH, shuffle=False)
        run = a_run(tmp_path / "out", data=made, steps=None, ranks=2, plan=monday.plan, start_from=monday.output)
        said = [each.said for each in described(run).systems if each.key == "start_from" and "data.train" in each.said]
        line = f"data.train has {samples:,} samples, {times} times the {DAY:,} of '{monday.output}'; see whether"
        assert [each[: len(line)] for each in said] == ([] if times is None else [line])


def test_a_day_that_is_given_twice_is_told_of(monday: Run, tmp_path: Path):
    for day in (0, 1):
        run = of_days(tmp_path / "out", day, 1, plan=monday.plan, start_from=monday.output)
        said = "\n".join(each.said for each in described(run).systems if each.key == "start_from")
        assert (f"data.train is what '{monday.output}' was trained on; give the next data" in said) == (day == 0)


def test_a_day_that_has_not_ended_is_told_of(monday: Run, tmp_path: Path):
    def said_of(path: Path) -> list[str]:
        run = of_days(tmp_path / "out", 1, 1, plan=monday.plan, start_from=str(path))
        return [each.said for each in described(run).systems if each.key == "start_from" and "not ended" in each.said]

    stopped = tmp_path / "stopped"
    shutil.copytree(monday.output, stopped)
    shutil.rmtree(stopped / "model")
    told = f"the run of '{stopped}' has not ended, and its own command trains what is left of it; what its"
    assert [each[: len(told)] for each in said_of(stopped)] == [told]
    first = sorted(Path(monday.output, "checkpoints").iterdir())[0]
    assert said_of(Path(monday.output)) == said_of(first) == [], "an earlier checkpoint of a run that is complete"


def test_under_another_plan_and_number_of_ranks_losses_are_the_same(monday: Run, both: Run, tmp_path: Path):
    tuesday = of_days(tmp_path / "out", 1, 1, ranks=1, start_from=StartFrom(path=monday.output))
    train(tuesday)
    assert losses(Path(tuesday.output)) == pytest.approx(losses(Path(both.output))[STEPS:], rel=1e-6)


def test_an_exported_model_gives_weights_alone(monday: Run, tmp_path: Path):
    shutil.copytree(Path(monday.output, "model"), tmp_path / "model")
    run = of_days(tmp_path / "out", 1, 1, plan=monday.plan, start_from=str(tmp_path / "model"))
    without = of_days(tmp_path / "other", 1, 1, plan=monday.plan,
                      start_from=StartFrom(path=monday.output, optimizer=False))  # fmt: skip
    said = [each.said for made in (run, without) for each in described(made).systems if each.key == "start_from"]
    assert [each.rpartition("; ")[2] for each in said] == ["optimizers begin anew"] * 2
    assert all(f"after step {STEPS:,}" in each for each in said)
    train(run)
    train(without)
    assert weights(run) == weights(without)


def test_a_new_feature_and_a_larger_table_keep_what_was_learned(monday: Run, tmp_path: Path):
    """With rates of zero, weights are those of the day before, and only new rows, tables and inputs are others."""
    import torch

    wider = [{"name": "new", "num_embeddings": 7}, *({**each, "num_embeddings": each["num_embeddings"] + 5 * (
        each["name"] in "bd")} for each in FEATURES)]  # fmt: skip
    generated = {**data(DAY, DAY), "features": wider}
    rested = RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=1e-30))
    run = of_days(
        tmp_path / "out", 1, 1, start_from=monday.output, optimizers=rested, steps=2,
        data=RunData(train=generated, global_batch_size=BATCH, shuffle=False),
    )  # fmt: skip
    said = [each.said for each in described(run).systems if each.key == "start_from"]
    assert said[1:4] == [
        "table b grows from 503 to 508 rows; the new ones are drawn",
        "table d grows from 64 to 69 rows; the new ones are drawn",
        "table new is new, and drawn",
    ]
    train(run)
    before, after = loaded(monday), loaded(run)
    tables = [name for name in before if "embedding_bags" in name]
    assert len(tables) == len(FEATURES)
    for name in tables:
        known = len(before[name])
        assert torch.equal(after[name][:known], before[name]), name
        assert after[name][known:].abs().sum() > 0 or len(after[name]) == known


@needs_systems("towers")
def test_tables_come_along_into_towers_and_out_of_them_with_their_state(monday: Run, both: Run, tmp_path: Path):
    """Towers of ratio 1 train what plain tables train, one module further down."""
    import torch

    from recsmith.training.tables.protocol import table_of

    names = [each["name"] for each in FEATURES]
    towers = {"name": "towers", "ratio": 1, "towers": [names[:2], names[2:]]}
    model = replace(monday.model, table_module=towers)
    tuesday = of_days(tmp_path / "out", 1, 1, ranks=1, start_from=monday.output, model=model)
    said = " ".join(each.said for each in described(tuesday).systems if each.key == "start_from")
    assert "with the state of its optimizers" in said
    assert "come from tables in another module, which other layers read" in said
    train(tuesday)
    assert losses(Path(tuesday.output)) == pytest.approx(losses(Path(both.output))[STEPS:], rel=1e-6)
    shutil.copytree(Path(tuesday.output, "model"), tmp_path / "model")
    rested = RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=1e-30))
    for number, path in enumerate((tuesday.output, str(tmp_path / "model"))):
        plain = of_days(tmp_path / f"plain{number}", 1, 1, ranks=1, start_from=path, optimizers=rested, steps=1)
        said = " ".join(each.said for each in described(plain).systems if each.key == "start_from")
        assert "another module (model.table_module: towers there), which other layers read" in said
        train(plain)
        before, after = ({table_of(name): each for name, each in loaded(run).items()} for run in (tuesday, plain))
        assert all(torch.equal(before[name], after[name]) for name in names)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"start_from": "nowhere"}, "'nowhere' holds no checkpoint and no trained model"),
        ({"model": RunModel(embedding_dim=16, bottom=(8,), top=(8,))}, "has 8 columns in .* and 16 here"),
        *of_system("arrays", "settings", lambda settings: [
            ({"array": settings.RunArray(members={"a": (), "b": ("seed=1",)}, together="always")}, "start_from"),
        ]),
        (
            {"model": RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), tables=(RunTable(name="other", features=("a",),
             num_embeddings=100),))}, "none of this model's tables: it has a, b, c, d, and the model has other",
        ),
    ],
)  # fmt: skip
def test_what_cannot_come_along_is_refused_before_anything_is_written(
    words: dict[str, Any], said: str, monday: Run, tmp_path: Path
):
    with pytest.raises(RecSmithError, match=said):
        described(of_days(tmp_path / "out", 1, 1, **{"start_from": monday.output, **words}))
    assert not (tmp_path / "out").exists()


def test_a_run_does_not_begin_with_itself(tmp_path: Path):
    with pytest.raises(UsageError, match="the run's own output; leave start_from out to go on"):
        of_days(tmp_path / "out", 0, 1, start_from=str(tmp_path / "out"))


@needs_systems("halves")
def test_state_of_copies_begins_anew_where_the_run_allows_no_copies(tmp_path: Path):
    of_rows = {"optimizers": RunOptimizers(sparse=SparseOptimizer(name="rowwise_adagrad")), "steps": 2}
    monday = of_days(tmp_path / "monday", 0, 1, plan=plan_for_two(tmp_path), **of_rows)
    train(monday)
    tuesday = of_days(tmp_path / "tuesday", 1, 1, start_from=monday.output, rows="split", **of_rows)
    said = " ".join(each.said for each in described(tuesday).systems if each.key == "start_from")
    assert "the state of table c begins anew, for it changes from data_parallel to table_wise" in said
    assert train(tuesday)["complete"]
