"""What tables that are stored smaller give a model."""

import numpy as np
import pytest

from embeddings.stored import COLUMNS, ROWS, TRANSFORMS, bags

torch = pytest.importorskip("torch")
pytest.importorskip("torchrec")

from torchrec import EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402
from torchrec.modules.embedding_configs import PoolingType  # noqa: E402

from recsmith.data import JaggedIds  # noqa: E402
from recsmith.embeddings import physical  # noqa: E402
from recsmith.errors import UsageError  # noqa: E402
from recsmith.training.tables.plain import vectors_of  # noqa: E402
from recsmith.training.tables.stored import StoredTables  # noqa: E402


def tables(name: str, pooling: PoolingType) -> StoredTables:
    config = EmbeddingBagConfig(
        name="t", num_embeddings=ROWS, embedding_dim=COLUMNS, feature_names=["f", "g"], pooling=pooling
    )
    torch.manual_seed(0)
    made = StoredTables([config], torch.device("cpu"), transforms={"t": TRANSFORMS[name]})
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def jagged(name: str, features: dict[str, JaggedIds]) -> KeyedJaggedTensor:
    transform = TRANSFORMS[name]
    found = {
        physical(feature, lookup.name): each
        for feature, ids in features.items()
        for lookup, each in zip(transform.lookups, transform.route(ids), strict=True)
    }
    return KeyedJaggedTensor(
        keys=list(found),
        values=torch.cat([torch.from_numpy(each.values) for each in found.values()]),
        lengths=torch.cat([torch.from_numpy(each.lengths) for each in found.values()]),
    )


@pytest.mark.parametrize("pooling", [PoolingType.SUM, PoolingType.MEAN])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_bag_is_the_sum_or_mean_of_the_rows_of_its_ids(name: str, pooling: PoolingType) -> None:
    made = tables(name, pooling)
    rows = vectors_of(made, "t")
    assert rows.shape == (ROWS, COLUMNS * (2 if name == "generate" else 1))
    features = {"f": bags(ROWS, 30, seed=1), "g": bags(ROWS, 30, seed=2)}
    found = made(jagged(name, features)).to_dict()
    for feature, ids in features.items():
        parts = torch.split(rows[torch.from_numpy(ids.values)], ids.lengths.tolist())
        wanted = torch.stack(
            [part.sum(0) if pooling == PoolingType.SUM or not len(part) else part.mean(0) for part in parts]
        )
        names = [each for each in found if each == feature or each.startswith(f"{feature}@")]
        vector = torch.cat([found[each] for each in names], dim=1)
        torch.testing.assert_close(vector.detach(), wanted, rtol=1e-5, atol=1e-5)


def test_ids_that_are_told_apart_have_vectors_of_their_own() -> None:
    for name in ("multiply", "add", "concat", "three", "chinese", "blocks", "generate"):
        assert len(np.unique(vectors_of(tables(name, PoolingType.SUM), "t").numpy(), axis=0)) == ROWS
    assert len(np.unique(vectors_of(tables("hash", PoolingType.SUM), "t").numpy(), axis=0)) <= 20


def test_each_partition_is_a_feature_to_the_model_where_it_generates() -> None:
    made = tables("generate", PoolingType.SUM)
    wanted = ["f@partition0", "f@partition1", "g@partition0", "g@partition1"]
    assert [name for config in made.embedding_bag_configs() for name in config.feature_names] == wanted
    found = made(jagged("generate", {name: bags(ROWS, 4, seed=1) for name in "fg"}))
    assert (found.keys(), found.length_per_key()) == (wanted, [COLUMNS] * 4)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UsageError, match="there is no table 'tt'"):
        vectors_of(tables("hash", PoolingType.SUM), "tt")
