"""Splits of columns: what is tried, and that nothing illegal is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.problems.widths import column_splits, piece_counts, torchrec_width

DIMS = st.integers(1, 256).map(lambda steps: 4 * steps)


@given(DIMS, st.integers(1, 4), st.integers(1, 300), st.sampled_from(["any", "torchrec"]),
       st.none() | st.integers(4, 300), st.booleans(), st.booleans())  # fmt: skip
def test_every_split_is_legal(dim, least, most, rule, min_width, equal, fine) -> None:
    splits = column_splits(dim, least, most, rule, min_width, equal=equal, fine=fine)
    assert len(set(splits)) == len(splits)
    for split in splits:
        widths = [width for width, count in split for _ in range(count)]
        assert sum(widths) == dim
        assert least <= len(widths) <= most
        assert all(width % 4 == 0 and width >= min(min_width or 4, dim) for width in widths)
        assert widths == sorted(widths, reverse=True)
        assert len(split) <= (1 if equal else 2)


@given(DIMS)
def test_whole_tables_and_the_finest_split_are_always_tried(dim) -> None:
    splits = column_splits(dim, 1, dim // 4, "any", None)
    assert splits[0] == ((dim, 1),)
    assert splits[-1] == ((4, dim // 4),)


def test_fine_splits_leave_a_rest_of_any_width() -> None:
    fine = column_splits(128, 1, 32, "any", None, fine=True)
    for split in (((104, 1), (24, 1)), ((40, 3), (8, 1)), ((112, 1), (8, 2)), ((64, 2),)):
        assert split in fine
    assert set(column_splits(128, 1, 32, "any", None)) < set(fine)


def test_blocks_of_the_kernels_are_tried() -> None:
    assert ((128, 1), (64, 1)) in column_splits(192, 1, 48, "any", None)
    assert ((32, 3), (4, 1)) in column_splits(100, 1, 25, "any", None)


@given(DIMS, st.none() | st.integers(4, 300))
def test_the_torchrec_width_is_found_by_trying_all(dim, least) -> None:
    width = torchrec_width(dim, least)
    assert dim % width == 0
    assert width == dim or width >= (least or 128)
    assert not any(dim % w == 0 and w % 4 == 0 for w in range(least or 128, width))


@given(st.integers(1, 50), st.integers(1, 2000))
def test_counts_are_dense_when_few_and_sparse_when_many(least, most) -> None:
    counts = piece_counts(least, most)
    assert counts == sorted(set(counts))
    if least <= most:
        assert counts[-1] == most
        assert set(range(least, min(most, 8) + 1)) <= set(counts)
        assert len(counts) < 50


@given(DIMS)
def test_equal_splits_are_all_that_divide_the_columns(dim) -> None:
    found = {split[0] for split in column_splits(dim, 1, dim // 4, "any", None, equal=True)}
    assert found == {(width, dim // width) for width in range(4, dim + 1, 4) if dim % width == 0}


def test_equal_splits_only_where_asked() -> None:
    assert column_splits(24, 1, 6, "any", None, equal=True) == (
        ((24, 1),), ((12, 2),), ((8, 3),), ((4, 6),),
    )  # fmt: skip


@pytest.mark.parametrize("dim", [4, 64, 128])
def test_torchrec_never_splits_up_to_128_columns(dim) -> None:
    assert column_splits(dim, 1, dim // 4, "torchrec", None) == (((dim, 1),),)
