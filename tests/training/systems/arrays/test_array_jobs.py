"""Several models in one job: each has the losses, the checkpoint and the exported model of its own run."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.jobs import launch as jobs
from recsmith.planning.simulate import price
from recsmith.plans import Placement, save_plan
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    evaluate,
    run_to_raw,
)
from recsmith.training.launch.launching import dry_run
from recsmith.training.systems.arrays.members import members_of, read_ended
from recsmith.training.systems.arrays.settings import RunArray

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS = 8
MEMBERS = {
    "as-it-is": (),
    "rates": ("optimizers.dense.learning_rate=0.01", "optimizers.sparse.learning_rate=0.2", "seed=3"),
    "wider": ("model.bottom=[12]", "optimizers.dense.name=sgd"),
    "clipped": ("optimizers.dense.clip_norm=0.02",),
}


def data(first: int, samples: int) -> dict[str, Any]:
    features = [
        {"name": name, "num_embeddings": 50 + 7 * i, "pooling_factor": 3, "lengths": "poisson"}
        for i, name in enumerate("abcd")
    ]
    words = {"format": "generator", "seed": 1, "dense": 2, "features": features}
    return {**words, "first_sample": first, "num_samples": samples}


def an_array(folder: Path, members: dict[str, tuple[str, ...]] = MEMBERS, **words: Any) -> Run:
    return Run(
        data=RunData(train=data(0, 20_000), test=data(20_000, 101), batch_size=32),
        model=RunModel(embedding_dim=8, bottom=(8,), top=(8,), **words),
        output=str(folder), steps=STEPS, checkpoint=Checkpointing(every=4, keep=3), metrics=RunMetrics(every=1),
        optimizers=RunOptimizers(
            sparse=SparseOptimizer(learning_rate=0.05), dense=DenseOptimizer(), warmup_steps=3, decay_steps=9
        ),
        array=RunArray(members=members, together="always"),
    )  # fmt: skip


def losses(folder: str) -> list[float]:
    lines = [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def weights(folder: str) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(Path(folder) / "model" / "weights.safetensors")


def apart(one: str, other: str) -> float:
    """The largest difference of two trained models, relative to the largest weight of a tensor."""
    here, there = weights(one), weights(other)
    assert here.keys() == there.keys()
    return max(float(np.abs(here[name] - there[name]).max() / np.abs(there[name]).max()) for name in here)


def a_plan(file: Path, types: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    """A plan of the tables of one model on two ranks, of these types and ranks."""
    tables = [
        {"name": name, "num_embeddings": 50 + 7 * i, "embedding_dim": 8, "pooling_factor": 3}
        for i, name in enumerate(types)
    ]
    words = {"schema": "recsmith/workload/1", "batch_size": 32, "optimizer": "rowwise_adagrad", "tables": tables}
    file.with_suffix(".tables").write_text(json.dumps(words))
    placements = [
        Placement(table=name, sharding_type=kind, compute_kernel="dense" if kind == "data_parallel" else "fused",
                  ranks=ranks, widths=(4, 4) if kind == "column_wise" else ())
        for name, (kind, ranks) in types.items()
    ]  # fmt: skip
    save_plan(price(file.with_suffix(".tables"), "cpu:2", placements), file)
    return str(file)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Any]]:
    folder = tmp_path_factory.mktemp("array")
    mixed = {"a": ("table_wise", (1,)), "b": ("row_wise", (0, 1)), "c": ("table_wise", (0,))}
    array = replace(
        an_array(folder / "array"), plan=a_plan(folder / "mixed.json", {**mixed, "d": ("data_parallel", (0, 1))})
    )
    cut = a_plan(folder / "cut.json", {**mixed, "d": ("column_wise", (0, 1))})
    alone = {name: replace(run, output=str(folder / "alone" / name)) for name, run in members_of(array).items()}
    pieces = replace(an_array(folder / "pieces", {"other": (), "rates": MEMBERS["rates"]}), plan=cut)
    broken = {"sound": (), "broken": ("optimizers.dense.learning_rate=1e30",)}
    going_on = replace(alone["rates"], output=str(folder / "going-on"))
    runs: dict[str, Any] = {
        "array": array, **alone, "broken": replace(an_array(folder / "broken", broken), plan=array.plan),
        "within": replace(
            array, output=str(folder / "within"),
            array=RunArray(members=MEMBERS, together="always", layer_memory="53KiB"),
        ),
        "pieces": pieces, "cut": replace(members_of(pieces)["rates"], output=str(folder / "cut")),
        "kept": [array.output, str(folder / "resumed")], "resumed": replace(array, output=str(folder / "resumed")),
        "kept between": [array.output, str(folder / "between"), 1, "as-it-is", 1],
        "between": replace(array, output=str(folder / "between")),
        "kept first": [array.output, str(folder / "first"), 0, "as-it-is", 1],
        "first": replace(array, output=str(folder / "first")),
        "kept apart": [array.output, str(folder / "apart"), 0, "rates", 2],
        "apart": replace(array, output=str(folder / "apart")),
        "one": [f"{array.output}/rates", going_on.output], "going on": going_on,
        "kept broken": [str(folder / "broken"), str(folder / "broken-resumed")],
        "broken resumed": replace(
            an_array(folder / "broken-resumed", broken), plan=array.plan
        ),
        "in turn": replace(array, output=str(folder / "turn"), array=RunArray(members=broken, together="never")),
    }  # fmt: skip
    arguments = {"runs": [run_to_raw(run) if isinstance(run, Run) else run for run in runs.values()]}
    results = jobs.launch("support.array_jobs:train_all", arguments, ranks=2)[0]
    return dict(zip(runs, zip(runs.values(), results, strict=True), strict=True))


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_member_is_what_its_own_run_is(name: str, trained: dict[str, tuple[Run, Any]]) -> None:
    array, result = trained["array"]
    own, alone = f"{array.output}/{name}", trained[name][0].output
    assert " members trained together" in result["brought"]["array"]
    assert len(losses(own)) == STEPS
    assert losses(own) == pytest.approx(losses(alone), rel=1e-5)
    assert apart(own, alone) < 1e-5
    assert result["members"][name]["test"]["auc"] == pytest.approx(trained[name][1]["test"]["auc"], abs=1e-5)


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_member_within_a_limit_of_memory_is_too(name: str, trained: dict[str, tuple[Run, Any]]) -> None:
    within, alone = trained["within"][0].output, trained[name][0].output
    assert isinstance(trained["within"][1], dict), trained["within"][1]
    assert losses(f"{within}/{name}") == pytest.approx(losses(alone), rel=1e-5)
    assert apart(f"{within}/{name}", alone) < 1e-5


def test_a_dry_run_says_what_is_computed_again(tmp_path: Path) -> None:
    array = an_array(tmp_path / "out")
    assert array.array is not None
    said = "\n".join(dry_run(replace(array, array=replace(array.array, layer_memory="53KiB"), ranks=2)))
    assert "layers: members are trained 1, 1, 1, 1 at once, " in said
    assert "computed again" in said
    with pytest.raises(
        UsageError, match=r"layer_memory is 1 KiB, and the least that was found .* lower data.batch_size"
    ):
        dry_run(replace(array, array=replace(array.array, layer_memory="1KiB"), ranks=2))


def test_members_differ(trained: dict[str, tuple[Run, Any]]) -> None:
    """So that the test above compares what settings make."""
    found = [losses(f"{trained['array'][0].output}/{name}") for name in MEMBERS]
    assert all(found[0] != pytest.approx(each, rel=1e-4) for each in found[1:])


def test_tables_in_pieces_are_looked_up_by_torchrec(trained: dict[str, tuple[Run, Any]]) -> None:
    own, alone = f"{trained['pieces'][0].output}/rates", trained["cut"][0].output
    assert losses(own) == pytest.approx(losses(alone), rel=1e-5)
    assert apart(own, alone) < 1e-5


def test_a_model_of_a_member_evaluates(trained: dict[str, tuple[Run, Any]]) -> None:
    array, result = trained["array"]
    scores = evaluate(f"{array.output}/wider", ranks=1)
    assert scores.logloss == pytest.approx(result["members"]["wider"]["test"]["logloss"], rel=1e-5)


def test_an_array_goes_on_with_the_same_bits(trained: dict[str, tuple[Run, Any]]) -> None:
    assert trained["resumed"][1]["complete"]
    for name in MEMBERS:
        here, there = (weights(f"{trained[each][0].output}/{name}") for each in ("array", "resumed"))
        assert all(np.array_equal(here[key], there[key]) for key in here)


@pytest.mark.parametrize("ended", ["between", "first"])
def test_an_array_that_was_ended_between_two_members_checkpoints_goes_on(
    ended: str, trained: dict[str, tuple[Run, Any]]
) -> None:
    """One member alone has the checkpoint of the last step, or of the first."""
    run, result = trained[ended]
    assert isinstance(result, dict), result
    for name in MEMBERS:
        here, there = (weights(f"{trained[each][0].output}/{name}") for each in ("array", ended))
        assert all(np.array_equal(here[key], there[key]) for key in here)
        assert losses(f"{run.output}/{name}") == losses(f"{trained['array'][0].output}/{name}")
        assert len(list(Path(run.output, name, "checkpoints").iterdir())) == 2


def test_members_that_were_trained_apart_are_refused(trained: dict[str, tuple[Run, Any]]) -> None:
    run, result = trained["apart"]
    assert "no checkpoint of one step in common: 'as-it-is' has none, and 'rates' has 2 up to step-00000008" in result
    assert len(list(Path(run.output, "rates", "checkpoints").iterdir())) == 2


def test_a_member_goes_on_alone(trained: dict[str, tuple[Run, Any]]) -> None:
    run, result = trained["going on"]
    assert result["complete"]
    assert apart(run.output, f"{trained['array'][0].output}/rates") < 1e-5


def test_a_member_that_diverges_ends_alone(trained: dict[str, tuple[Run, Any]]) -> None:
    run, result = trained["broken"]
    assert result["complete"]
    assert "is not finite" in result["members"]["broken"]["ended"]
    assert not Path(run.output, "broken", "model").exists()
    assert losses(f"{run.output}/sound") == pytest.approx(losses(trained["as-it-is"][0].output), rel=1e-5)
    assert not Path(run.output, "broken", "checkpoints", f"step-{STEPS:08d}").exists()
    assert json.loads(Path(run.output, "array.json").read_text())["ended"].keys() == {"broken"}


def test_an_array_goes_on_without_the_member_that_has_ended(trained: dict[str, tuple[Run, Any]]) -> None:
    run, result = trained["broken resumed"]
    assert result["complete"]
    assert result["members"]["broken"] == trained["broken"][1]["members"]["broken"]
    here, there = (weights(f"{trained[each][0].output}/sound") for each in ("broken", "broken resumed"))
    for key in here:  # not to the bit: on some processors a batched product rounds as its number of members has it
        np.testing.assert_allclose(there[key], here[key], rtol=0, atol=1e-6 * np.abs(here[key]).max(), equal_nan=False)
    assert not Path(run.output, "broken", "model").exists()


@pytest.mark.parametrize(
    ("ended", "words"),
    [({"gone": {"step": 3, "because": "x"}}, "member 'gone' has ended, and array.members has no 'gone'; name"),
     ({"broken": {"step": -1, "because": "x"}}, "step is -1; it must be 0 or more"), ({"broken": 3}, "broken")],
)  # fmt: skip
def test_a_damaged_list_of_ended_members_is_refused(ended: Any, words: str, tmp_path: Path) -> None:
    run = an_array(tmp_path, {"sound": (), "broken": ("seed=2",)})
    (tmp_path / "array.json").write_text(json.dumps({"schema": "recsmith/array/1", "ended": ended}))
    with pytest.raises(CorruptFile, match=words):
        read_ended(tmp_path, run)


def test_in_turn_each_member_is_a_run_of_its_own(trained: dict[str, tuple[Run, Any]]) -> None:
    run, result = trained["in turn"]
    assert result["complete"]
    assert "is not finite" in result["members"]["broken"]["ended"]
    assert losses(f"{run.output}/sound") == losses(trained["as-it-is"][0].output)


def test_a_dry_run_says_what_is_gained_and_written(tmp_path: Path) -> None:
    array = replace(an_array(tmp_path / "out"), array=RunArray(members=MEMBERS))
    said = "\n".join(dry_run(array))
    assert "array: 4 members are trained together (array.together: auto, which wants 1.1 times): a step " in said
    assert "16 tables" in said
    assert f"written to '{tmp_path}/out/MEMBER' of each (as-it-is, rates, wider, clipped)" in said
    turn = "\n".join(dry_run(replace(array, array=RunArray(members=MEMBERS, together="never"))))
    assert "in turn" in turn
    assert f"{tmp_path}/out/as-it-is" in turn
    assert not (tmp_path / "out").exists()


def test_an_array_has_no_model_of_its_own(trained: dict[str, tuple[Run, Any]]) -> None:
    with pytest.raises(UsageError, match="give the folder of one of its members"):
        evaluate(trained["array"][0].output)


@pytest.mark.soak
def test_a_member_on_hot_ids_is_its_own_run_as_far_as_rounding_goes(tmp_path: Path) -> None:
    """100 steps of ids of Zipf 1.2 on one rank. Measured: 6e-9 of losses, 4e-7 of the largest weight of a tensor."""
    hot = data(0, 100 * 32)
    hot["features"] = [{**each, "num_embeddings": 2_000, "zipf": 1.2} for each in hot["features"]]
    array = replace(
        an_array(tmp_path / "hot", {"as-it-is": (), "other": ("seed=1",)}), steps=100, checkpoint=None, ranks=1,
        metrics=RunMetrics(every=10),
    )  # fmt: skip
    array = replace(array, data=replace(array.data, train=hot, test=None))
    alone = replace(members_of(array)["as-it-is"], output=str(tmp_path / "alone"))
    runs = [run_to_raw(run) for run in (array, alone)]
    assert all(each["complete"] for each in jobs.launch("support.array_jobs:train_all", {"runs": runs}, ranks=1)[0])
    own = losses(f"{array.output}/as-it-is")
    assert len(own) == 10
    assert np.isfinite(own).all()
    assert own == pytest.approx(losses(alone.output), rel=1e-6)
    assert apart(f"{array.output}/as-it-is", alone.output) < 1e-5
