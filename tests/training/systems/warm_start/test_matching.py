"""What comes along from another training, by names and shapes; and which inputs of a layer are of which feature."""

from importlib.util import find_spec
from typing import Any

import pytest

from recsmith.data import DataFeature, DataSchema
from recsmith.errors import UsageError
from recsmith.training.run import RunModel
from recsmith.training.systems.warm_start.layers import inputs_of

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
TABLE = "model.embedding_bags.{}.weight"


def matched(here: dict[str, Any], there: dict[str, Any], inputs: Any = ()) -> Any:
    from recsmith.training.systems.warm_start.matching import match_weights

    return match_weights(here, there, inputs, "runs/monday")


def test_tables_grow_and_come_and_go():
    here = {TABLE.format("user"): (15, 8), TABLE.format("shop"): (3, 8), "top.weight": (4, 4)}
    there = {TABLE.format("user"): (10, 8), TABLE.format("old"): (3, 8), "top.weight": (4, 4), "gone.weight": (2, 2)}
    found = matched(here, there)
    assert found.grown == {TABLE.format("user"): 10}
    assert found.whole == {"top.weight"}
    assert found.lines == [
        "table user grows from 10 to 15 rows; the new ones are drawn",
        "table shop is new, and drawn",
        "table old is left out",
    ]


def test_a_layer_of_another_shape_is_drawn_anew_and_named():
    table = {TABLE.format("a"): (4, 8)}
    found = matched({**table, "top.weight": (4, 6)}, {**table, "top.weight": (4, 5)})
    assert not found.takes("top.weight")
    (line,) = found.lines
    assert line == (
        "layers drawn anew, for they are not there or have another shape: top.weight (4 x 5 there, 4 x 6 here)"
    )


def test_inputs_find_their_places_by_name():
    table = {TABLE.format("a"): (4, 8)}
    found = matched({**table, "top.weight": (7, 3)}, {**table, "top.weight": (7, 2)}, [(["a", "new", "b"], ["b", "a"])])
    assert found.moved["top.weight"].moves == ((1, (0, 2), (1, 0)),)
    assert found.lines == ["layer top.weight has 1 new inputs, which begin at zero"]


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ((10, 8), (10, 16), "has 16 columns in 'runs/monday' and 8 here"),
        ((9, 8), (10, 8), "has 10 rows in 'runs/monday' and 9 here, so rows that were learned would be lost"),
    ],
)
def test_rows_that_cannot_come_along_are_refused(here: Any, there: Any, said: str):
    with pytest.raises(UsageError, match=said):
        matched({TABLE.format("a"): here}, {TABLE.format("a"): there})


def test_another_model_is_refused_with_the_tables_of_both():
    with pytest.raises(UsageError, match="has none of this model's tables: it has x, y, and the model has a"):
        matched({TABLE.format("a"): (4, 8)}, {TABLE.format("x"): (4, 8), TABLE.format("y"): (4, 8)})


@pytest.mark.parametrize("name", ["dlrm", "dlrm_dcn", "deepfm"])
def test_a_new_feature_changes_no_score_until_it_is_learned(name: str):
    """Inputs of every built-in model are named right: with the new ones at zero, logits are those of the old model."""
    import torch
    from torchrec import KeyedJaggedTensor

    from recsmith.training.job.models import build_task
    from recsmith.training.systems.warm_start.reads import put

    def schema(names: str) -> DataSchema:
        features = tuple(DataFeature(name=each, num_embeddings=5) for each in names)
        return DataSchema(features=features, dense=("x", "y") if "n" in names else ("y",), labels=("label",))

    model = RunModel(name=name, embedding_dim=8, bottom=(8,), top=(8,), hidden=8, factors=8, cross_rank=4)
    old, new = (build_task(model, schema(names), seed=1, tables_on="cpu") for names in ("ab", "nba"))
    before, after = old.state_dict(), new.state_dict()
    inputs = list(zip(inputs_of(model, schema("nba")), inputs_of(model, schema("ab")), strict=True))
    shapes = [{key: tuple(each.shape) for key, each in state.items()} for state in (after, before)]
    found = matched(shapes[0], shapes[1], inputs)
    with torch.no_grad():
        for key, inputs_moved in found.moved.items():
            put(after[key], before[key], inputs_moved)
        for key in found.whole:
            after[key].copy_(before[key])
        if name == "deepfm":  # adds up products of all rows, which no layer weighs
            after["model.sparse_arch.embedding_bag_collection.embedding_bags.n.weight"].zero_()
    assert set(found.whole) | set(found.moved) | {key for key in after if ".n." in key} == set(after)
    ids, dense = torch.randint(5, (3, 6)), torch.randn(6, 2)
    ones = torch.ones(18, dtype=torch.long)
    wide = KeyedJaggedTensor(["n", "b", "a"], ids.flatten(), lengths=ones)
    narrow = KeyedJaggedTensor(["a", "b"], torch.stack([ids[2], ids[1]]).flatten(), lengths=ones[:12])
    assert torch.allclose(new.model(dense, wide), old.model(dense[:, 1:], narrow), atol=1e-6)
