"""The sources of RecSmith, and the one of examples/own_source.py, keep the contract; data that grew goes on."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recsmith.data import GeneratorSpec, open_dataset, spec_from_raw, write_dataset
from recsmith.errors import CorruptFile, UsageError
from recsmith.testing.sources import SIZE, BatchSourceContract, numbers, read
from recsmith.training import Run, RunData
from recsmith.training.run.data import BatchSizes
from recsmith.training.sources import check_state, first_batch, open_source

EXAMPLES = Path(__file__).parents[3] / "examples"
GENERATED: dict[str, Any] = {
    "format": "generator", "dense": 2, "num_samples": 400,
    "features": [{"name": "user", "num_embeddings": 50}, {"name": "items", "num_embeddings": 70, "pooling_factor": 3}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds write how they do into the run's output, which lies in the working folder here."""
    monkeypatch.chdir(tmp_path)


def a_source(train: Any, **data: Any) -> Any:
    """The source of a run."""
    return open_source(Run(data=RunData(train=train, **data), output="x", seed=3))


class TestThread(BatchSourceContract):
    """A dataset that a thread reads."""

    def make(self, folder: Path) -> Any:
        """Two epochs."""
        return a_source(GENERATED, epochs=2)


class TestFeed(BatchSourceContract):
    """A dataset that workers read."""

    @pytest.fixture(autouse=True)
    def folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """In which the feed tells how it does."""
        monkeypatch.chdir(tmp_path)

    def make(self, folder: Path) -> Any:
        """One worker."""
        return a_source(GENERATED, epochs=2, feed=1)

    def test_any_state_goes_on_as_if_nothing_had_happened(self, tmp_path: Path) -> None:
        """Its batches are those of the thread, whose states are looked at."""
        sources = (self.make(tmp_path), a_source(GENERATED, epochs=2))
        ours, others = (read(each, 1, 2, SIZE, steps=3) for each in sources)
        assert [(numbers(batch), state) for batch, state in ours] == [(numbers(b), state) for b, state in others]


class TestOnesOwn(BatchSourceContract):
    """A source in one file, which nothing else knows of."""

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples are on the path."""
        monkeypatch.syspath_prepend(EXAMPLES)

    def make(self, folder: Path) -> Any:
        """By its place, as a run gives it."""
        return a_source({"source": "own_source:Clicks", "seed": 1})

    def test_what_is_wrong_with_it_is_told(self) -> None:
        with pytest.raises(UsageError, match=r"data\.train\.sed is no setting; did you mean"):
            a_source({"source": "own_source:Clicks", "sed": 1})
        with pytest.raises(UsageError, match=r"needs data in files of a format, and data\.train names a source"):
            a_source({"source": "own_source:Clicks"}, feed=1)

    def test_a_state_that_it_refuses_is_refused_before_a_start(self) -> None:
        """It is asked for a batch after the state, and for none where there is no state."""
        asked: list[tuple[int, int]] = []

        class Strict:
            def batches(self, _: int, world: int, size: int, state: Any) -> Iterator[Any]:
                asked.append((world, size))
                if state["topic"] != "eu":
                    raise UsageError("the position is of topic us")
                yield None, state

        source: Any = Strict()
        check_state(source, None, 2, 8)
        assert asked == []
        check_state(source, {"topic": "eu"}, 2, 8)
        with pytest.raises(UsageError, match="the position is of topic us"):
            check_state(source, {"topic": "us"}, 2, 8)
        assert asked == [(2, 8)] * 2

    def test_samples_can_be_counted_in(self) -> None:
        assert numbers(first_batch(self.make(Path()), 9)) == list(range(9))


OWN_FORMAT = """
import numpy as np
from recsmith.data import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.source import SampleBlock


class Numbers:
    files, max_corrupt, digest = (), 0, "numbers"
    schema = DataSchema(features=(DataFeature(name="number", num_embeddings=10),), dense=(), labels=("even",))

    def __init__(self, count: int) -> None:
        self.num_samples = count

    def sizes(self):
        return np.array([self.num_samples // 2, self.num_samples - self.num_samples // 2])

    def read(self, block):
        first, size = block * (self.num_samples // 2), self.sizes()[block]
        numbers = first + np.arange(size)
        ids = JaggedIds(values=numbers % 10, lengths=np.ones(size, np.int32))
        labels = (numbers % 2 == 0).astype(np.float32)[:, None]
        return SampleBlock(samples=Batch(
            dense=np.zeros((size, 0), np.float32), ids={"number": ids}, labels=labels, label_names=("even",),
            sample_ids=numbers,
        ))
"""


class TestFormatOfOnesOwn(BatchSourceContract):
    """A format in one file: a spec names it, and a source it has by that alone."""

    @pytest.fixture(autouse=True)
    def on_the_path(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        """The module can be imported."""
        folder = tmp_path_factory.mktemp("format")
        (folder / "own_format.py").write_text(OWN_FORMAT)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(__import__("sys").modules, "own_format", raising=False)

    def make(self, folder: Path) -> Any:
        """By its place."""
        return a_source({"format": "own_format:Numbers", "count": 400})

    def test_what_is_wrong_with_it_is_told(self) -> None:
        with pytest.raises(UsageError, match=r"data\.count is missing"):
            open_dataset(spec_from_raw({"format": "own_format:Numbers"}, "here"))
        with pytest.raises(UsageError, match="'pathlib:Path' is no format of data: it has no schema, sizes, read"):
            open_dataset(spec_from_raw({"format": "pathlib:Path"}, "here"))


def grown(folder: Path, form: str) -> tuple[list[Any], Any, Path]:
    """(seven batches of a folder of one file, the source of it with a second one behind, the folder)."""
    data, more = folder / "data", folder / "more"
    features = [{"name": f"f{at}", "num_embeddings": 30} for at in range(26)]
    for target, first, count in ((data, 0, 300), (more, 300, 200)):
        raw = {"format": "generator", "dense": 13, "num_samples": count, "first_sample": first, "features": features}
        spec = spec_from_raw(raw, "here")
        assert isinstance(spec, GeneratorSpec)
        write_dataset(open_dataset(spec), target, "criteo" if form == "criteo" else "parquet")
    train: Any = {"format": "criteo", "paths": [str(data)]} if form == "criteo" else str(data)
    before = a_source(train, epochs=2)
    kept = read(before, 0, 1, SIZE, steps=7)
    added = next(more.iterdir())
    shutil.copy2(added, data / ("day_1" if form == "criteo" else "part-00001.parquet"))
    return kept, a_source(train, epochs=2), data


@pytest.mark.parametrize("form", ["criteo", "parquet"])
def test_data_that_grew_ends_its_epoch_with_what_there_was(tmp_path: Path, form: str):
    kept, after, data = grown(tmp_path, form)
    state = json.loads(json.dumps(kept[-1][1]))
    sizes = BatchSizes(((0, SIZE),))
    (note,) = set(after.notes(sizes, 1, state)) - set(after.notes(sizes, 1, None))
    assert note.startswith("data.train has 500 samples, and had 300 samples when this epoch began")
    rest = read(after, 0, 1, SIZE, state, steps=100)
    first = [batch for batch, reached in rest if reached["epoch"] == 0]
    used = [number for batch in [batch for batch, _ in kept] + first for number in numbers(batch)]
    assert len(used) == len(set(used)) == 300 // SIZE * SIZE
    assert max(used) < 300
    second = [number for batch, reached in rest if reached["epoch"] == 1 for number in numbers(batch)]
    assert len(set(second)) == 500 // SIZE * SIZE
    next(iter(sorted(data.iterdir()))).unlink()
    with pytest.raises(CorruptFile, match="the position is of other data"):
        read(a_source(str(data)), 0, 1, SIZE, state)
