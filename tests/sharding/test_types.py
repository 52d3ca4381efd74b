"""Laws of the sharding types: shards tile tables, ranks and targets are inverse, illegal placements are refused."""

import importlib.util
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recsmith import Cluster, Feature, PlanMismatch, Table, UsageError, load_cluster
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP, Shard, ShardingType, Span, sharding_type

NO_SEQUENCES = ("table_column_wise", "table_row_wise", "grid_shard")
BY_ROWS = ("row_wise", "table_row_wise", "grid_shard")

FEW = settings(max_examples=20)
every_type = pytest.mark.parametrize("kind", SHARDING_TYPES, ids=lambda kind: kind.name)


def make_cluster(local: int, hosts: int) -> Cluster:
    return replace(load_cluster("h100"), local_world_size=local, hosts=hosts)


def make_table(rows: int = 100, dim: int = 16, pooled: bool = True) -> Table:
    features = (Feature(name="f", pooling_factor=1.0),)
    pooling = "sum" if pooled else "none"
    return Table(name="t", num_embeddings=rows, embedding_dim=dim, features=features, pooling=pooling)


@dataclass(frozen=True)
class Placed:
    """A legal placement."""

    kind: ShardingType
    table: Table
    cluster: Cluster
    targets: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.kind.ranks(self.targets, self.cluster)

    @property
    def shards(self) -> tuple[Shard, ...]:
        return self.kind.shards(self.table, self.ranks, self.widths, self.cluster)

    def check(self, **changed: Any) -> None:
        ranks, widths = changed.pop("ranks", self.ranks), changed.pop("widths", self.widths)
        cluster = changed.pop("cluster", self.cluster)
        self.kind.check(replace(self.table, **changed), ranks, widths, cluster)


@st.composite
def placements(draw: st.DrawFn, kind: ShardingType, even: bool = False, many: bool = False) -> Placed:
    """Every legal placement of small tables; `many` asks for spans of at least two ranks."""
    grid = kind.name == "grid_shard"
    cluster = make_cluster(draw(st.integers(1 + many, 4)), draw(st.integers(1 + grid, 4)))
    steps = draw(st.integers(1 + grid, 16))
    pooled = not kind.runs_sequences or draw(st.booleans())
    block = draw(st.integers(1, 9))
    rows = (kind.coverage(cluster) - 1) * block + draw(st.integers(1, block))  # leaves no block empty
    table = make_table(rows, steps * WIDTH_STEP, pooled)
    least, most = kind.column_counts(table, cluster)
    if even or kind.equal_widths(table, cluster):
        pieces = draw(st.sampled_from([n for n in range(least, most + 1) if steps % n == 0] or [0]))
        assume(pieces)
        widths = [table.embedding_dim // pieces] * pieces
    else:
        pieces = draw(st.integers(least, min(most, 6)))
        cuts = draw(st.lists(st.integers(1, max(steps - 1, 1)), min_size=pieces - 1, max_size=pieces - 1, unique=True))
        widths = [WIDTH_STEP * int(width) for width in np.diff([0, *sorted(cuts), steps])]
    places = range((cluster.world_size, cluster.hosts, 1)[kind.span])
    if kind.name == "table_column_wise":
        host = draw(st.integers(0, cluster.hosts - 1))
        places = places[host * cluster.local_world_size : (host + 1) * cluster.local_world_size]
    kinds = sorted(set(widths)) if kind.span == Span.RANK else [0]  # pieces on one rank must be equally wide
    assume(len(kinds) <= len(places))
    of_width = {width: places[i :: len(kinds)] for i, width in enumerate(kinds)}
    targets = [draw(st.sampled_from(of_width.get(width, places))) for width in widths]
    return Placed(kind, table, cluster, tuple(targets), tuple(widths))


def breaks(placed: Placed, why: str, **changed: Any) -> None:
    placed.check()
    with pytest.raises(PlanMismatch, match=why):
        placed.check(**changed)


# --- shards -------------------------------------------------------------------------------------------------------


@FEW
@every_type
@given(data=st.data())
def test_every_legal_placement_passes(kind: ShardingType, data: st.DataObject) -> None:
    data.draw(placements(kind)).check()


@FEW
@every_type
@given(data=st.data())
def test_shards_tile_the_table_or_copy_it_to_every_rank(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    shape = placed.table.num_embeddings, placed.table.embedding_dim
    held = np.zeros((placed.cluster.world_size, *shape), dtype=int)
    for shard in placed.shards:
        assert 0 <= shard.rows[0] < shard.rows[1] <= shape[0]
        assert 0 <= shard.columns[0] < shard.columns[1] <= shape[1]
        held[shard.rank, slice(*shard.rows), slice(*shard.columns)] += 1
    once = held if kind.name == "data_parallel" else held.sum(axis=0)
    assert (once == 1).all()


@FEW
@every_type
@given(data=st.data())
def test_shards_come_column_piece_by_column_piece_and_rank_by_rank(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    corners = [(shard.columns[0], shard.rows[0]) for shard in placed.shards]
    assert corners == sorted(corners)
    assert tuple(shard.rank for shard in placed.shards) == placed.ranks
    first = placed.shards[:: kind.coverage(placed.cluster)]
    assert tuple(shard.columns[1] - shard.columns[0] for shard in first) == placed.widths


@FEW
@every_type
@given(data=st.data())
def test_targets_are_the_inverse_of_ranks(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    assert kind.targets(placed.ranks, placed.cluster) == placed.targets
    assert len(placed.ranks) == len(placed.targets) * kind.coverage(placed.cluster)


# --- TorchRec -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torchrec_shards() -> Any:
    """TorchRec's (row offset, rows, column offset, columns) of each shard."""
    if importlib.util.find_spec("torchrec") is None:
        pytest.skip("torchrec is not installed")
    from support.torchrec_reference import torch  # imports torchrec without its warnings
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

    def shards(placed: Placed) -> list[tuple[int, int, int, int]]:
        tensor = torch.empty(placed.table.num_embeddings, placed.table.embedding_dim, device="meta")
        world, local = placed.cluster.world_size, placed.cluster.local_world_size
        sizes, offsets = calculate_shard_sizes_and_offsets(tensor, world, local, placed.kind.name, placed.widths[0])
        corners = zip(sizes, offsets, strict=True)
        return [(top, rows, left, columns) for (rows, columns), (top, left) in corners]

    return shards


@FEW
@every_type
@given(data=st.data())
def test_shards_of_even_widths_are_torchrec_s(kind: ShardingType, data: st.DataObject, torchrec_shards: Any) -> None:
    placed = data.draw(placements(kind, even=True))
    ours = [(s.rows[0], s.rows[1] - s.rows[0], s.columns[0], s.columns[1] - s.columns[0]) for s in placed.shards]
    assert ours == torchrec_shards(placed)


@pytest.mark.parametrize("name", BY_ROWS)
@given(rows=st.integers(1, 80), local=st.integers(1, 4), hosts=st.integers(2, 4))
def test_row_blocks_are_refused_where_torchrec_leaves_one_empty(
    name: str, rows: int, local: int, hosts: int, torchrec_shards: Any
) -> None:
    kind, table, cluster = sharding_type(name), make_table(rows), make_cluster(local, hosts)
    empty = any(shard[1] == 0 for shard in torchrec_shards(Placed(kind, table, cluster, (), (8,))))
    assert (kind.refusal(table, cluster) is not None) == empty


# --- refusals -----------------------------------------------------------------------------------------------------


@FEW
@every_type
@given(data=st.data())
def test_unknown_ranks_are_refused(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    ranks = list(placed.ranks)
    unknown = data.draw(st.sampled_from([-1, placed.cluster.world_size]))
    ranks[data.draw(st.integers(0, len(ranks) - 1))] = unknown
    breaks(placed, f"rank {unknown} is not one of", ranks=ranks)


@FEW
@every_type
@given(data=st.data())
def test_widths_must_be_multiples_of_4(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    widths = list(placed.widths)
    at = data.draw(st.integers(0, len(widths) - 1))
    widths[at] = data.draw(st.integers(-4, placed.table.embedding_dim).filter(lambda width: width < 4 or width % 4))
    breaks(placed, "must be multiples of 4", widths=widths)


@FEW
@every_type
@given(data=st.data())
def test_widths_must_add_up_to_the_dim(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    widths = list(placed.widths)
    widths[data.draw(st.integers(0, len(widths) - 1))] += 4 * data.draw(st.integers(1, 9))
    breaks(placed, f"add up to {sum(widths)}, not {placed.table.embedding_dim}", widths=widths)
    with pytest.raises(PlanMismatch):
        placed.check(widths=placed.widths[:-1])


@FEW
@every_type
@given(data=st.data())
def test_there_must_be_a_rank_for_every_shard(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind))
    breaks(placed, "ranks .* must be", ranks=placed.ranks[:-1])
    breaks(placed, "ranks .* must be", ranks=(*placed.ranks, placed.ranks[0]))


@pytest.mark.parametrize(
    "kind", [kind for kind in SHARDING_TYPES if kind.span != Span.RANK], ids=lambda kind: kind.name
)
@given(data=st.data())
def test_ranks_of_hosts_and_of_the_world_must_be_in_order(kind: ShardingType, data: st.DataObject) -> None:
    placed = data.draw(placements(kind, many=True))
    ranks = list(placed.ranks)
    span = kind.coverage(placed.cluster)
    start = span * data.draw(st.integers(0, len(placed.targets) - 1))
    shuffled = data.draw(st.permutations(ranks[start : start + span]).filter(lambda part: part != sorted(part)))
    breaks(placed, "in order", ranks=[*ranks[:start], *shuffled, *ranks[start + span :]])
    twice = [*ranks[:start], ranks[start], *ranks[start : start + span - 1], *ranks[start + span :]]
    breaks(placed, "in order", ranks=twice)


@pytest.mark.parametrize("name", ["table_row_wise", "grid_shard"])
@given(local=st.integers(2, 4), shift=st.integers(1, 3))
def test_the_ranks_of_a_host_must_be_one_host_s(name: str, local: int, shift: int) -> None:
    kind, cluster = sharding_type(name), make_cluster(local, 3)
    pieces = 1 + (name == "grid_shard")
    placed = Placed(kind, make_table(), cluster, tuple(range(pieces)), (16 // pieces,) * pieces)
    ranks = [rank + 1 + (shift - 1) % (local - 1) for rank in placed.ranks]
    breaks(placed, "the .* ranks of a host in order", ranks=ranks)


@given(data=st.data())
def test_table_column_wise_stays_on_one_host(data: st.DataObject) -> None:
    cluster = make_cluster(data.draw(st.integers(1, 4)), data.draw(st.integers(2, 4)))
    ranks = data.draw(st.lists(st.integers(0, cluster.world_size - 1), min_size=2, max_size=4))
    hosts = {rank // cluster.local_world_size for rank in ranks}
    assume(len(hosts) > 1)
    table, widths = make_table(dim=4 * len(ranks)), (4,) * len(ranks)
    placed = Placed(sharding_type("table_column_wise"), table, cluster, (0,) * len(ranks), widths)
    breaks(placed, "must lie on one host", ranks=ranks)
    replace(placed, kind=sharding_type("column_wise")).check(ranks=ranks)


@pytest.mark.parametrize("name", NO_SEQUENCES)
@given(data=st.data())
def test_sequence_tables_are_refused_where_torchrec_does_not_run_them(name: str, data: st.DataObject) -> None:
    breaks(data.draw(placements(sharding_type(name))), "does not run sequence tables", pooling="none")


@given(data=st.data())
def test_grid_shard_takes_equal_widths_on_two_hosts_or_more(data: st.DataObject) -> None:
    placed = data.draw(placements(sharding_type("grid_shard")))
    first, second, *rest = placed.widths
    if first > 4:
        breaks(placed, "takes equal ones", widths=[first - 4, second + 4, *rest])
    dim = placed.table.embedding_dim
    breaks(placed, "column pieces; between 2 and", widths=[dim], ranks=placed.ranks[: placed.cluster.local_world_size])
    breaks(placed, "needs two hosts", cluster=replace(placed.cluster, hosts=1))


def test_grid_shard_takes_at_most_one_piece_a_host() -> None:
    placed = Placed(sharding_type("grid_shard"), make_table(), make_cluster(2, 2), (0, 1), (8, 8))
    breaks(placed, "4 column pieces; between 2 and 2", widths=(4,) * 4, ranks=placed.ranks * 2)


def test_column_wise_sequence_tables_take_equal_widths() -> None:
    placed = Placed(sharding_type("column_wise"), make_table(pooled=False), make_cluster(2, 1), (0, 1), (8, 8))
    breaks(placed, "takes equal ones", widths=(4, 12))
    placed.check(widths=(4, 12), pooling="sum")


@pytest.mark.parametrize("kind", [kind for kind in SHARDING_TYPES if not kind.splits_columns], ids=lambda k: k.name)
def test_only_column_types_split_columns(kind: ShardingType) -> None:
    placed = Placed(kind, make_table(), make_cluster(2, 2), (0,), (16,))
    breaks(placed, "2 column pieces; between 1 and 1", widths=(8, 8), ranks=placed.ranks * 2)


@pytest.mark.parametrize("name", BY_ROWS)
@given(rows=st.integers(1, 80), local=st.integers(1, 4), hosts=st.integers(2, 4))
def test_row_types_refuse_exactly_the_tables_that_leave_a_block_empty(
    name: str, rows: int, local: int, hosts: int
) -> None:
    kind, table, cluster = sharding_type(name), make_table(rows), make_cluster(local, hosts)
    blocks = kind.coverage(cluster)
    used = math.ceil(rows / math.ceil(rows / blocks))
    pieces = 1 + (name == "grid_shard")
    placed = Placed(kind, table, cluster, (0,) * pieces, (16 // pieces,) * pieces)
    if used == blocks:
        placed.check()
    else:
        with pytest.raises(PlanMismatch, match=f"leave a rank of {blocks} empty"):
            placed.check()


def test_a_misspelt_type_is_named_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"column_wize.*column_wise"):
        sharding_type("column_wize")


def test_pieces_of_a_table_on_one_rank_must_be_equally_wide() -> None:
    cluster = make_cluster(2, 1)
    table = make_table(8, 32, True)
    kind = sharding_type("column_wise")
    kind.check(table, [0, 1, 1], [16, 8, 8], cluster)
    with pytest.raises(PlanMismatch, match="rank 1 holds pieces of 20 and 4 columns"):
        kind.check(table, [0, 1, 1], [8, 20, 4], cluster)
