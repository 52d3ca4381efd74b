"""A sparse copy: its zeros are those that were asked for, it is loaded and served as any model, and it stays fresh."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")
pytest.importorskip("recsmith.training.systems.periods")  # between which copies are made
pytest.importorskip("recsmith.training.systems.second_order")  # whose kept tables they learn on

import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import RecSmithError, UsageError
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, load_model, train
from recsmith.training.job.card import read_card
from recsmith.training.launch.launching import dry_run
from recsmith.training.sources import open_data
from recsmith.training.systems.periods.settings import Periods
from recsmith.training.systems.second_order.refit import scored
from recsmith.training.systems.sparse.command import sparse_command
from recsmith.training.systems.sparse.settings import SparsitySettings
from recsmith.training.systems.sparse.sparsify import LEAST, masks_of, sparsify
from recsmith.training.systems.sparse.watcher import SparseCopies

pytestmark = pytest.mark.usefixtures("torchrec")
FEATURES = [{"name": name, "num_embeddings": size} for name, size in (("a", 40), ("b", 90))]


EDGES = (1e-9, 0.001, 0.5, 0.97, 0.98, 0.985, 0.99, 0.999, 1 - 1e-9)
SHARES = st.one_of(st.floats(0.0, 1.0, exclude_min=True, exclude_max=True), st.sampled_from(EDGES))


def clicks(first: int, samples: int, **words: Any) -> dict[str, Any]:
    """Samples from a number on."""
    made = {
        "format": "generator",
        "seed": 2,
        "dense": 3,
        "features": FEATURES,
        "teacher": {"signal": 3.0, "dense": 0.6},
    }
    return {**made, "first_sample": first, "num_samples": samples, **words}


def a_run(output: Path, **data: Any) -> Run:
    return Run(
        data=RunData(train=clicks(0, 6000), batch_size=100, shuffle=False, **data), output=str(output),
        model=RunModel(embedding_dim=8, bottom=(32,), top=(64, 32)), checkpoint=Checkpointing(every=7, keep=9),
        metrics=RunMetrics(every=20),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    run = a_run(tmp_path_factory.mktemp("sparse") / "out")
    train(run)
    return Path(run.output)


def test_a_copy_is_made_beside_the_model_and_served_alike(trained: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    before, said = (trained / "model/weights.safetensors").read_bytes(), list[str]()
    settings = SparsitySettings(share=0.8, batch_size=100, masks=40)
    made, scores = sparsify(trained, settings=settings, test=clicks(6000, 1000), on_progress=said.append)
    assert (trained / "model/weights.safetensors").read_bytes() == before
    assert said[0].startswith("6,000 samples read once")
    assert made.zeros == pytest.approx(0.8 * made.weights, abs=2)
    whole, copy = (load_file(trained / name / "weights.safetensors") for name in ("model", "sparse"))
    assert whole.keys() == copy.keys()
    zeros = {name: float((copy[f"model.{name}"] == 0).float().mean()) for name in made.layers}
    assert zeros == pytest.approx(made.layers, abs=1e-9)
    assert len({round(each, 2) for each in zeros.values()}) > 1, "layers have their own shares"
    assert all(torch.equal(whole[name], copy[name]) for name in whole if "embedding_bags" in name)
    assert read_card(trained / "sparse").sparse == made
    assert made.loss < made.loss_full + 0.02
    told: Any = scores
    assert told["sparse"].auc > told["full"].auc - 0.01
    assert load_model(trained / "sparse")({"a": [[1]], "b": [[2]]}, [[0.0, 0.0, 0.0]]).shape == (1, 1)
    again, _ = sparsify(trained, settings=settings, output=tmp_path / "again")
    assert again == made


def test_the_command_says_what_became_of_each_layer(trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "clicks.json"
    data.write_text(json.dumps(clicks(0, 1000)))
    arguments = [str(trained), "--share", "0.5", "--data", str(data), "--test", str(data), "--steps", "20",
                 "--masks", "0", "-o", str(tmp_path / "new")]  # fmt: skip
    done = CliRunner().invoke(sparse_command, arguments, catch_exceptions=False)
    assert "model.1.weight: " in done.output
    assert "weights are zero, by themselves the file is as large and a step no shorter, " in done.output
    assert "sparse model on --test: " in done.output


@given(
    share=st.one_of(st.floats(0.0, 1.0, exclude_min=True, exclude_max=True), st.sampled_from(EDGES)),
    steps=st.sampled_from([0, 3]),
    seed=st.integers(0, 9),
)
def test_masks_let_go_of_the_share_and_leave_each_layer_some(share: float, steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    weights = {"a": torch.randn(20, 30), "b": 1e-3 * torch.randn(5, 20), "c": torch.randn(1, 5)}

    def losses(given: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(x @ given["a"].T)
        return ((torch.relu(hidden @ given["b"].T) @ given["c"].T) - 1).square()[:, 0]

    parts = [torch.randn(16, 30) for _ in range(3)]
    found = masks_of(weights, {}, losses, parts, share=share, steps=steps)
    numbers = sum(each.numel() for each in weights.values())
    floors = {name: max(1, round(LEAST * each.numel())) for name, each in weights.items()}
    kept = {name: int(each.sum()) for name, each in found.items()}
    assert all(kept[name] >= floors[name] for name in weights), "in any case"
    assert sum(kept.values()) == max(numbers - round(share * numbers), sum(floors.values()))
    even = masks_of(weights, {}, losses, parts, share=share, steps=0, per_layer=True)
    for name, each in even.items():
        assert int(each.sum()) == max(each.numel() - round(share * each.numel()), floors[name])


def test_bad_input_is_refused_and_nothing_is_written(trained: Path, tmp_path: Path) -> None:
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match=r"share is .*; it lies between 0 and 1"):
            SparsitySettings(share=share)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"folder": tmp_path}, "holds no trained model; give the output folder of a run that is complete"),
        ({"data": clicks(0, 100, dense=4)}, "has dense columns .*, and the model was trained on"),
        ({"output": trained / "model"}, "is the model itself"),
        ({"output": tmp_path}, "holds no sparse copy; give another output, or --force"),
    ]
    for words, sentence in cases:
        with pytest.raises(UsageError, match=sentence):
            sparsify(**{"folder": trained, "output": tmp_path / "new", **words})
    assert not (tmp_path / "new").exists()
    run = a_run(tmp_path / "out")
    copies = replace(run, watchers=({"name": "sparse_copy", "periods": 0},))
    with pytest.raises(UsageError, match=r"periods is 0; a copy is made anew each 1 or more of them: give 1 or more"):
        dry_run(copies)
    with pytest.raises(UsageError, match=r"the run has no data.periods; say how long a period is"):
        dry_run(replace(run, watchers=("sparse_copy",)))
    with pytest.raises(UsageError, match="folder is 'model'; give a plain name"):
        SparseCopies(folder="model")


def copies_of(folder: Path | str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "sparse_copy"]


ASKS = """
from recsmith.training.watchers.protocol import Watcher, Wish


class Asks(Watcher):
    def look(self, seen):
        return Wish("refresh", "the truth has changed") if seen.step == 9 else None
"""


def test_copies_are_made_anew_each_r_periods_and_when_an_alarm_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two ranks; the copy is scored on the period that comes, and what stays zero stays zero."""
    (tmp_path / "asks_refresh.py").write_text(ASKS)
    monkeypatch.syspath_prepend(tmp_path)
    copy = {"name": "sparse_copy", "periods": 2, "steps": 5, "masks": 3, "batch_size": 100}
    once = {**copy, "periods": None, "folder": "once"}
    run = a_run(tmp_path / "out", periods=Periods(samples=1000))
    run = replace(run, ranks=2, watchers=(copy, once, "asks_refresh:Asks"), data=replace(run.data, batch_size=50))
    train(run)
    found = copies_of(run.output)
    because = {name: [each["because"] for each in found if each["folder"] == name] for name in ("sparse", "once")}
    none, alarm = "for there was none", "for an alarm asked for a refresh"
    assert because["sparse"] == [none, alarm, None, "after 2 periods", None]
    assert because["once"] == [none, alarm, None, None, None]
    assert [each["zeros"] for each in found] == pytest.approx([0.8] * 10, abs=0.01)
    assert [each["period"] for each in found if each["folder"] == "once"] == [1, 2, 3, 4, 5]
    assert all(np.isfinite(each["logloss"]) and each["full_logloss"] > 0 for each in found)
    copy_at_the_end = load_model(Path(run.output) / "sparse")
    coming = open_data(clicks(5000, 1000), "data").batches(rank=0, world_size=1, batch_size=500, seed=0, shuffle=False)
    scores = scored(copy_at_the_end, list(coming))
    last = [each for each in found if each["folder"] == "sparse"][-1]
    assert scores.logloss == pytest.approx(last["logloss"], rel=1e-5)


def test_a_resumed_job_goes_on_with_its_copy(tmp_path: Path) -> None:
    copy = {"name": "sparse_copy", "periods": 3, "steps": 5, "masks": 0, "batch_size": 100}
    run = replace(a_run(tmp_path / "out", periods=Periods(samples=1000)), watchers=(copy,))
    train(run, settings=("steps=25",))
    train(run, settings=("steps=45",))
    assert [each["because"] for each in copies_of(run.output)] == ["for there was none", None, None, "after 3 periods"]
    import shutil

    shutil.rmtree(Path(run.output) / "sparse")
    with pytest.raises(RecSmithError, match="is gone, which the job would tune"):
        train(run)


def test_a_share_that_cannot_be_had_is_said_and_a_useless_copy_is_no_success(trained: Path, tmp_path: Path) -> None:
    said: list[str] = []
    settings = SparsitySettings(share=0.999, batch_size=100, masks=0, steps=0)
    with pytest.raises(RecSmithError, match=r"copy, of which 98\.\d% are zero, has log loss .*; nothing was written"):
        sparsify(trained, settings=settings, output=tmp_path / "useless", on_progress=said.append)
    assert said[-1] == "98.0% of weights go, not 99.9%: 2% of each layer stay"
    assert not (tmp_path / "useless").exists()
