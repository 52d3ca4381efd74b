"""Plans that a machine can run."""

from functools import cache
from typing import Any

import pytest

from recsmith import Feature, Plan, Table, Workload, load_cluster, plan
from support.quick_plans import search


@cache
def two_tables(cluster: str = "cpu:2", optimizer: Any = "rowwise_adagrad", **words: Any) -> Plan:
    """The plan that `auto` searches for two tables of 100 MB each."""
    features = (Feature(name="f", pooling_factor=5),)
    tables = tuple(
        Table(name=name, num_embeddings=400_000, embedding_dim=64, features=features, **words) for name in "ab"
    )
    with pytest.MonkeyPatch.context() as patch:
        search(set_=patch.setattr)
        return plan(Workload(batch_size=1024, optimizer=optimizer, tables=tables), load_cluster(cluster)).plan
