"""Caches are as large as one share of all tables, and lie where they save most lookups."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.problems.cached_lookups import CachedTable, hit_share
from recsmith.training.systems.tiers.allotting import allotted
from recsmith.workloads import AccessProfile, Feature, Table, Workload

LAWS = st.tuples(
    st.integers(10, 200_000), st.sampled_from([8, 64]), st.floats(0.2, 30.0), st.floats(0.0, 1.6)
)  # rows, columns, ids, exponent


def of_laws(
    laws: list[tuple[int, int, float, float]], *, static: bool = False, share: float = 0.1
) -> list[CachedTable]:
    return [
        CachedTable(
            Table(name=f"t{number}", num_embeddings=rows, embedding_dim=columns, access=AccessProfile(zipf=zipf),
                  features=(Feature(name=f"t{number}", pooling_factor=ids),)), share, static,
        )
        for number, (rows, columns, ids, zipf) in enumerate(laws)
    ]  # fmt: skip


def workload_of(cached: list[CachedTable]) -> Workload:
    return Workload(batch_size=32, optimizer="sgd", tables=tuple(each.table for each in cached))


@given(st.lists(LAWS, min_size=1, max_size=6), st.floats(0.02, 1.0), st.booleans())
def test_no_more_bytes_than_one_share_no_less_than_the_least_and_no_fewer_hits(
    laws: list[tuple[int, int, float, float]], share: float, static: bool
):
    cached = of_laws(laws, static=static, share=share)
    least = [min(rows, 1 + rows // 50) for rows, *_ in laws]
    workload = workload_of(cached)
    found = allotted(workload, cached, least, 2)
    sizes = np.array([float(rows * columns) for rows, columns, *_ in laws])
    rows = np.array([float(each[0]) for each in laws])
    floors = np.array(least) / rows
    assert np.isfinite(found).all()
    assert (np.array(found) >= floors - 1e-9).all()
    assert (np.array(found) <= 1).all()
    equal = np.maximum(share, floors)
    assert (np.array(found) * sizes).sum() <= max(share * sizes.sum(), (floors * sizes).sum()) * (1 + 1e-9)
    if (equal == share).all():
        before = hit_share(workload, [each._replace(share=share) for each in cached], 2)
        after = hit_share(workload, [each._replace(share=one) for each, one in zip(cached, found, strict=True)], 2)
        assert after >= before - 0.01, "to within a rung of the curves"


def test_bytes_go_where_a_row_more_saves_most_reads():
    """A table that is read ten times as often, one of a few hot rows, and one that is read evenly."""
    cached = of_laws([(100_000, 64, 50.0, 0.6), (100_000, 64, 5.0, 1.5), (100_000, 64, 5.0, 0.0)])
    often, hot, evenly = allotted(workload_of(cached), cached, [100, 100, 100], 1)
    assert often + hot + evenly == pytest.approx(0.3)
    assert often > 0.2 > hot > evenly
    equal, found = (
        hit_share(workload_of(cached), [each._replace(share=one) for each, one in zip(cached, shares, strict=True)])
        for shares in ((0.1, 0.1, 0.1), (often, hot, evenly))
    )
    assert found > equal + 0.05


def test_without_an_access_profile_all_have_the_share():
    cached = of_laws([(1000, 8, 3.0, 1.0), (10, 8, 3.0, 1.0)])
    blind = [cached[0]._replace(table=replace(cached[0].table, access=None)), cached[1]]
    assert allotted(workload_of(blind), blind, [5, 9], 1) == [0.1, 0.9]
