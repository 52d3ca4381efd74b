"""Names and rectangles of shards. That models are sharded and train: test_exactness.py."""

import pytest

pytestmark = pytest.mark.usefixtures("torchrec")


def test_a_parameter_names_its_table():
    from recsmith.jobs.sharded_model import table_of

    assert table_of("collections.0.embedding_bags.t0.weight") == "t0"


def test_a_shard_is_a_rectangle_of_the_table():
    import torch

    from recsmith.jobs.sharded_model import shard_of

    whole = torch.arange(12).reshape(4, 3)
    assert shard_of(whole, (1, 1), torch.Size((2, 2))).tolist() == [[4, 5], [7, 8]]
    assert shard_of(whole, (0, 0), torch.Size((4, 3))).tolist() == whole.tolist()


def test_shards_are_read_and_written_in_their_tables():
    import torch

    from recsmith.jobs.sharded_model import load_weights, local_shards

    model = torch.nn.ModuleDict({"t0": torch.nn.Linear(3, 2, bias=False)})  # as a copy on every rank
    load_weights(model, {"t0": torch.ones(2, 3)})
    ((table, corner, tensor),) = local_shards(model)
    assert (table, corner, tensor.tolist()) == ("t0", (0, 0), [[1.0] * 3] * 2)
