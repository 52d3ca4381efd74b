"""Tables that are not pooled, stored smaller: each id goes where it would go as a bag of its own."""

import numpy as np
import pytest

from recsmith.data import JaggedIds
from recsmith.embeddings import CompressionRule, LogicalTable, transforms_of
from recsmith.embeddings.id_by_id import IdById
from recsmith.embeddings.workloads import compress
from recsmith.errors import UsageError
from recsmith.workloads import Feature, Table, Workload

IDS = JaggedIds(values=np.array([7, 93, 7, 40, 0]), lengths=np.array([2, 0, 3], np.int32))


def stored(**rule: object) -> IdById:
    [made] = transforms_of(
        [CompressionRule(above_rows=0, **rule)], [LogicalTable("t", 100, 8)], ["t"]  # type: ignore[arg-type]
    ).values()  # fmt: skip
    assert isinstance(made, IdById)
    return made


def test_ids_that_go_to_all_lookups_carry_nothing() -> None:
    made = stored(method="quotient_remainder", factor=4)
    routed = made.route(IDS)
    assert made.carried == ()
    assert [each.lengths.tolist() for each in routed] == [[2, 0, 3]] * 2
    assert routed[0].values.tolist() == [3, 1, 3, 0, 0]


def test_ids_that_are_parted_say_which_lookup_has_them() -> None:
    made = stored(method="path_based", factor=5, hidden=3)
    *routed, where = made.route(IDS)
    assert made.carried == ("lookups",)
    assert where.lengths.tolist() == [2, 0, 3]
    assert np.sum([each.lengths for each in routed], axis=0).tolist() == [2, 0, 3]
    networks = (IDS.values // 20).tolist()  # 100 ids in 20 rows: of each quotient one network
    assert np.log2(where.values).tolist() == networks
    for number, each in enumerate(routed):
        assert len(each.values) == networks.count(number) == each.lengths.sum()


def test_an_id_of_a_history_has_one_vector() -> None:
    with pytest.raises(UsageError, match="table 't': operation generate gives an id several vectors"):
        stored(method="quotient_remainder", factor=4, operation="generate")


def test_physical_tables_of_a_workload_are_not_pooled_either() -> None:
    table = Table(
        name="t", num_embeddings=1000, embedding_dim=8, pooling="none",
        features=(Feature(name="h", pooling_factor=50.0),),
    )  # fmt: skip
    made = compress(
        Workload(batch_size=8, optimizer="sgd", tables=(table,)), [CompressionRule(method="hash", factor=4)]
    )
    assert [(each.pooling, each.num_embeddings) for each in made.workload.tables] == [("none", 250)]
