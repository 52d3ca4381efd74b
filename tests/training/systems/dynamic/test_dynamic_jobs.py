"""Real jobs with raw ids: the bits of plain tables, of other ranks and of jobs that go on; what is served; refusals."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dynamic_table_jobs import BATCH, DIM, ROWS, RULES, a_plan, a_run, data
from support.systems import needs_systems

from recsmith._compiled import compiled
from recsmith.errors import UsageError
from recsmith.training import Run, RunData, RunModel, RunTable, evaluate, train
from recsmith.training.systems.dynamic import id_rows
from recsmith.training.systems.dynamic.settings import DynamicRule

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.skipif(compiled(id_rows.MODULE) is None, reason="needs the compiled code of dynamic tables"),
    pytest.mark.usefixtures("torchrec"),
]
Trained = tuple[Run, dict[str, Any]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    run = a_run(tmp_path_factory.mktemp("dynamic"))
    return run, train(run)


def tensors(folder: str | Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    files = sorted(Path(folder, "model").glob("*.safetensors"))
    return {name: array for file in files for name, array in load_file(file).items()}


def same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name
        assert array.dtype != np.float32 or np.isfinite(array).all(), name


def lines(folder: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]
    return [{key.removeprefix("dynamic_"): line[key] for key in line} for line in found if line["event"] == "train"]


def from_step_4(run: Run, again: Path) -> Path:
    """The folder of a job, whose newest checkpoint is that of step 4."""
    shutil.copytree(run.output, again)
    for step in (8, 12):
        shutil.rmtree(again / "checkpoints" / f"step-{step:08d}")
    shutil.rmtree(again / "model")
    return again / "checkpoints" / "step-00000004"


def test_a_job_says_what_became_of_ids(trained: Trained) -> None:
    run, result = trained
    said = lines(run.output)
    assert len(said) == 12
    assert said[-1]["rows"] == sum(ROWS[name] - 1 for name in "ab")
    assert 0.2 < said[-1]["served"] < 1.0
    assert sum(line["evicted"] for line in said) > 50
    assert result["test"]["samples"] == 50
    evicted = sum(line["evicted"] for line in said)
    brought = result["brought"]["model.dynamic"]
    assert brought.endswith(f" ids have one of {said[-1]['rows']:,}, and {evicted:,} were given anew")
    ids = tensors(run.output)
    for name in "ab":
        here = ids[name][ids[name] >= 0]
        assert ids[name][0] == -2  # the row of unknown ids
        assert len(set(here.tolist())) == len(here) == np.count_nonzero(ids[name] != -1) - 1
    assert said[-1]["ids"] == sum(np.count_nonzero(ids[name] >= 0) for name in "ab")


def test_a_job_that_goes_on_ends_with_the_same_bits(trained: Trained, tmp_path: Path) -> None:
    run, _ = trained
    again = tmp_path / "again"
    from_step_4(run, again)
    train(run, settings=(f"output={again}",))
    same_bits(tensors(again), tensors(run.output))


@pytest.mark.parametrize("ranks", [1, 3])
def test_other_ranks_give_ids_the_same_rows(trained: Trained, tmp_path: Path, ranks: int) -> None:
    """From a checkpoint of two ranks; of one rank, under a plan for which it is resharded first."""
    from recsmith.torchrec import reshard

    run, _ = trained
    again, plan = tmp_path / "again", a_plan(tmp_path, ranks, "rowwise_adagrad")
    saved = from_step_4(run, again)
    if ranks == 1:
        reshard(saved / "state", run.plan, plan, tmp_path / "state")
        shutil.rmtree(saved / "state")
        shutil.move(tmp_path / "state", saved / "state")
        shutil.copy(plan, saved / "plan.json")
    train(replace(run, output=str(again), plan=plan, ranks=ranks))
    ours, theirs = tensors(again), tensors(run.output)
    assert all(np.array_equal(ours[name], theirs[name]) for name in "ab")
    for name, array in theirs.items():  # sums over ranks have other last bits
        assert ours[name] == pytest.approx(array, rel=1e-3, abs=1e-5), name


def test_the_served_model_is_the_one_that_was_scored(trained: Trained) -> None:
    from recsmith.data import open_dataset, spec_from_raw
    from recsmith.training import load_model

    run, result = trained
    model = load_model(Path(run.output) / "model")
    dataset = open_dataset(spec_from_raw(data(50, BATCH * 12), "test"))
    batches = dataset.batches(rank=0, world_size=1, batch_size=50, seed=0, shuffle=False)
    batch = next(iter(batches))
    chances, labels = model.predict(batch)[:, 0], batch.labels[:, 0]
    loss = -np.mean(labels * np.log(chances) + (1 - labels) * np.log1p(-chances))
    assert result["test"]["logloss"] == pytest.approx(float(loss), rel=1e-5)
    assert evaluate(run.output, ranks=1).logloss == pytest.approx(float(loss), rel=1e-5)
    known = {name: int(ids[ids >= 0][0]) for name, ids in tensors(run.output).items() if name in ("a", "b")}
    unknown = 10**15
    dense = [[0.5, 0.5]]
    first = model({"a": [[unknown]], "b": [[known["b"]]], "c": [[1]]}, dense)
    assert first == model({"a": [[unknown + 1]], "b": [[known["b"]]], "c": [[1]]}, dense)
    assert first != model({"a": [[known["a"]]], "b": [[known["b"]]], "c": [[1]]}, dense)
    with pytest.raises(UsageError, match="id -3"):
        model({"a": [[-3]], "b": [[1]], "c": [[1]]}, dense)


def test_the_row_of_unknown_ids_is_row_0(trained: Trained) -> None:
    import torch

    from recsmith.training import load_model

    run, _ = trained
    model = load_model(Path(run.output) / "model")
    before = model({"a": [[10**15]], "b": [[10**15]], "c": [[1]]}, [[0.0, 0.0]])
    with torch.no_grad():
        for name, weight in model.task.named_parameters():
            if ".a.weight" in name or ".b.weight" in name:
                weight[1:] = 100.0
    assert model({"a": [[10**15]], "b": [[10**15]], "c": [[1]]}, [[0.0, 0.0]]) == before


def test_ids_that_fit_train_the_bits_of_a_plain_table(tmp_path: Path) -> None:
    """The plain run has the same rows by a list of ids, in the order in which they came."""
    rules = tuple(DynamicRule(tables=name, rows=ROWS[name]) for name in "ab")
    few = data(BATCH * 10, a=40, b=50)
    run = a_run(tmp_path / "raw", steps=10)
    run = replace(
        run, model=RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), dynamic=rules),
        data=RunData(train=few, global_batch_size=BATCH),
    )  # fmt: skip
    train(run)
    raw = tensors(run.output)
    assert all(np.count_nonzero(raw[name] >= 0) > 30 for name in "ab")
    orders = [
        {"op": "map_ids", "feature": name, "ids": [int(each) if each >= 0 else 10**9 + at
         for at, each in enumerate(raw[name])][1:], "unknown": "wrong"}
        for name in "ab"
    ]  # fmt: skip
    plain = replace(
        run, output=str(tmp_path / "plain"), model=replace(run.model, dynamic=()),
        data=RunData(train={**few, "transforms": orders}, global_batch_size=BATCH),
    )  # fmt: skip
    train(plain)
    expected = tensors(plain.output)
    same_bits({name.replace(".tables.", "."): array for name, array in raw.items() if name not in "ab"}, expected)


def test_histories_of_raw_ids_train_the_bits_of_plain_ones(tmp_path: Path) -> None:
    """A table that a history and its target share, whose rows are not pooled."""
    events = {"users": 60, "items": 150, "events": 20}
    train_on: dict[str, Any] = {"format": "sequences", "generated": events, "longest": 8, "negatives": 1}
    table = RunTable(name="item", features=("history", "target"), num_embeddings=200, pooling="none")
    model = RunModel(
        name="sasrec", embedding_dim=8, arguments={"longest": 8, "dropout": 0.0}, tables=(table,),
        dynamic=(DynamicRule(tables="item"),),
    )  # fmt: skip
    test_on = {**train_on, "split": "test"}
    run = a_run(tmp_path / "raw", plan="auto", ranks=2, model=model, steps=6)
    run = replace(run, data=RunData(train={**train_on, "split": "train"}, test=test_on, global_batch_size=48), steps=6)
    result = train(run)
    raw = tensors(run.output)
    ids = [int(each) if each >= 0 else 10**9 + at for at, each in enumerate(raw["item"])][1:]
    orders = [{"op": "map_ids", "feature": name, "ids": ids} for name in ("history", "target")]
    data = RunData(
        train={**train_on, "split": "train", "transforms": orders}, test={**test_on, "transforms": orders},
        global_batch_size=48,
    )  # fmt: skip
    plain = replace(run, output=str(tmp_path / "plain"), model=replace(model, dynamic=()), data=data)
    assert train(plain)["test"]["logloss"] == result["test"]["logloss"]
    named = {name.replace(".tables.", "."): array for name, array in raw.items() if name != "item"}
    same_bits(named, tensors(plain.output))


def test_a_row_that_changes_hands_serves_nothing_of_before(tmp_path: Path) -> None:
    """All rows and their optimizer state are spoilt after each step; rows that are given anew are as drawn."""
    from recsmith.training import RunOptimizers, SparseOptimizer

    slow = RunOptimizers(sparse=SparseOptimizer(name="rowwise_adagrad", learning_rate=1e-30))
    run = a_run(tmp_path / "spoilt", watchers=("support.dynamic_table_jobs:Spoils",), optimizers=slow)
    train(run)
    looked = [Path(run.output, f"looked-{rank}").read_text().split() for rank in range(2)]
    assert [len(each) for each in looked] == [24, 24]
    assert sum(int(count) for each in looked for count in each[1::2]) > 100


@needs_systems("tiers")
def test_rows_on_disk_train_the_same_bits(tmp_path: Path) -> None:
    run = a_run(tmp_path / "memory", plan="auto", ranks=1, steps=10)
    train(run)
    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.6}
    tiered = replace(run, output=str(tmp_path / "tiered"), rows=rows)
    train(tiered)
    same_bits(tensors(tiered.output), tensors(run.output))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"evict": "lfu"},
            "the checkpoint gave rows of 'a' by admit 1, evict lru, and the run says admit 1, evict lfu",
        ),
        ({"admit": 2}, "and the run says admit 2, evict lru"),
        ({"rows": 60}, "'a' has 60 rows in the run, fewer than the 128 of the checkpoint"),
        ({"tables": "x"}, "model.dynamic 'x' matches no table; known: a, b, c"),
    ],
)
def test_a_checkpoint_of_another_rule_is_refused(
    trained: Trained, tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    from recsmith.training.launch.launching import dry_run

    run, _ = trained
    again = tmp_path / "again"
    shutil.copytree(run.output, again)
    rules = (replace(RULES[0], **changed), RULES[1])
    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), dynamic=rules)
    with pytest.raises(UsageError, match=words):
        dry_run(replace(run, output=str(again), plan="auto", model=model))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pipeline": "sparse_dist"}, "write pipeline: base"),
        ({"pipeline": {"name": "accumulated", "batches": 2}}, "model.dynamic"),
        ({"rows": "split"}, "keeps rows where model.dynamic does not draw them anew yet"),
    ],
)
def test_what_does_not_go_with_raw_ids_is_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    from recsmith.training.launch.launching import dry_run

    with pytest.raises(UsageError, match=words):
        dry_run(a_run(tmp_path, **{"plan": "auto", **changed}))


@needs_systems("warm_start")
def test_two_days_in_two_jobs_give_ids_the_rows_and_bits_of_one(tmp_path: Path) -> None:
    """On three ranks the second day has the same rows, and sums over ranks have other last bits."""

    def of_days(name: str, first: int, days: int, **more: Any) -> Run:
        read = RunData(train=data(BATCH * 6 * days, BATCH * 6 * first), global_batch_size=BATCH, shuffle=False)
        run = a_run(tmp_path / name, data=read, steps=6 * days, **more)
        train(run)
        return run

    both, monday = of_days("both", 0, 2), of_days("monday", 0, 1)
    theirs = tensors(both.output)
    same_bits(tensors(of_days("tuesday", 1, 1, start_from=monday.output).output), theirs)
    ours = tensors(of_days("three", 1, 1, start_from=monday.output, ranks=3).output)
    assert all(np.array_equal(ours[name], theirs[name]) for name in "ab")
    for name, array in theirs.items():
        assert ours[name] == pytest.approx(array, rel=1e-3, abs=1e-5), name


@needs_systems("warm_start")
@pytest.mark.parametrize("exported", [False, True])
def test_in_a_larger_table_ids_keep_what_they_learned(trained: Trained, tmp_path: Path, exported: bool) -> None:
    """With rates of zero, the row of an id has the weights that it had, wherever it stands now."""
    from recsmith.training import RunOptimizers, SparseOptimizer
    from recsmith.training.launch.dry_run import described

    run, _ = trained
    start = tmp_path / "start"
    shutil.copytree(Path(run.output, "model") if exported else run.output, start)
    rested = RunOptimizers(sparse=SparseOptimizer(name="rowwise_adagrad", learning_rate=1e-30))
    rules = (replace(RULES[0], rows=400, evict="none"), replace(RULES[1], rows=170, evict="none"))
    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), dynamic=rules)
    larger = a_run(tmp_path / "larger", steps=2, plan="auto", model=model, start_from=str(start), optimizers=rested)
    said = [each.said for each in described(larger).systems if each.key == "start_from"]
    assert "table a grows from 128 to 400 rows; the new ones are drawn" in said
    rules_told = "by admit 1, evict none from now on (admit 1, evict lru before)"
    assert f"raw ids of table a come along with what they learned, {rules_told}" in said
    train(larger)
    before, after = tensors(run.output), tensors(larger.output)
    for name in "ab":
        weights = f"tables.embedding_bags.{name}.weight"
        weight = next(each for each in before if each.endswith(weights))
        rows = {int(each): row for row, each in enumerate(after[name]) if each >= 0}
        known = [(row, rows[int(each)]) for row, each in enumerate(before[name]) if each >= 0]
        assert len(known) > 100
        old, new = map(list, zip(*known, strict=True))
        assert np.array_equal(before[weight][old], after[weight][new])


@needs_systems("warm_start")
def test_a_table_of_raw_ids_does_not_begin_with_rows_by_number(trained: Trained, tmp_path: Path) -> None:
    from recsmith.training.launch.launching import dry_run

    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), dynamic=(*RULES, DynamicRule(tables="c", rows=30)))
    with pytest.raises(UsageError, match=r"table 'c' has no raw ids in .*, and raw ids in the run, so its rows cannot"):
        dry_run(a_run(tmp_path, plan="auto", model=model, start_from=trained[0].output))


def test_a_feature_of_raw_ids_has_one_table(tmp_path: Path) -> None:
    from recsmith.training.launch.launching import dry_run

    tables = (
        RunTable(name="a", num_embeddings=128), RunTable(name="more", features=("a", "b"), num_embeddings=700),
        RunTable(name="c", num_embeddings=30),
    )  # fmt: skip
    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), tables=tables, dynamic=(DynamicRule(tables="a"),))
    with pytest.raises(
        UsageError, match="table 'more' looks up feature 'a', too, whose raw ids have their rows in 'a'"
    ):
        dry_run(a_run(tmp_path, plan="auto", model=model))


def test_a_plan_with_copies_is_refused(tmp_path: Path) -> None:
    from recsmith import load_plan
    from recsmith.training.run.refusals import placed_parts, refusals

    run = a_run(tmp_path)
    plan = load_plan(run.plan)
    placed = tuple(replace(each, sharding_type="data_parallel", compute_kernel="dense", ranks=(0, 1), widths=())
                   if each.table == "b" else each for each in plan.placements)  # fmt: skip
    said = list(refusals(placed_parts(run, replace(plan, placements=placed), "cpu")))
    assert any("table 'b' has raw ids, and the plan copies it to every rank" in each for each in said)


def test_a_batch_with_more_ids_than_rows_ends_the_job(tmp_path: Path) -> None:
    from recsmith.errors import RecSmithError

    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), dynamic=(replace(RULES[0], rows=8), RULES[1]))
    with pytest.raises(RecSmithError, match=r"found none, and a row that the batch reads is not given away"):
        train(a_run(tmp_path, plan="auto", ranks=2, model=model))


def test_a_dry_run_says_what_maps_take(tmp_path: Path) -> None:
    from recsmith.training.launch.launching import dry_run

    said = str(dry_run(a_run(tmp_path, plan="auto")))
    assert "raw ids in 2 tables: a (admit 1, evict lru), b (admit 2, evict lfu); their maps take" in said
