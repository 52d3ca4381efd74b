"""The workloads that ship with RecSmith: they load, name their source, and have the figures that are known of them."""

import pytest

from recsmith.workloads import builtins, load_workload


def test_the_list_of_built_ins_is_frozen():
    assert builtins() == ("criteo-1tb", "criteo-kaggle", "dlrm-v2")


@pytest.mark.parametrize("name", builtins())
def test_a_built_in_loads_and_names_its_source(name: str):
    work = load_workload(name)
    assert work.name == name
    assert len(work.source) > 20
    assert len(work.tables) == 26


def test_dlrm_v2_is_the_one_of_mlperf():
    work = load_workload("dlrm-v2")
    assert work.batch_size == 8192
    assert work.optimizer == "rowwise_adagrad"
    assert {table.embedding_dim for table in work.tables} == {128}
    assert sum(table.num_embeddings for table in work.tables) == 204_184_588
    assert sum(table.features[0].pooling_factor for table in work.tables) == 214
    assert work.weight_bytes / 2**30 == pytest.approx(97.36, abs=0.005)
