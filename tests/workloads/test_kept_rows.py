"""Caches that keep the rows that were read most: what they serve of lookups that come after the counted ones."""

import numpy as np
import pytest

from recsmith.problems.cached_lookups import CachedTable, hit_share
from recsmith.training.systems.tiers.cache import RowCache
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.row_blocks import access_of_ids

ROWS, BATCH = 20_000, 256


def lookups_of(zipf: float, count: int, seed: int) -> np.ndarray:
    """Ids by Zipf's law, of which the most read ones lie anywhere."""
    random, chance = np.random.default_rng(seed), np.arange(1, ROWS + 1) ** -zipf
    return np.random.default_rng(0).permutation(ROWS)[random.choice(ROWS, count, p=chance / chance.sum())]


@pytest.mark.parametrize("counted", [None, 1024])
@pytest.mark.parametrize(
    ("zipf", "slots", "steps", "profile"),
    [
        (1.05, 2000, 200, 50),
        (1.05, 6000, 150, 1000),
        (0.0, 5000, 200, 100),
        (0.8, 2000, 200, 100),
        (1.3, 1500, 200, 20),
    ],
)
@pytest.mark.parametrize("static", [True, False])
def test_hits_of_a_whole_job_and_of_full_caches(
    zipf: float, slots: int, steps: int, profile: int, static: bool, counted: int | None
) -> None:
    """Also where the counts, as of a sample, are of fewer rows than a cache holds: in them a static one misses none."""
    access = AccessProfile(zipf=zipf) if counted is None else access_of_ids(lookups_of(zipf, counted, 2), ROWS)
    table = Table(
        name="a", num_embeddings=ROWS, embedding_dim=8, access=access,
        features=(Feature(name="a", pooling_factor=BATCH / 64),),
    )  # fmt: skip
    cache, found = RowCache("a", ROWS, slots, profile if static else 0), list[float]()
    before = np.zeros(0, np.int64)  # slots of the batch that trains, while the next one is fetched
    for ids in lookups_of(zipf, steps * BATCH, 1).reshape(steps, BATCH):
        rows, reads = np.unique(ids, return_counts=True)
        moves = cache.place(rows, [before], reads)
        before = moves.slots
        found.append(1 - np.isin(ids, moves.read_rows).mean())
    workload = Workload(batch_size=64, optimizer="sgd", tables=(table,))
    cached = [CachedTable(table, slots / ROWS, static)]
    within = 0.012 if counted is None else 0.04
    assert hit_share(workload, cached, profile=profile, batches=steps) == pytest.approx(np.mean(found), abs=within)
    if profile <= steps // 2:
        assert hit_share(workload, cached, profile=profile) == pytest.approx(np.mean(found[steps // 2 :]), abs=within)
