"""Which ranks a piece covers, and where its tail is: the functions agree with the shards of every sharding type."""

import numpy as np
import pytest
from support.build import cluster, table

from recsmith.sharding import SHARDING_TYPES, ShardingType
from recsmith.sharding.coverage import (
    by_target,
    bytes_on,
    covered_ranks,
    covering_target,
    covers,
    first_rank,
    holds_tail,
    last_rank,
)

MACHINES = cluster(hosts=3, local=2)
TABLE = table(rows=16, dim=8)  # 6 blocks of 3 rows and fewer, 2 blocks of 8


@pytest.mark.parametrize("kind", SHARDING_TYPES, ids=lambda kind: kind.name)
def test_the_ranks_of_a_piece_are_those_of_its_shards(kind: ShardingType):
    size = kind.coverage(MACHINES)
    for target in range(MACHINES.world_size // size):
        ranks = kind.ranks((target,), MACHINES)
        assert covered_ranks(np.array([target]), size).tolist() == [list(ranks)]
        assert (first_rank(target, size), last_rank(target, size)) == (ranks[0], ranks[-1])
        every = np.arange(MACHINES.world_size)
        assert np.flatnonzero(covers(np.array(target), np.array(size), every)).tolist() == list(ranks)
        assert {covering_target(rank, size) for rank in ranks} == {target}


@pytest.mark.parametrize("kind", [kind for kind in SHARDING_TYPES if kind.splits_rows], ids=lambda kind: kind.name)
def test_the_last_covered_rank_alone_holds_the_shorter_block(kind: ShardingType):
    ranks = kind.ranks((0,), MACHINES)
    heights = [shard.rows[1] - shard.rows[0] for shard in kind.shards(TABLE, ranks, (TABLE.embedding_dim,), MACHINES)]
    size = kind.coverage(MACHINES)
    head, tail = heights[0], heights[-1]
    assert head > tail or size == MACHINES.local_world_size  # 16 rows on two ranks leave no shorter block
    assert bytes_on(np.array(ranks), size, np.array(head), np.array(tail)).tolist() == heights
    assert holds_tail(np.array(ranks), size).tolist() == [rank == ranks[-1] for rank in ranks]


def test_values_of_ranks_are_grouped_by_the_targets_that_cover_them():
    assert by_target(np.arange(6), 2).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert by_target(np.arange(6), 6)[:, -1].tolist() == [last_rank(0, 6)]
