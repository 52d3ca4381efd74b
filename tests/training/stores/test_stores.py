"""The stores of RecSmith, and the one of examples/own_rows.py, keep the contract."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from support.systems import needs_systems

from recsmith.errors import UsageError
from recsmith.testing.stores import RowStoreContract, TrainedStoreContract, a_model, an_optimizer
from recsmith.training.stores import fetched_ahead, store_of
from recsmith.training.stores.checkpoint import CheckpointRows, write_checkpoint

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class TestDevice(TrainedStoreContract):
    """Rows on the device."""

    def make(self, folder: Path) -> Any:
        """By its name, as a run gives it."""
        model = a_model()
        return store_of("device", model, an_optimizer(model))


class TestOnesOwn(TrainedStoreContract):
    """A store in one file, which nothing else knows of."""

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples are on the path."""
        monkeypatch.syspath_prepend(EXAMPLES)

    def make(self, folder: Path) -> Any:
        """By its place, as a run gives it."""
        folder.mkdir(exist_ok=True)
        model = a_model()
        settings = {"name": "own_rows:CountingRows", "report": str(folder / "counts.json")}
        return store_of(settings, model, an_optimizer(model))

    def test_it_counts(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        list(store.shards())
        store.flush()
        assert json.loads((tmp_path / "counts.json").read_text()) == {"shards": 3, "flushes": 1}

    def test_its_settings_are_checked(self) -> None:
        with pytest.raises(UsageError, match=r"rows\.report is missing; give it"):
            store_of("own_rows:CountingRows", a_model(), None)


class TestCheckpoint(RowStoreContract):
    """Rows of a checkpoint on disk."""

    def make(self, folder: Path) -> Any:
        """Of one that was written in one process."""
        write_checkpoint(folder / "state", {f"model.{name}": value for name, value in a_model().state_dict().items()})
        return CheckpointRows(folder / "state")

    def test_it_is_only_read(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is only read; write another one"):
            self.make(tmp_path).state_to_load()


@needs_systems("stored")
@pytest.mark.usefixtures("torchrec")
def test_a_job_trains_with_components_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsmith.embeddings import CompressionRule
    from recsmith.training import Checkpointing, Run, RunData, RunModel, load_model, train

    monkeypatch.syspath_prepend(EXAMPLES)
    data: dict[str, Any] = {
        "format": "generator", "num_samples": 400, "dense": 2, "features": [{"name": "item", "num_embeddings": 300}],
    }  # fmt: skip
    rule = CompressionRule(method="own_storage:Bloom", arguments={"rows": 40})
    run = Run(
        data=RunData(train=data, global_batch_size=40), output=str(tmp_path / "out"), checkpoint=Checkpointing(every=4),
        model=RunModel(embedding_dim=4, bottom=(4,), top=(4,), compression=(rule,)),
        rows={"name": "own_rows:CountingRows", "report": str(tmp_path / "counts.json")},
    )  # fmt: skip
    assert train(run)["step"] == 10
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["batches"] == 11  # one more: a look at the first before weights are drawn
    assert counts["ids"] == 11 * 40 * 2  # by both hashes
    assert counts["flushes"] == 5  # of first weights, three checkpoints and the export
    assert load_model(tmp_path / "out/model").table("item").shape == (300, 4)


def test_batches_are_fetched_before_anybody_trains_on_them() -> None:
    class Fetched:
        """What was fetched, and trained on."""

        seen: list[Any]

        def prefetch(self, batch: Any) -> None:
            self.seen.append(batch)

    rows = Fetched()
    rows.seen = []
    for batch in fetched_ahead([1, 2], rows):
        rows.seen.append(f"trained on {batch}")
    assert rows.seen == [1, "trained on 1", 2, "trained on 2"]


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(UsageError, match="no row store is called 'devise'; did you mean 'device'"):
        store_of("devise", torch.nn.Linear(1, 1), None)
