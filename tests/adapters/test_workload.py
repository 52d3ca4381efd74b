"""What is read of a model: its tables and features, what is looked up in them, and its optimizer."""

from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def _workload(**words: Any) -> Any:
    from support.jobs import TwoCollections, constraints
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.torchrec import read_workload

    return read_workload(TwoCollections(), get_default_sharders(), batch_size=16, constraints=constraints(), **words)


def test_tables_features_and_collections_are_read_from_the_model() -> None:
    tables = {table.name: table for table in _workload().tables}
    assert set(tables) == {"pooled.t0", "weighted.t0", *(f"t{i}" for i in range(1, 6)), "s"}
    assert [f.name for f in tables["t1"].features] == ["shared", "f1"]
    assert [(f.pooling_factor, f.num_poolings) for f in tables["t1"].features] == [(3.0, 1.0), (0.5, 2.0)]
    assert tables["t1"].collection == "pooled"
    assert tables["weighted.t0"].weighted
    assert not tables["s"].pooled


def test_each_table_has_its_attached_optimizer_and_the_workload_the_heaviest() -> None:
    import torch
    from support.jobs import TwoCollections
    from torchrec.distributed.sharding_plan import get_default_sharders
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    from recsmith.torchrec import read_workload

    model = TwoCollections()
    assert read_workload(model, get_default_sharders(), batch_size=16).optimizer == "sgd"
    apply_optimizer_in_backward(RowWiseAdagrad, model.pooled.parameters(), {"lr": 0.1})
    assert read_workload(model, get_default_sharders(), batch_size=16).optimizer == "rowwise_adagrad"
    apply_optimizer_in_backward(torch.optim.Adam, model.sequence.parameters(), {"lr": 0.1})
    both = read_workload(model, get_default_sharders(), batch_size=16)
    assert both.optimizer == "adam"
    kinds = {table.collection: both.optimizer_of(table) for table in both.tables if table.collection != "weighted"}
    assert kinds == {"pooled": "rowwise_adagrad", "sequence": "adam"}


def test_constraints_of_the_wrong_length_are_refused() -> None:
    from support.jobs import TwoCollections
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.torchrec import read_workload

    wrong = {"t1": ParameterConstraints(pooling_factors=[1.0, 2.0, 3.0])}
    with pytest.raises(UsageError, match="3 pooling_factors for 2 features"):
        read_workload(TwoCollections(), get_default_sharders(), batch_size=16, constraints=wrong)


def test_an_optimizer_that_is_given_replaces_the_attached_one() -> None:
    assert (_workload().optimizer, _workload(optimizer="adam").optimizer) == ("sgd", "adam")
    assert _workload(optimizer="EXACT_ROWWISE_ADAGRAD").optimizer == "rowwise_adagrad"
    with pytest.raises(UsageError, match="no optimizer is called 'rmsprop'; known: sgd, "):
        _workload(optimizer="rmsprop")
