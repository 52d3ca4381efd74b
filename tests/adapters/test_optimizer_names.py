"""Optimizers are known by RecSmith's words and FBGEMM's names."""

import pytest

from recsmith.adapters.optimizer_names import FBGEMM_NAMES, read_optimizer
from recsmith.errors import UsageError
from recsmith.workloads.optimizers import OPTIMIZERS

SAME = {
    "EXACT_SGD": "sgd", "SGD": "sgd", "EXACT_ADAGRAD": "adagrad", "EXACT_ROWWISE_ADAGRAD": "rowwise_adagrad",
    "ADAM": "adam", "PARTIAL_ROWWISE_ADAM": "partial_rowwise_adam", "LAMB": "lamb",
}  # fmt: skip


@pytest.mark.parametrize(("name", "word"), SAME.items())
def test_fbgemms_names_are_known_in_upper_and_lower_case(name: str, word: str) -> None:
    assert read_optimizer(name) == read_optimizer(name.lower()) == read_optimizer(word) == word


@pytest.mark.parametrize("name", SAME)
def test_fbgemms_own_members_are_known(fbgemm: None, name: str) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    assert read_optimizer(EmbOptimType[name]) == read_optimizer(EmbOptimType[name].value) == SAME[name]


def test_every_name_is_one_of_fbgemm(fbgemm: None) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    named = {member.name.lower() for member in EmbOptimType} | {member.value for member in EmbOptimType}
    assert set(FBGEMM_NAMES) <= named


@pytest.mark.parametrize("name", ["SHAMPOO", "rmsprop", ""])
def test_other_optimizers_are_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(UsageError) as error:
        read_optimizer(name)
    assert all(known in str(error.value) for known in (*OPTIMIZERS, "EXACT_ROWWISE_ADAGRAD"))
