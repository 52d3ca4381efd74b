"""How often rows are read again: against sums over every row, and the laws that any answer obeys."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import table

from recsmith._types import Floats, Ints
from recsmith.workloads import AccessProfile
from recsmith.workloads.access import NUM_REUSE_BINS
from recsmith.workloads.reuse import DEFAULT_ZIPF, Reuse
from recsmith.workloads.zipf import fit_zipf, reads_per_bin, zipf_hot_share, zipf_reuse_bins, zipf_unique_rows

ENDS = np.array([0, *(2**k for k in range(NUM_REUSE_BINS - 1)), np.inf])  # of the bins: (0,1], (1,2], (2,4] ...
SLACK = 1 + 1e-9

exponents = st.floats(0, 10) | st.sampled_from([0.0, 1.0, 2.0, 1 - 1e-12])
row_counts = st.integers(1, 100) | st.integers(1, 10**10)
amounts = st.floats(1e-9, 1e9) | st.sampled_from([0.0, 1.0])
parts = st.floats(1e-9, 1) | st.just(0.0)
questions = st.lists(st.tuples(exponents, row_counts, amounts), min_size=1, max_size=8)


def columns(rows: list[Any]) -> tuple[Floats, ...]:
    return tuple(np.array(rows, dtype=np.float64).T)


def of(*values: float) -> tuple[Floats, ...]:
    """Each value as a column of one."""
    return tuple(np.array([value], dtype=np.float64) for value in values)


def popularity(zipf: float, rows: int) -> Floats:
    weight = np.arange(1, rows + 1, dtype=np.float64) ** -zipf
    return weight / weight.sum()


# --- Zipf against sums over every row -----------------------------------------------------------------------------

EXPONENTS = [0.0, 0.3, 0.8, 1.0, 1.05, 1.7, 3.0]


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33, 64, 1000, 10**6])
@pytest.mark.parametrize("zipf", EXPONENTS)
def test_unique_rows_and_hot_shares_are_those_of_the_sum_over_every_row(zipf: float, rows: int):
    chance = popularity(zipf, rows)
    lookups = np.array([1e-3, 3.0, 1e4, 1e7])
    exact = [-np.expm1(-many * chance).sum() for many in lookups]
    assert zipf_unique_rows(np.array([zipf]), np.array([rows]), lookups) == pytest.approx(exact, rel=1e-4)
    kept = np.unique(np.array([1, 7, 8, 9, rows // 2, rows]).clip(1, rows))
    shares = zipf_hot_share(np.array([zipf]), np.array([rows]), kept)
    assert shares == pytest.approx(chance.cumsum()[kept - 1], rel=1e-7)


@pytest.mark.parametrize("rows", [1, 1000, 80_000_000])
def test_rows_read_evenly_have_a_closed_form(rows: int):
    lookups = np.array([0.0, 1.0, 1e3, 1e6, 1e9])
    expected = -rows * np.expm1(-lookups / rows)
    assert zipf_unique_rows(np.zeros(1), np.array([rows]), lookups) == pytest.approx(expected, rel=1e-6)
    assert zipf_hot_share(np.zeros(1), np.array([rows]), np.array([rows * 0.25])) == pytest.approx([0.25])


def poisson_bins(zipf: float, rows: int, lookups: float) -> tuple[Floats, Floats]:
    """Rows, and reads, in each bin: probabilities of every number of reads, summed over every row."""
    mean = lookups * popularity(zipf, rows)
    reads = np.arange(1, int(mean.max() + 12 * math.sqrt(mean.max()) + 30))
    log_factorial = np.cumsum(np.log(reads))
    each = np.sum([np.exp(reads * math.log(m) - m - log_factorial) for m in mean.tolist()], axis=0)
    which = np.searchsorted(ENDS, reads) - 1
    lie = (which[:, None] == np.arange(NUM_REUSE_BINS)).astype(np.float64)
    return each @ lie, (each * reads) @ lie


@pytest.mark.parametrize("zipf", [0.0, 0.01, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(("rows", "lookups"), [(1, 3.0), (1, 5e4), (20, 1e3), (300, 10.0), (300, 1e4), (40, 7e4)])
def test_bins_are_those_of_the_sum_over_every_row(zipf: float, rows: int, lookups: float):
    many, reads = poisson_bins(zipf, rows, lookups)
    got = zipf_reuse_bins(*of(zipf, rows, lookups))[0], reads_per_bin(*of(zipf, rows, lookups))[0]
    assert got[0] == pytest.approx(many, abs=1e-3 * many.sum())
    assert got[1] == pytest.approx(reads, abs=1e-3 * lookups)


# --- laws of Zipf -------------------------------------------------------------------------------------------------


@given(questions, parts)
def test_unique_rows_are_within_rows_and_lookups_and_grow_with_lookups(rows: list[Any], part: float):
    zipf, size, lookups = columns(rows)
    unique = zipf_unique_rows(zipf, size, lookups)
    fewer = zipf_unique_rows(zipf, size, lookups * part)
    assert np.all((unique >= 0) & (unique <= size) & (unique <= lookups))
    assert np.all((fewer <= unique * SLACK) & (fewer * SLACK >= unique * part))


@given(questions)
def test_every_lookup_of_very_few_reads_a_row_of_its_own(rows: list[Any]):
    zipf, size, _ = columns(rows)
    assert zipf_unique_rows(zipf, size, np.array([1e-7])) == pytest.approx(np.full(len(rows), 1e-7), rel=1e-6)


@given(exponents.filter(lambda s: s <= 3), exponents.filter(lambda s: s <= 3), row_counts, amounts)
def test_unique_rows_fall_as_the_exponent_rises(one: float, other: float, rows: int, lookups: float):
    flat, steep = zipf_unique_rows(np.sort([one, other]), np.array([rows]), np.array([lookups]))
    assert steep <= flat * (1 + 1e-5)


@given(questions, parts)
def test_hot_shares_rise_from_none_to_all_of_the_rows(rows: list[Any], part: float):
    zipf, size, kept = columns(rows)
    kept = np.minimum(kept, size)
    share, less = zipf_hot_share(zipf, size, kept), zipf_hot_share(zipf, size, kept * part)
    assert np.all((less >= 0) & (less <= share * SLACK) & (share <= 1))
    assert np.all(share >= kept / size / SLACK)  # the most read rows are read at least as often as the average one
    assert np.all(zipf_hot_share(zipf, size, np.zeros(1)) == 0)
    assert np.all(zipf_hot_share(zipf, size, size) == 1)


@given(questions)
@settings(max_examples=40)
def test_bins_sum_to_unique_rows_and_reads_to_lookups(rows: list[Any]):
    zipf, size, lookups = columns(rows)
    bins, reads = zipf_reuse_bins(zipf, size, lookups), reads_per_bin(zipf, size, lookups)
    assert bins.shape == reads.shape == (len(rows), NUM_REUSE_BINS)
    assert np.all(bins >= 0)
    assert np.all(reads >= 0)
    assert bins.sum(axis=1) == pytest.approx(zipf_unique_rows(zipf, size, lookups), rel=1e-9)
    assert reads.sum(axis=1) == pytest.approx(lookups, rel=1e-9)


@given(questions)
@settings(max_examples=40)
def test_the_fitted_exponent_gives_the_unique_rows_back(rows: list[Any]):
    zipf, size, lookups = columns(rows)
    unique = zipf_unique_rows(zipf, size, lookups)
    fitted = fit_zipf(size, lookups, unique)
    assert np.all((fitted >= 0) & (fitted <= 10))
    assert zipf_unique_rows(fitted, size, lookups) == pytest.approx(unique, rel=1e-5)


def test_the_fitted_exponent_is_the_one_that_was_meant_or_the_nearer_end():
    size, lookups = np.array([1e6]), np.array([1e6])
    meant = np.array([0.5, 1.0, 1.05, 3.0])
    assert fit_zipf(size, lookups, zipf_unique_rows(meant, size, lookups)) == pytest.approx(meant, abs=1e-8)
    assert fit_zipf(size, lookups, np.array([1e6, 1.0])).tolist() == [0, 10]


@given(questions, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_order_and_repetition_of_elements_do_not_matter(rows: list[Any], random: Any):
    order = [*range(len(rows)), *range(len(rows))]
    random.shuffle(order)
    given_, shuffled = columns(rows), columns([rows[i] for i in order])
    for law in (zipf_unique_rows, zipf_hot_share, zipf_reuse_bins, reads_per_bin):
        assert np.array_equal(law(*shuffled), law(*given_)[order])


def test_many_elements_are_answered_as_one_by_one_and_none_as_none():
    zipf, lookups = np.linspace(0, 3, 3000), np.linspace(0, 1e6, 3000)
    whole = zipf_unique_rows(zipf, np.array([1e7]), lookups)
    some = [0, 1, 1023, 1024, 2999]
    assert whole[some].tolist() == [zipf_unique_rows(*of(zipf[i], 1e7, lookups[i]))[0] for i in some]
    nothing = np.zeros(0)
    assert zipf_unique_rows(nothing, nothing, nothing).shape == (0,)
    assert zipf_hot_share(nothing, nothing, nothing).shape == (0,)
    assert zipf_reuse_bins(nothing, nothing, nothing).shape == (0, NUM_REUSE_BINS)


# --- counted profiles ---------------------------------------------------------------------------------------------


def profile(reads: Ints) -> AccessProfile:
    """The profile that a count of rows' reads gives."""
    bins = np.bincount(np.searchsorted(ENDS, reads) - 1, minlength=NUM_REUSE_BINS)
    shares = tuple((bins / len(reads)).tolist())
    return AccessProfile(reuse_bins=shares, lookups=int(reads.sum()), unique_rows=len(reads))


def counted(reads: list[int] | Ints, rows: int | None = None) -> Reuse:
    return Reuse.of([table(rows=rows or len(reads), access=profile(np.array(reads)))])


FIRST = np.array([0])
counts = st.lists(st.integers(1, 5) | st.integers(1, 100_000), min_size=1, max_size=30)


@given(counts, parts, parts, st.integers(0, 1000))
def test_counts_obey_the_laws_of_unique_rows(reads: list[int], part: float, less: float, unread: int):
    reuse, lookups = counted(reads, len(reads) + unread), float(sum(reads))
    here = np.array([lookups, lookups * part, lookups * part * less, lookups / max(part, 1e-6)])
    own, fewer, fewest, more = reuse.unique_rows(np.zeros(4, dtype=np.int64), here)
    assert own == pytest.approx(len(reads), rel=1e-12)
    assert 0 <= fewest <= fewer * SLACK <= own * SLACK**2 <= more * SLACK**3
    assert fewer <= min(own, here[1]) * SLACK
    assert more <= min(len(reads) + unread, here[3])
    assert reuse.unique_rows(FIRST, np.array([1e-6])) == pytest.approx([1e-6], rel=0.1)


@given(counts, parts)
def test_counts_obey_the_laws_of_hot_shares(reads: list[int], part: float):
    reuse, rows = counted(reads, len(reads) + 5), float(len(reads))
    kept = np.array([0.0, rows * part**2, rows * part, rows, rows + 5])
    none, less, share, all_read, every = reuse.hot_share(np.zeros(5, dtype=np.int64), kept)
    assert (none, all_read, every) == (0, 1, 1)
    assert 0 <= less <= share * SLACK
    assert part <= share * SLACK <= SLACK


@given(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=50), parts)
def test_thinning_is_exact_where_bins_hold_one_count(reads: list[int], part: float):
    stay = [1 - (1 - part) ** count for count in reads]
    assert counted(reads).unique_rows(FIRST, np.array([part * sum(reads)])) == pytest.approx([sum(stay)], abs=1e-9)


def test_reads_of_one_bin_are_recovered_from_the_lookups():
    reads = [1, 1, 2, 7, 7, 7]  # the bin (4,8] holds 21 of 25 reads: 7 a row, not its middle
    share = counted(reads).hot_share(np.zeros(3, dtype=np.int64), np.array([1.0, 3.0, 4.0]))
    assert share == pytest.approx([7 / 25, 21 / 25, 23 / 25])


@pytest.mark.parametrize("zipf", [0.0, 0.4, 1.0, 1.5])
@pytest.mark.parametrize("lookups", [1e3, 1e5, 1e7])
def test_rows_read_often_are_those_whose_expected_reads_are_as_many(zipf: float, lookups: float):
    rows = 50_000
    share = popularity(zipf, rows)
    exact = int((lookups * share / share.sum() >= 32).sum())
    found = Reuse.of([table(rows=rows, access=AccessProfile(zipf=zipf))])
    assert found.read_often(np.array([0]), np.array([lookups]), 32.0)[0] == pytest.approx(exact, abs=1.0, rel=1e-6)


def test_rows_read_often_by_counts_are_those_of_their_bins():
    found = counted([1] * 10 + [64] * 3)
    often = found.read_often(np.array([0, 0, 0]), np.array([202.0, 101.0, 50.0]), 32.0)
    assert often.tolist() == [3.0, 3.0, 0.0]


@pytest.mark.parametrize("zipf", [0.6, 1.05, 1.4])
def test_counts_of_a_zipf_table_answer_as_its_exponent_does(zipf: float):
    rows, lookups = 1_000_000, 300_000
    unique = zipf_unique_rows(*of(zipf, rows, lookups))[0]
    shares = tuple((zipf_reuse_bins(*of(zipf, rows, lookups))[0] / unique).tolist())
    access = AccessProfile(reuse_bins=shares, lookups=lookups, unique_rows=round(unique))
    reuse = Reuse.of([table(rows=rows, access=access), table(rows=rows, access=AccessProfile(zipf=zipf))])
    asked = lookups * np.array([0.01, 0.1, 0.5, 1, 2, 10, 100])
    by_count, by_zipf = (reuse.unique_rows(np.full(len(asked), which), asked) for which in (0, 1))
    assert by_count == pytest.approx(by_zipf, rel=0.02)


@pytest.mark.parametrize("reads", [[1] * 500 + [3] * 300 + [40] * 20, [1] * 500])  # of the last, no exponent is the fit
def test_more_lookups_than_were_counted_are_extrapolated_without_a_step(reads: list[int]):
    reuse, three = counted(reads, rows=5000), np.zeros(3, dtype=np.int64)
    lookups = sum(reads) * np.array([1 - 1e-9, 1.0, 1 + 1e-9])
    assert reuse.extrapolated(three, lookups).tolist() == [False, False, True]
    assert reuse.unique_rows(three, lookups) == pytest.approx([len(reads)] * 3, rel=1e-8)
    assert reuse.unique_rows(three, np.array([1e12] * 3)) == pytest.approx([5000] * 3)


def test_counts_of_more_rows_than_the_table_has_are_all_its_rows():
    reuse = counted([1] * 90 + [2] * 10, rows=60)
    assert reuse.unique_rows(np.zeros(2, dtype=np.int64), np.array([110.0, 1e6])) == pytest.approx([60, 60])
    assert reuse.hot_share(FIRST, np.array([60.0])).tolist() == [1]


def test_rounded_shares_keep_their_count():
    shares = (0.4995, 0.4996, *[0.0] * 15)
    access = AccessProfile(reuse_bins=shares, lookups=1500, unique_rows=1000)
    reuse = Reuse.of([table(rows=2000, access=access)])
    assert reuse.unique_rows(FIRST, np.array([1500.0])) == pytest.approx([1000])


# --- caches -------------------------------------------------------------------------------------------------------


def lru_misses(zipf: float, rows: int, kept: int, lookups: int) -> float:
    """Different rows of a batch that a cache of the rows read last lacks, counted; ages of rows are exponential."""
    random, chance, counted = np.random.default_rng(0), popularity(zipf, rows), list[int]()
    for _ in range(100):
        held = np.argsort(random.exponential(1 / chance))[:kept]
        counted.append(len(np.setdiff1d(random.choice(rows, lookups, p=chance), held)))
    return float(np.mean(counted))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("zipf", [0.0, 0.6, 1.0, 1.4])
def test_a_cache_misses_what_one_of_the_rows_read_last_does(zipf: float, share: float):
    rows, lookups = 4000, 400
    missed = Reuse.of([table("a", rows=rows, access=AccessProfile(zipf=zipf))]).missed_rows(
        np.array([0]), *of(lookups, share * rows)
    )
    assert missed[0] == pytest.approx(lru_misses(zipf, rows, int(share * rows), lookups), rel=0.05, abs=0.5)


def lru_hits(zipf: float, rows: int, kept: int) -> float:
    """The share of lookups that find their row among those read last, counted; ages of rows are exponential."""
    random, chance = np.random.default_rng(0), popularity(zipf, rows)
    held = [np.argsort(random.exponential(1 / chance))[:kept] for _ in range(200)]
    return float(np.mean([chance[each].sum() for each in held]))


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("zipf", [0.0, 0.6, 1.05, 1.4])
def test_as_many_lookups_hit_as_those_of_a_cache_of_the_rows_read_last(zipf: float, share: float):
    rows = 4000
    reuse = Reuse.of([table("a", rows=rows, access=AccessProfile(zipf=zipf))])
    hits = reuse.hit_share(np.array([0]), *of(share * rows))
    assert hits[0] == pytest.approx(lru_hits(zipf, rows, int(share * rows)), abs=0.01)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("zipf", [0.0, 0.6, 1.0, 1.4])
def test_a_cache_of_the_most_read_rows_misses_what_is_read_beside_them(zipf: float, share: float):
    rows, lookups, random = 8000, 200, np.random.default_rng(0)
    reuse, index = Reuse.of([table("a", rows=rows, access=AccessProfile(zipf=zipf))]), np.array([0])
    stays = float(reuse.staying(index, *of(lookups, share * rows))[0])
    batches = [random.choice(rows, lookups, p=popularity(zipf, rows)) for _ in range(200)]
    missed = [len(np.unique(batch[batch >= stays])) for batch in batches]
    found = reuse.missed_static(index, *of(lookups, share * rows))[0]
    assert found == pytest.approx(np.mean(missed), rel=0.05, abs=0.5)
    assert share * rows - 2 * found <= stays <= share * rows


@given(questions, parts)
def test_a_cache_misses_less_the_more_it_holds_and_nothing_if_it_holds_all(rows: list[Any], part: float):
    zipf, count, lookups = columns(rows)
    profiles = [AccessProfile(zipf=each) for each in zipf.tolist()]
    reuse = Reuse.of([table("a", rows=int(n), access=one) for n, one in zip(count, profiles, strict=True)])
    index, slack = np.arange(len(rows)), 1e-6 * np.minimum(count, lookups) + 1e-12
    read = reuse.unique_rows(index, lookups)
    none, some, more, every = (reuse.missed_rows(index, lookups, kept * count) for kept in (0.0, part / 2, part, 1.0))
    assert (none <= read + slack).all()
    assert (some <= none + slack).all()
    assert (more <= some + slack).all()
    assert (every <= 0.01 * read + slack).all()


# --- tables side by side ------------------------------------------------------------------------------------------


def test_each_table_answers_by_its_own_profile():
    tables = [
        table(rows=1000, access=AccessProfile(zipf=0.0, lookups=70)),  # a law needs no count, and ignores one
        table(rows=1000),
        table(rows=1000, access=profile(np.array([2] * 50))),
        table(rows=1),
    ]
    reuse, lookups = Reuse.of(tables), np.full(4, 80.0)
    asked = np.array([3, 2, 1, 0])
    unique = reuse.unique_rows(asked, lookups)
    assumed = zipf_unique_rows(*of(DEFAULT_ZIPF, 1000, 80))[0]
    assert unique == pytest.approx([1, 50 * (1 - 0.2**2), assumed, -1000 * math.expm1(-0.08)])
    assert reuse.extrapolated(asked, lookups * 2).tolist() == [False, True, False, False]
    hot = reuse.hot_share(asked, np.array([0.5, 25, 10, 500]))
    assert hot == pytest.approx([0.5, 0.5, zipf_hot_share(*of(DEFAULT_ZIPF, 1000, 10))[0], 0.5])


def test_no_tables_and_no_questions_have_no_answers():
    for reuse in (Reuse.of([]), Reuse.of([table()])):
        nobody = np.zeros(0, dtype=np.int64)
        assert reuse.unique_rows(nobody, np.zeros(0)).shape == (0,)
        assert reuse.hot_share(nobody, np.zeros(0)).shape == (0,)
        assert reuse.extrapolated(nobody, np.zeros(0)).shape == (0,)


# --- real reads ---------------------------------------------------------------------------------------------------


def test_thinned_counts_of_real_ratings_are_what_samples_of_them_hold(data: Path):
    with (data / "movielens" / "ml-latest-small" / "ratings.csv").open() as lines:
        films = np.array([int(row["movieId"]) for row in csv.DictReader(lines)])
    reuse = counted(np.unique(films, return_counts=True)[1])
    draw = np.random.default_rng(0)
    for part in (0.01, 0.1, 0.5):
        sample = draw.choice(films, size=round(part * len(films)), replace=False)
        expected = reuse.unique_rows(FIRST, np.array([len(sample)], dtype=np.float64))
        assert expected == pytest.approx([len(np.unique(sample))], rel=0.03)
