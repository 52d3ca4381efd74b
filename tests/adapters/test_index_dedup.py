"""FBGEMM's operator of different ids, on CPU: as its CUDA kernel answers, whatever tables share features."""

import pytest

pytestmark = pytest.mark.usefixtures("torchrec")


def found_of(
    rows: list[int], features: list[int], bags: list[list[list[int]]]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """What the operator answers. rows, features: of each table; bags: ids of each bag of each feature."""
    import torch

    from recsmith.adapters.index_dedup import on_cpu

    on_cpu()
    sizes: list[int] = []
    counts: list[int] = []
    for each, count in zip(rows, features, strict=True):  # as ShardedEmbeddingCollection lays them out
        sizes += [0] * (count - 1) + [each]
        counts += [count] + [0] * (count - 1)
    offsets = torch.tensor([0] + [len(bag) for feature in bags for bag in feature]).cumsum(0)
    ids = torch.tensor([i for feature in bags for bag in feature for i in bag], dtype=torch.int64)
    found = torch.ops.fbgemm.jagged_unique_indices(
        torch.tensor([0, *sizes]).cumsum(0), torch.tensor([0, *counts]).cumsum(0), offsets, ids
    )
    lengths, ends, different, place = (each.tolist() for each in found)
    assert [different[i] for i in place] == ids.tolist()
    assert ends == [0, *torch.tensor(lengths).cumsum(0).tolist()]
    return lengths, ends, different, place


def test_equal_ids_of_a_table_are_found_once_and_those_of_two_tables_apart() -> None:
    lengths, _, different, _ = found_of([10, 10], [1, 1], [[[3, 3], [5, 3]], [[3], [3, 9]]])
    assert different == [3, 5, 3, 9]
    assert lengths == [1, 1, 1, 1]


def test_features_of_one_table_share_its_different_ids() -> None:
    lengths, _, different, _ = found_of([10, 7], [2, 1], [[[1], [2]], [[2], [1, 8]], [[1], [1]]])
    assert different == [1, 2, 8, 1]
    assert lengths == [1, 1, 1, 0, 1, 0]


def test_bags_without_ids_stay() -> None:
    lengths, _, different, _ = found_of([4, 4], [1, 1], [[[], []], [[], [2]]])
    assert different == [2]
    assert lengths == [0, 0, 1, 0]
    assert found_of([4], [1], [[[], []]])[0] == [0, 0]


def test_only_the_stock_sharder_of_sequences_is_replaced_and_keeps_its_settings() -> None:
    from support.build import table, workload
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    from recsmith.adapters.index_dedup import deduplicates, deduplicating

    class Own(EmbeddingCollectionSharder): ...

    made = [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder({"learning_rate": 0.5}), Own()]
    on = deduplicating(made, workload(table("s", pooling="none"), index_dedup="on"))
    assert [deduplicates(each) for each in on] == [False, True, False]
    assert on[1].fused_params == {"learning_rate": 0.5}
    assert (on[0], on[2]) == (made[0], made[2])
    assert deduplicating(made, workload(table("s", pooling="none"))) == made
