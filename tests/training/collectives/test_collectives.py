"""In which form messages cross ranks: codecs change losses by no more than they round, and plans are priced by them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from support.plans import two_tables

import recsmith
from recsmith.errors import UsageError
from recsmith.planning.simulate import price
from recsmith.testing import CollectiveContract
from recsmith.training import Run, RunComms, RunData, RunModel, train

EXAMPLES = Path(__file__).parents[3] / "examples"
ROUNDED: dict[str, Any] = {"name": "own_collective:Rounded", "bits": 6}
FEATURES = [{"name": name, "num_embeddings": size} for name, size in (("a", 300_000), ("b", 500_000))]
DATA = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES, "num_samples": 512}
pytestmark = pytest.mark.usefixtures("torchrec")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are on the path."""
    monkeypatch.syspath_prepend(EXAMPLES)


class TestPlain(CollectiveContract):
    comms, changes = RunComms(), False


class TestHalves(CollectiveContract):
    comms = RunComms(forward="fp16", backward="bf16")


class TestBytes(CollectiveContract):
    comms = RunComms(forward="int8", backward="int8")


class TestOnesOwn(CollectiveContract):
    comms = ROUNDED


def test_types_that_cannot_be_carried_are_refused_in_a_sentence() -> None:
    plan = two_tables()
    by_rows = replace(plan.placements[0], sharding_type="row_wise", ranks=(0, 1))
    sums = replace(plan, placements=(by_rows, *plan.placements[1:]))
    for comms in (RunComms(forward="int8"), RunComms(backward="int8")):
        assert comms.sharding_types() == ("table_wise", "column_wise", "data_parallel")
        assert (comms.refuses(sums) or "").startswith("comms ask for int8, and table 'a' is row_wise")


def test_a_run_under_a_rounding_collective_is_priced_by_it_and_loses_little(tmp_path: Path) -> None:
    run = Run(data=RunData(train=DATA, test=DATA, batch_size=64), output=str(tmp_path / "plain"), ranks=2,
              model=RunModel(embedding_dim=8), checkpoint=None)  # fmt: skip
    plain = train(run)["test"]
    rounded = train(replace(run, output=str(tmp_path / "rounded"), comms=ROUNDED))["test"]
    assert rounded["logloss"] != plain["logloss"]
    assert rounded["logloss"] == pytest.approx(plain["logloss"], rel=0.01)
    plan = recsmith.load_plan(tmp_path / "rounded" / "plan.json")
    assert "table_wise" in {placement.sharding_type for placement in plan.placements}  # whose embeddings cross ranks
    assert plan.workload.comm_bytes == (15 / 8, 15 / 8)
    assert recsmith.load_plan(tmp_path / "plain" / "plan.json").workload.comm_bytes is None


@pytest.mark.parametrize("model", ["analytic", "torchrec"])
def test_cost_models_price_fewer_bytes_of_a_value(model: str) -> None:
    plan = two_tables()
    costs = [
        price(replace(plan.workload, **words), plan.cluster, plan.placements, cost_model=model).cost.per_device[0]
        for words in ({"comm_dtype": "fp16"}, {"comm_bytes": (2.0, 2.0)}, {"comm_bytes": (1.0, 0.5)})
    ]
    halves, same, fewer = ((cost.forward_comm_s, cost.backward_comm_s) for cost in costs)
    assert halves == same
    assert fewer[0] < same[0]
    assert fewer[1] < same[1]


def test_bytes_of_a_value_are_above_zero() -> None:
    with pytest.raises(UsageError, match=r"comm_bytes is \[0\.0, 1\.0\]"):
        replace(two_tables().workload, comm_bytes=(0.0, 1.0))
