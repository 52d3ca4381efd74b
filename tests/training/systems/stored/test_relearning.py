"""Hashes that are learned again in the middle of a run: vectors and state go along, and training goes on."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.test_jobs import a_run

from recsmith.embeddings import CompressionRule, IdMap, load_maps, save_maps
from recsmith.embeddings.id_maps import carried_rows
from recsmith.errors import UsageError
from recsmith.training import Checkpointing, Run, RunData, RunModel, load_run, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn"),
    pytest.mark.usefixtures("torchrec"),
]
ROWS, FEW, STEPS = 240, 60, 6


def first_run(folder: Path) -> Run:
    """A run with a hash that was drawn, on two ranks."""
    drawn = IdMap(numbers=np.random.default_rng(0).integers(0, FEW, ROWS).astype(np.int32))
    save_maps({"a": drawn}, folder / "maps.safetensors")
    rule = CompressionRule(method="learned_hash", tables="a", factor=4, maps=str(folder / "maps.safetensors"))
    features = [{"name": "a", "num_embeddings": ROWS, "zipf": 1.0}, {"name": "b", "num_embeddings": 30}]
    data: dict[str, Any] = {"format": "generator", "num_samples": 4000, "features": features, "dense": 2, "seed": 1}
    return a_run(
        folder / "out", data=RunData(train=data, test=None, global_batch_size=64), ranks=2, steps=STEPS,
        model=RunModel(embedding_dim=8, bottom=(8,), top=(8,), compression=(rule,)), checkpoint=Checkpointing(every=3),
    )  # fmt: skip


def weights_and_state(run: Run) -> dict[str, Any]:
    """Tensors of the hashed table in the newest checkpoint of a run."""
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    folder = sorted(Path(run.output, "checkpoints").glob("step-*"))[-1] / "state"
    metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
    sizes: dict[str, Any] = {key: getattr(each, "size", ()) for key, each in metadata.items() if "a@hashed" in key}
    state = {key: torch.empty(size) for key, size in sizes.items() if len(size)}
    load(state, checkpoint_id=folder, no_dist=True)
    return {key: value.numpy() for key, value in state.items()}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_vectors_and_state_go_along_and_training_goes_on(tmp_path: Path) -> None:
    from recsmith.training.systems.stored.id_maps import id_counts
    from recsmith.training.systems.stored.relearning import relearn

    run = first_run(tmp_path)
    train(run)
    kept = {path: path.read_bytes() for path in Path(run.output).rglob("*") if path.is_file()}
    goes_on = relearn(replace(run, ranks=1), tmp_path / "next")
    assert {path: path.read_bytes() for path in Path(run.output).rglob("*") if path.is_file()} == kept
    before, after = load_maps(tmp_path / "maps.safetensors")["a"], load_maps(tmp_path / "next/maps.safetensors")["a"]
    assert (before.numbers != after.numbers).any()
    counts = _counts(run, id_counts)
    old, new = weights_and_state(run), weights_and_state(goes_on)
    assert len(old) == 2, "weights, and Adagrad's sums"
    for key, value in old.items():
        expected = carried_rows(value, before, after, counts, FEW).astype(np.float32)
        np.testing.assert_array_equal(new[key], expected)
        alone = np.flatnonzero(np.bincount(after.numbers, minlength=FEW)[after.numbers] == 1)
        assert len(alone) > 5, "frequent ids have rows of their own"
        np.testing.assert_array_equal(new[key][after.numbers[alone]], value[before.numbers[alone]])

    assert load_run(tmp_path / "next/run.yaml") == goes_on
    train(replace(goes_on, steps=STEPS + 4))
    log = [json.loads(line) for line in Path(goes_on.output, "log.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in log if line["event"] == "train"]
    assert steps[0] == STEPS + 1
    assert steps[-1] == STEPS + 4
    assert all(np.isfinite(line["logloss"]) for line in log if line["event"] == "train")


def _counts(run: Run, id_counts: Any) -> Any:
    from recsmith.training.run.tables import tables_of
    from recsmith.training.sources import open_data

    dataset = open_data(run.data.train, "data.train")
    return id_counts(dataset, tables_of(run.model, dataset.schema))["a"]


def test_what_cannot_be_learned_again_gets_one_sentence(tmp_path: Path) -> None:
    from recsmith.training.systems.stored.relearning import relearn

    run = first_run(tmp_path)
    with pytest.raises(UsageError, match="has no checkpoint to carry over"):
        relearn(run, tmp_path / "next")
    with pytest.raises(UsageError, match="no learned hash"):
        relearn(replace(run, model=replace(run.model, compression=())), tmp_path / "next")
    (tmp_path / "out/checkpoints/step-00000001").mkdir(parents=True)
    (tmp_path / "next").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        relearn(run, tmp_path / "next")
