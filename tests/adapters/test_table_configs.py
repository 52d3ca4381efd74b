"""What a table's configuration asks for is planned, or refused with the table's name."""

from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def _check(**words: Any) -> None:
    from torchrec import EmbeddingConfig

    from recsmith.adapters.table_configs import check_config

    check_config(EmbeddingConfig(name="t", embedding_dim=8, num_embeddings=10, feature_names=["f"], **words))


@pytest.mark.parametrize(
    "words", [{"use_virtual_table": True}, {"total_num_buckets": 4}, {"enable_embedding_update": True}]
)
def test_virtual_tables_are_refused_with_their_name(words: dict[str, Any]) -> None:
    name, value = next(iter(words.items()))
    with pytest.raises(UsageError, match=rf"table 't': EmbeddingConfig\.{name} is {value}; .*leave it out"):
        _check(**words)


def test_what_the_module_keeps_itself_is_not_refused() -> None:
    _check(weight_init_max=0.5, need_pos=True, num_embeddings_post_pruning=5, stash_weights=True)
