"""A watched job asks for rows of its tables of ids without end, on all ranks at the same step."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.systems import needs_systems

pytest.importorskip("datasketches")
pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
    needs_systems("dynamic"),
]
STEPS, BATCH = 40, 512


def _told(folder: Path, rows: int) -> list[dict[str, Any]]:
    """Lines of the log that ask for rows. Rows of table `many`, which reads some thousand ids; `few` reads 30."""
    from recsmith.training import Run, RunData, RunModel, train
    from recsmith.training.systems.dynamic.settings import DynamicRule

    features = [{"name": "many", "num_embeddings": 4000, "zipf": 0.6}, {"name": "few", "num_embeddings": 30}]
    data = {"format": "generator", "num_samples": STEPS * BATCH, "dense": 1, "features": features}
    rules = (DynamicRule(tables="many", rows=rows), DynamicRule(tables="few", rows=60))
    train(
        Run(
            data=RunData(train=data, global_batch_size=BATCH), output=str(folder), ranks=2,
            model=RunModel(embedding_dim=4, bottom=(4,), top=(4,), dynamic=rules),
            watch={"every": 2, "kinds": ["rows"], "sketch_every": 20},
        )
    )  # fmt: skip
    found = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [each for each in found if each["event"] == "alarm"]


def test_rows_that_will_not_be_enough_are_asked_for(tmp_path: Path) -> None:
    asked = _told(tmp_path / "few rows", 1500)
    assert {each["kind"] for each in asked} == {"rows"}
    assert {each["of"] for each in asked} == {"many"}
    assert asked[0]["step"] == 40  # 20 looks of 256 ids of a rank are enough to tell
    because = asked[0]["because"]
    assert because.startswith("table 'many' has 1,500 rows, which ")
    wanted = int(because.split("so give it ")[1].split(";")[0].replace(",", ""))
    assert 3000 < wanted < 5500  # of 4,000 ids, a tenth more than are needed
    share = float(because.split("lookups are of new ids, and ")[1].split("%")[0])
    assert 5 < share < 100  # of lookups, that take the row of another id


def test_rows_that_are_enough_are_not_asked_for(tmp_path: Path) -> None:
    assert _told(tmp_path / "enough", 5000) == []
