"""A model made of an older one and deltas is the newer one, bit for bit; deltas hold what changed, and little else."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import CorruptFile, UsageError
from recsmith.training import Run, RunData, RunModel, apply_deltas, evaluate, load_model, make_delta, train
from recsmith.training.job import card
from recsmith.training.job.card import CARD, block_digests, weights_digest, write_card
from recsmith.training.job.export import WEIGHTS, arrays_of, make_tensor_file
from recsmith.training.results.deltas import CHANGED, TOLD, Delta, TensorChange
from recsmith.training.run import load_run
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.systems.second_order.refit import refit

pytestmark = pytest.mark.usefixtures("torchrec")
Wanted = dict[str, tuple[torch.dtype, tuple[int, ...]]]
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64)
FEATURES = [{"name": "user", "num_embeddings": 4000}, {"name": "item", "num_embeddings": 300}]


def same_files(first: Path, second: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    there = [{each.relative_to(folder): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
             for folder in (first, second)]  # fmt: skip
    return there[0] == there[1]


def a_day(folder: Path, number: int, features: list[dict[str, object]], before: Path | None = None) -> Path:
    """A day's training of 256 samples, which read few of the users; its folder."""
    data = {"format": "generator", "seed": 1, "dense": 2, "first_sample": 256 * number, "num_samples": 256,
            "features": features}  # fmt: skip
    output = folder / f"day-{number}"
    model = RunModel(embedding_dim=16, bottom=(8,), top=(8,))
    run = Run(data=RunData(train=data, batch_size=64), model=model, ranks=1, output=str(output))
    train(run, settings=() if before is None else (f"start_from={before}",))
    return output


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three days: the second goes on with the first, and on the third a table has grown and a feature is new."""
    folder = tmp_path_factory.mktemp("days")
    first = a_day(folder, 0, FEATURES)
    second = a_day(folder, 1, FEATURES, first)
    grown = [{**FEATURES[0], "num_embeddings": 5000}, FEATURES[1], {"name": "shop", "num_embeddings": 20}]
    return [first, second, a_day(folder, 2, grown, second)]


def test_a_copy_follows_day_after_day_by_what_changed(days: list[Path], tmp_path: Path):
    made = [make_delta(old, new, tmp_path / new.name) for old, new in itertools.pairwise(days)]
    users = user_of(made[0])
    assert users.change == "rows"
    assert 0 < users.rows <= 256  # what the day read
    rows = sum(each.rows * (np.prod(each.shape[1:]) * 4) for each in made[0].tensors.values() if each.change == "rows")
    whole = sum(np.prod(each.shape) * 4 for each in made[0].tensors.values() if each.change == "whole")
    assert (tmp_path / "day-1" / CHANGED).stat().st_size < 1.2 * rows + whole + 4096  # the header of the file
    apply_deltas(days[0], [tmp_path / "day-1", tmp_path / "day-2"], tmp_path / "serving")
    assert same_files(tmp_path / "serving", days[2] / "model")
    apply_deltas(days[0], [tmp_path / "day-1"], tmp_path / "serving", force=True)
    assert same_files(tmp_path / "serving", days[1] / "model")


def test_weights_of_another_day_are_refused_wherever_a_model_is_read(days: list[Path], tmp_path: Path):
    swapped = shutil.copytree(days[0] / "model", tmp_path / "model")
    shutil.copyfile(days[1] / "model" / WEIGHTS, swapped / WEIGHTS)
    run = load_run(days[1] / "run.json")
    for read in (
        lambda: load_model(swapped), lambda: evaluate(swapped, data=run.data.train),
        lambda: refit(swapped, run.data.train), lambda: make_delta(days[0], swapped, tmp_path / "delta"),
        lambda: train(replace(run, output=str(tmp_path / "run"), start_from=str(swapped))),
    ):  # fmt: skip
        with pytest.raises(CorruptFile, match=r"are not those that its card\.json was written with"):
            read()


def test_a_bit_of_a_large_table_is_noticed_and_ranks_share_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(card, "BLOCK", 2**12)
    large = a_model(tmp_path / "large", {"a": (torch.float32, (2**6, 32))}, 0)
    parts = [block_digests(large, rank, 2) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == block_digests(large)
    assert [len(each) for each in parts] == [2, 1]  # two whole blocks, and what the header is longer
    write_card(large, {"seed": 0}, parts[1] + parts[0])
    weights_digest(large)
    with (large / WEIGHTS).open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(CorruptFile, match=r"are not those that its card\.json was written with"):
        weights_digest(large)


def user_of(delta: Delta) -> TensorChange:
    return next(each for each in delta.tensors.values() if each.shape[:1] == (4000,))


tensors = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 4), max_size=3).map(tuple)), max_size=3,
)  # fmt: skip


def a_model(folder: Path, wanted: Wanted, seed: int) -> Path:
    """A folder with weights of few different bytes, so that rows are often alike, and NaN and -0 are among them."""
    folder.mkdir(parents=True)
    make_tensor_file(folder / WEIGHTS, {name: WholeTensor(*each) for name, each in wanted.items()})
    generator = np.random.default_rng(seed)
    for values in arrays_of(folder / WEIGHTS).values():
        drawn = generator.choice(np.array([0, 128, 255], np.uint8), size=values.nbytes, p=[0.9, 0.05, 0.05])
        values[...] = drawn.view(values.dtype).reshape(values.shape)
    (folder / CARD).write_text(json.dumps({"seed": seed % 2}))
    return folder


@given(before=tensors, after=tensors, seed=st.integers(0, 99))
def test_whatever_changed_the_newer_model_is_made_again(
    tmp_path_factory: pytest.TempPathFactory, before: Wanted, after: Wanted, seed: int
):
    folder = tmp_path_factory.mktemp("law")
    old, new = a_model(folder / "old", before, seed), a_model(folder / "new", after, seed + 1)
    make_delta(old, new, folder / "delta")
    assert same_files(apply_deltas(old, [folder / "delta"], folder / "made"), new)


def test_what_does_not_fit_is_refused_and_leaves_nothing(days: list[Path], tmp_path: Path):
    for old, new in itertools.pairwise(days):
        make_delta(old, new, tmp_path / new.name)
    first, second = tmp_path / "day-1", tmp_path / "day-2"
    there = set(tmp_path.iterdir())
    with pytest.raises(CorruptFile, match="apply deltas from the oldest on"):
        apply_deltas(days[0], [second, first], tmp_path / "made")
    with pytest.raises(UsageError, match="holds no trained model"):
        make_delta(first, days[1], tmp_path / "made")
    with pytest.raises(UsageError, match="day-2' is there; give another output, or --force"):
        make_delta(days[0], days[2], second)
    with pytest.raises(UsageError, match="is the model itself"):
        apply_deltas(days[0] / "model", [first], days[0] / "model", force=True)
    with pytest.raises(UsageError, match=r"is there; give another output$"):
        apply_deltas(days[0], [first], tmp_path, force=True)
    values = next(each for name, each in arrays_of(first / CHANGED).items() if not name.endswith("#rows"))
    values.flat[0] += 1
    del values  # so that the file has it
    with pytest.raises(CorruptFile, match="is damaged: it makes a model with digest"):
        apply_deltas(days[0], [first], tmp_path / "made")
    (first / CHANGED).write_bytes((first / CHANGED).read_bytes()[:-9])
    with pytest.raises(CorruptFile, match=r"is not a sound safetensors file: .*; make the delta again"):
        apply_deltas(days[0], [first], tmp_path / "made")
    raw = json.loads((second / TOLD).read_text())
    (second / TOLD).write_text(json.dumps({**raw, "files": {"../card.json": False}}))
    with pytest.raises(CorruptFile, match=r"names a file '\.\./card\.json' outside of the model"):
        apply_deltas(days[1], [second], tmp_path / "made")
    assert set(tmp_path.iterdir()) == there
