"""The most ids, and different rows, that a batch draws of a block, beside draws; and what memory counts of them."""

from dataclasses import replace

import numpy as np
import pytest
from support.build import table, workload

from recsmith import AccessProfile, Table, load_cluster
from recsmith.analyses.fullest_rank import fullest_rank
from recsmith.planning.simulate import price
from recsmith.plans import Placement
from recsmith.problems import Constraints, Space, build_problem, footprint_of
from recsmith.problems.drawn import QUANTILE, most_ids, most_rows
from recsmith.problems.rank_bytes import predicted_bytes

CPU, GPUS = load_cluster("cpu:2"), load_cluster("h100:8")
SPLIT = Space(types=("row_wise",), kernels=("fused",))


@pytest.mark.parametrize(("lookups", "share"), [(40, 0.05), (500, 0.5), (32_768, 0.03), (32_768, 0.9), (10**6, 0.125)])
def test_999_of_1000_batches_draw_no_more_and_others_little_less(lookups: int, share: float) -> None:
    draws = np.random.default_rng(0).binomial(lookups, share, 200_000)
    most = float(most_ids(np.array([lookups * share]), np.array([share]), np.zeros(1))[0])
    assert (draws <= most).mean() >= QUANTILE - 1e-4
    assert most <= np.quantile(draws, 0.9999) + 2


def test_blocks_that_are_hot_by_turns_draw_by_how_much_batches_differ() -> None:
    draw = np.random.default_rng(1)
    shares = np.clip(draw.normal(0.4, 0.05, 100_000), 0, 1)
    draws = draw.binomial(32_768, shares)
    most = float(most_ids(np.array([32_768 * 0.4]), np.array([0.4]), np.array([0.05]))[0])
    by_chance = float(most_ids(np.array([32_768 * 0.4]), np.array([0.4]), np.zeros(1))[0])
    assert (draws <= most).mean() == pytest.approx(QUANTILE, abs=1e-3)
    assert (draws <= by_chance).mean() < 0.6, "which chance alone would promise"


def test_a_block_draws_no_more_than_all_ids_and_whole_tables_have_what_they_are_told() -> None:
    found = most_ids(np.array([3.0, 100.0, 0.0]), np.array([0.99, 1.0, 0.5]), np.array([0.5, 0.5, 0.5]))
    assert found == pytest.approx([3.0 / 0.99, 100.0, 0.0])


def test_rows_are_those_of_the_profile_where_there_is_one_and_of_an_even_draw_elsewhere() -> None:
    draw, rows, ids = np.random.default_rng(2), 5_000, 8_000
    even = [len(np.unique(draw.integers(0, rows, ids))) for _ in range(50)]
    unknown, known = most_rows(np.array([rows] * 2), np.array([float(ids)] * 2), np.array([np.inf, 900.0])).tolist()
    assert np.mean(even) == pytest.approx(unknown, rel=0.01)
    assert 900 < known < 1_000


def _sequences(access: AccessProfile | None) -> Table:
    return table("s", 200_000, 64, pooling_factor=32.0, pooling="none", access=access)


def test_temporaries_of_sequences_are_of_the_rows_that_their_ids_read() -> None:
    """Each different row takes hash maps on CPU; ids of a steep law read few, and were counted as if drawn evenly."""
    laws = (None, AccessProfile(zipf=0.0), AccessProfile(zipf=1.05))
    found = [build_problem(workload(_sequences(law), batch_size=2048), CPU, SPLIT) for law in laws]
    unknown, even, steep = (each.pieces.head.device[0] for each in found)
    assert unknown == pytest.approx(even, rel=0.01)
    assert steep < 0.75 * even


@pytest.mark.parametrize("pooling", ["sum", "none"])
def test_memory_counts_the_fullest_batch_and_torchrecs_accounting_the_mean_one(pooling: str) -> None:
    one = replace(_sequences(AccessProfile(zipf=1.2, hot_rows="in_front")), pooling=pooling)
    real = build_problem(workload(one, batch_size=64), GPUS, SPLIT)
    place = (Placement(table="s", sharding_type="row_wise", compute_kernel="fused", ranks=tuple(range(8))),)
    found = fullest_rank(real, footprint_of(real, place))
    assert found.rank in range(8)
    more = float(real.modes.most_ids[0] - real.modes.ids[0])
    each = (8 + 36) + (0 if pooling == "sum" else 8 + 64 * 4)  # of an id and its sort, and of an output that it has
    assert found.over_mean_bytes == pytest.approx(more * each, abs=4)
    theirs = build_problem(workload(one, batch_size=64), GPUS, SPLIT, Constraints(memory="torchrec"))
    assert fullest_rank(theirs, footprint_of(theirs, place)).over_mean_bytes == 0


def test_a_rank_that_a_job_measures_is_told_as_the_plan_tells_it() -> None:
    """Of a table alone, row by row or by the busiest block: the busy rank of a plan has what `verify` predicts."""
    one = _sequences(AccessProfile(zipf=1.2, hot_rows="in_front"))
    place = Placement(table="s", sharding_type="row_wise", compute_kernel="fused", ranks=(0, 1))
    made = price(workload(one, batch_size=2048), CPU, (place,), bound=False)
    (busy, _), (idle, _) = predicted_bytes(made)
    assert busy == pytest.approx(made.cost.per_device[0].hbm_bytes, rel=1e-3)
    assert idle < 0.6 * busy
