"""What a run is given and cannot be used: one sentence each, and what can be left out is counted."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from training.job.test_log import files_of_at_most
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
KINDS = {"a": "table_wise", "b": "row_wise", "c": "column_wise"}
ROWS, SAMPLES, BATCH, DIM, STEPS = 64, 400, 48, 8, 4
BROKEN = range(0, SAMPLES, 7)  # samples without a label


def clicks(folder: Path, **words: Any) -> dict[str, Any]:
    """The spec of a Parquet file, some of whose samples are corrupt."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: [(i * step) % ROWS for i in range(SAMPLES)] for name, step in zip(KINDS, (3, 5, 11), strict=True)}
    labels = [None if i in BROKEN else float(i % 3 == 0) for i in range(SAMPLES)]
    parquet.write_table(pa.table({**columns, "clicked": labels}), folder / "clicks.parquet")
    features = [{"name": name, "num_embeddings": ROWS} for name in KINDS]
    spec = {"format": "parquet", "paths": [str(folder / "clicks.parquet")], "features": features, "labels": ["clicked"]}
    return {**spec, **words}


def a_plan(folder: Path) -> str:
    """Each table by another sharding type."""
    tables = [{"name": name, "num_embeddings": ROWS, "embedding_dim": DIM, "pooling_factor": 1} for name in KINDS]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": "adagrad", "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in KINDS.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(made, folder / "plan.json")
    return str(folder / "plan.json")


def a_run(folder: Path, data: Any, **words: Any) -> Run:
    values: dict[str, Any] = {
        "data": RunData(train=data, global_batch_size=BATCH),
        "model": RunModel(embedding_dim=DIM, bottom=(8,), top=(8,)),
        "output": str(folder / "out"),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        "checkpoint": None,
        "metrics": RunMetrics(every=1),
    }
    return Run(**{**values, **words})


def test_corrupt_samples_are_left_out_and_counted(tmp_path: Path):
    run, said = a_run(tmp_path, clicks(tmp_path), plan=a_plan(tmp_path), ranks=2), list[str]()
    result = train(run, on_progress=lambda words: said.append(str(words.get("note"))))
    lines = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["event"] == "train"]
    assert [line["samples"] + line.get("corrupt", 0) for line in told] == [BATCH] * STEPS
    assert result["corrupt"] == sum(line.get("corrupt", 0) for line in told) > 0
    assert f"{result['corrupt']} corrupt samples were left out; `recsmith data check` says which" in said
    expected = unsharded_losses(run, STEPS)  # of all places, those of corrupt samples with a loss of zero
    assert [line["logloss"] * line["samples"] / BATCH for line in told] == pytest.approx(expected, rel=1e-6)
    assert len(set(expected)) == STEPS


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ({"max_corrupt": 3}, CorruptFile, r"more than max_corrupt: 3 allows; .*clicks.parquet"),
        ({"labels": ["clickd"]}, CorruptFile, r"has no column 'clickd'; did you mean 'clicked'\?"),
        (
            {"features": [{"name": "d", "num_embeddings": 9}]},
            CorruptFile,
            r"has no column 'd'; known: a, b, c, clicked",
        ),
        ({"features": [{"name": "a", "num_embeddings": 9}]}, UsageError, "and its table has 9 rows; give a larger"),
        ({"paths": ["nowhere.parquet"]}, UsageError, "cannot read 'nowhere.parquet': there is no such file"),
        ({"pathes": ["x"]}, CorruptFile, r"pathes is not a known field; did you mean 'paths'\?"),
    ],
)
def test_data_that_cannot_be_used_is_named(tmp_path: Path, words: dict[str, Any], kind: type, said: str):
    from recsmith.training.launch.launching import dry_run

    with pytest.raises(kind, match=said):
        dry_run(a_run(tmp_path, clicks(tmp_path, **words)))


def test_a_file_that_is_not_there_is_not_called_of_an_unknown_format(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    with pytest.raises(UsageError, match="cannot read 'nowhere': there is no such file"):
        dry_run(a_run(tmp_path, "nowhere"))


def test_a_full_disk_costs_checkpoints_and_then_one_sentence_for_the_model(tmp_path: Path):
    said: list[str] = []
    data = {
        "format": "generator", "seed": 1, "num_samples": 1000, "features": [{"name": "a", "num_embeddings": 10_000}],
    }  # fmt: skip
    run = a_run(tmp_path, data, checkpoint=Checkpointing(every=2))
    with files_of_at_most(200_000), pytest.raises(RecSmithError, match="the trained model cannot be written to"):
        train(run, on_progress=lambda words: said.append(str(words.get("note"))))
    told = [note for note in said if "no checkpoint" in note]
    assert all(re.search("the disk of '.*' took only a part of .*; make room, or give an output", n) for n in told), (
        told
    )
    refused = {note.partition(":")[0] for note in told}
    assert refused == {f"no checkpoint of step {step}" for step in (2, 4)}
    assert list((tmp_path / "out/checkpoints").iterdir()) == []
    again = train(run)  # there is room now
    assert again["step"] == STEPS


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    data = {"format": "generator", "seed": 1, "num_samples": 1000, "features": [{"name": "a", "num_embeddings": 10}]}
    with pytest.raises(UsageError, match="file/out' cannot be written: Not a directory; give another output"):
        train(a_run(tmp_path / "file", data, checkpoint=Checkpointing()))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_job_of_fewer_steps_than_a_line_takes_has_one_at_its_end(tmp_path: Path, ranks: int):
    said = list[Any]()
    run = a_run(tmp_path, clicks(tmp_path), ranks=ranks, metrics=RunMetrics(every=100), plan="auto")
    train(run, on_progress=lambda words: said.append(words.get("scores")))
    lines = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    [told] = [line for line in lines if line["event"] == "train"]
    assert (told["step"], told["samples"] + told["corrupt"]) == (STEPS, STEPS * BATCH)
    assert told["logloss"] in [scores["logloss"] for scores in said if scores]
