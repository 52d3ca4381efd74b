"""Every way to store a table holds each id once, and bags of it are sums of its rows."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embeddings.stored import TRANSFORMS, bags
from recsmith.embeddings import IdMap, parameters
from recsmith.embeddings.compositional import Compositional, balanced, complementary, coprime, quotient_remainder
from recsmith.embeddings.hashing import Hashing
from recsmith.embeddings.mixed_dimension import MixedDimension, WidthBlock
from recsmith.embeddings.path_based import PathBased
from recsmith.errors import UsageError

ROWS = "1460 583 10131227 2202608 305 24 12517 633 3 93145 5683 8351593 3194 27 14992 5461306 10 5652 2173 4 7046547 18"
CRITEO = [int(rows) for rows in f"{ROWS} 15 286181 105 142572".split()]  # of the tables of Criteo Kaggle


@pytest.mark.parametrize("name", TRANSFORMS)
def test_each_id_of_a_bag_is_looked_up_once(name: str) -> None:
    transform = TRANSFORMS[name]
    ids = bags(transform.num_embeddings, 40, seed=3)
    routed = transform.route(ids)
    assert len(routed) == len(transform.lookups)
    for lookup, each in zip(transform.lookups, routed, strict=True):
        part = transform.parts[lookup.part]
        assert ((each.values >= 0) & (each.values < part.num_embeddings)).all()
        assert each.lengths.sum() == len(each.values)
    covered = np.sum([routed[i].lengths for i in transform.cover], axis=0)
    assert (covered == ids.lengths).all()


@given(
    st.integers(2, 60),
    st.lists(st.integers(1, 9), min_size=2, max_size=3),
    st.sampled_from(["mixed_radix", "chinese_remainder"]),
)
def test_partitions_are_accepted_exactly_where_they_tell_all_ids_apart(
    rows: int, sizes: list[int], family: Any
) -> None:
    ids = np.arange(rows)
    digits = [ids % size for size in sizes]
    if family == "mixed_radix":
        steps = np.cumprod([1, *sizes[:-1]])
        digits = [(ids // step) % size for step, size in zip(steps, sizes, strict=True)]
    apart = len(set(zip(*(d.tolist() for d in digits), strict=True))) == rows
    said = complementary(sizes, family, rows)
    if said is None:
        assert apart
        made = Compositional(num_embeddings=rows, embedding_dim=4, sizes=tuple(sizes), family=family)
        assert [each.tolist() for each in made.classes(ids)] == [d.tolist() for d in digits]
    elif family == "mixed_radix":
        assert not apart


@given(st.integers(2, 10**9), st.integers(2, 4))
def test_balanced_and_coprime_sizes_suffice(rows: int, count: int) -> None:
    assert complementary(balanced(rows, count), "mixed_radix", rows) is None
    sizes = coprime(rows, count)
    assert complementary(sizes, "chinese_remainder", rows) is None
    assert max(sizes) <= rows ** (1 / count) + 40


def test_parameters_of_quotient_and_remainder_are_those_of_the_reference_code() -> None:
    """Totals of facebookresearch/dlrm on Criteo Kaggle, 16 columns, tables of up to 200 rows whole."""

    def total(sizes: Any) -> int:
        return sum(16 * (sum(sizes(rows)) if rows > 200 else rows) for rows in CRITEO)

    found = [total(lambda rows, k=k: quotient_remainder(rows, k)) for k in (2, 3, 4, 5, 6, 7, 60)]
    assert found == [270_102_928, 180_070_256, 135_054_048, 108_044_448, 90_038_160, 77_176_592, 9_024_032]
    assert total(lambda rows: balanced(rows, 2)) == 462_928


def test_parameters_count_tables_and_projections() -> None:
    blocks = (WidthBlock(num_embeddings=10, embedding_dim=8), WidthBlock(num_embeddings=30, embedding_dim=2))
    made = MixedDimension(num_embeddings=40, embedding_dim=8, blocks=blocks)
    assert parameters(made) == 10 * 8 + 15 * 4 + 2 * 8
    assert parameters(Hashing(num_embeddings=40, embedding_dim=8, rows=5)) == 40


def test_networks_count_beside_the_rows_of_remainders() -> None:
    made = PathBased(num_embeddings=41, embedding_dim=8, networks=4, hidden=5)
    assert parameters(made) == 11 * 8 + 4 * 2 * 8 * 5


WRONG = [
    (lambda: PathBased(num_embeddings=9, embedding_dim=4, networks=1), "there are 1 networks for 9 ids"),
    (
        lambda: PathBased(num_embeddings=9, embedding_dim=4, networks=3).route(bags(9, 1, seed=0, length=2)),
        "holds 2 ids",
    ),
    (lambda: Hashing(num_embeddings=9, embedding_dim=4, rows=0), "rows is 0"),
    (lambda: Compositional(num_embeddings=10, embedding_dim=4, sizes=(3, 3)), "must reach it"),
    (
        lambda: Compositional(num_embeddings=20, embedding_dim=4, sizes=(4, 6), family="chinese_remainder"),
        "share the factor 2",
    ),
    (lambda: Compositional(num_embeddings=9, embedding_dim=4, sizes=(3, 3), operation="concat"), "multiples of 4"),
    (
        lambda: MixedDimension(
            num_embeddings=9, embedding_dim=4, blocks=(WidthBlock(num_embeddings=8, embedding_dim=4),)
        ),
        "blocks hold 8 ids",
    ),
    (
        lambda: MixedDimension(
            num_embeddings=9, embedding_dim=8, blocks=(WidthBlock(num_embeddings=9, embedding_dim=3),)
        ),
        "kernels want 1, 2 or multiples of 4",
    ),
    (
        lambda: Hashing(num_embeddings=9, embedding_dim=4, rows=3, row_of=IdMap(numbers=np.zeros(8, np.int32))),
        "the map is of 8 ids",
    ),
    (
        lambda: Hashing(num_embeddings=2, embedding_dim=4, rows=1, row_of=IdMap(numbers=np.ones(2, np.int32))),
        "below 1",
    ),
]


@pytest.mark.parametrize(("make", "said"), WRONG)
def test_what_cannot_be_stored_is_refused(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


@pytest.mark.parametrize(("name", "wrong"), [*product(["hash", "chinese", "blocks"], [-1, 90])])
def test_an_id_outside_the_table_is_named(name: str, wrong: int) -> None:
    ids = bags(90, 3, seed=1)
    ids.values[0] = wrong
    with pytest.raises(UsageError, match=f"id {wrong} is not one of a table of 90 rows"):
        TRANSFORMS[name].route(ids)


def test_a_bag_that_is_too_long_to_multiply_is_refused() -> None:
    made = Compositional(num_embeddings=90, embedding_dim=4, sizes=(9, 10))
    with pytest.raises(UsageError, match="a bag holds 3 ids and max_bag is 1"):
        made.route(bags(90, 1, seed=0, length=3))
