"""How often table rows are read again: the rows that a batch reads, and the share of lookups of the hottest rows.

A table's access profile is a Zipf exponent, or the counts of one batch; DEFAULT_ZIPF without a profile. From counts,
fewer lookups are a binomial thinning of the counted batch; more lookups are extrapolated by the Zipf law that fits the
counts.

Legend: T tables; N questions, each a table (by index) and an amount; 17 bins by reads of a row in a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.elementary import exp, expm1, log, log1p, power
from recsmith.workloads.access import NUM_REUSE_BINS, AccessProfile
from recsmith.workloads.workload import Table
from recsmith.workloads.zipf import between, fit_zipf, harmonic, ranks, zipf_hot_share, zipf_unique_rows

DEFAULT_ZIPF = 0.893  # for tables without a profile: with it, the 856 tables of sample.py's shared pool read 0.14
# unique rows per lookup in 65,536 samples, as Meta's published batches do (docs/files.md)

HORIZON = 40  # powers of 2: the longest memory of a cache is 2 ** 40 lookups for each cached row
HALVINGS = 20  # halvings of that range: lookups are then found within a factor 2 ** (40 / 2 ** 20)
SLOPE_STEP = 0.01  # step, as a share of the remembered lookups, over which the growth of different rows is measured
FLAT = 1e-9  # replaces an exponent of 0 as a divisor
OFTEN = 5  # reads from which on a count is used as the rate at which a row is read
TINY = 1e-300  # replaces 0 rows as a divisor

# most reads of a row in each bin: 1, 2, 4, 8 ...; the last bin has no upper end
_MOST = 2.0 ** np.arange(NUM_REUSE_BINS)
_FEWEST = np.concatenate([[1.0], _MOST[:-1] + 1])  # fewest reads of a row in each bin: 1, 2, 3, 5 ... 32769


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How often the rows of many tables are read again; arrays over tables.

    rows: rows of the table (T,).
    zipf: exponent; given, assumed, or fitted to the counts (T,).
    scale: factor on the unique rows of the Zipf law, so that they match the counts (T,).
    counted: lookups of the counted batch (T,); 0 if nothing was counted, as in the next two.
    unique: rows read in the counted batch (T,).
    bins: of these, the rows in each bin (T, 17).
    reads: reads of a row of each bin that are assumed for the counted batch (T, 17).
    """

    rows: Floats
    zipf: Floats
    scale: Floats
    counted: Floats
    unique: Floats
    bins: Floats
    reads: Floats

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "Reuse":
        """The reuse of tables by their access profiles; counts of more rows than a table has mean all its rows."""
        rows = np.array([table.num_embeddings for table in tables], dtype=np.float64)
        profiles = [table.access or _UNKNOWN for table in tables]
        has_counts = np.array([profile.reuse_bins is not None for profile in profiles], dtype=bool)
        zipf, scale = np.array([_exponent(profile) for profile in profiles]), np.ones(len(tables))
        counted = has_counts * np.array([profile.lookups or 0.0 for profile in profiles])
        unique = has_counts * np.minimum(rows, np.array([profile.unique_rows or 0.0 for profile in profiles]))
        bins = unique[:, None] * _shares(profiles)
        some = np.flatnonzero(has_counts)
        zipf[some] = fit_zipf(rows[some], counted[some], unique[some])
        scale[some] = unique[some] / zipf_unique_rows(zipf[some], rows[some], counted[some])
        reads = _reads_of_a_row(bins, counted)
        return cls(rows=rows, zipf=zipf, scale=scale, counted=counted, unique=unique, bins=bins, reads=reads)

    def unique_rows(self, table: Ints, lookups: Floats) -> Floats:
        """The expected number of different rows in these lookups of a table (N,); at most its rows, and the lookups."""
        unique = np.empty(len(table))
        counted = lookups <= self.counted[table]
        unique[counted] = self._thinned(table[counted], lookups[counted])
        other, more = table[~counted], lookups[~counted]
        unique[~counted] = self.scale[other] * zipf_unique_rows(self.zipf[other], self.rows[other], more)
        return np.minimum(unique, np.minimum(self.rows[table], lookups))

    def extrapolated(self, table: Ints, lookups: Floats) -> Bools:
        """Whether the lookups exceed those counted, for tables with counts (N,)."""
        return (self.counted[table] > 0) & (lookups > self.counted[table])

    def hot_share(self, table: Ints, rows: Floats) -> Floats:
        """The share (0..1) of a table's reads that its `rows` most read rows have (N,); 1 if no other row is read."""
        counted = self.counted[table] > 0
        if not counted.any():
            return zipf_hot_share(self.zipf[table], self.rows[table], rows)
        share, other = np.empty(len(table)), table[~counted]
        share[counted] = self._counted_share(table[counted], rows[counted])
        share[~counted] = zipf_hot_share(self.zipf[other], self.rows[other], rows[~counted])
        return share

    def read_often(self, table: Ints, lookups: Floats, reads: float) -> Floats:
        """The expected number of rows of a table that these lookups read at least `reads` times (N,).

        By a Zipf law, the row of rank r is read in proportion to r ** -zipf, which gives the last rank that is read
        often enough. By counts, these are the rows of the bins that are read often enough.
        """
        rows, counted = np.empty(len(table)), self.counted[table] > 0
        if counted.any():
            some = table[counted]
            share = lookups[counted] / self.counted[some]
            rows[counted] = (self.bins[some] * (self.reads[some] * share[:, None] >= reads)).sum(axis=1)
        other, more = table[~counted], lookups[~counted]
        above = more * self.hot_share(other, np.ones(len(other))) / reads
        last = log(np.maximum(above, 1.0)) / np.maximum(self.zipf[other], FLAT)
        law = exp(np.minimum(last, log(self.rows[other])))
        rows[~counted] = np.where(above >= 1, law, 0.0)
        return rows

    def missed_rows(self, table: Ints, lookups: Floats, cached: Floats) -> Floats:
        """The number of different rows of these lookups that miss a cache of the `cached` rows read last (N,).

        Che, Tung and Wang, "Hierarchical Web caching systems" (IEEE JSAC 20(7), 2002): the cached rows are those that
        the last t lookups read, with t such that they read `cached` different rows. The rows that n lookups miss are
        those that t + n lookups read beyond them.
        """
        before = self._held(table, cached)
        return np.maximum(self.unique_rows(table, before + lookups) - self.unique_rows(table, before), 0.0)

    def hit_share(self, table: Ints, cached: Floats) -> Floats:
        """The share (0..1) of lookups whose row is among the `cached` rows read last (N,); Che et al., ibid.

        A row that is read with chance p is absent from the last t lookups with chance exp(-p t). The sum of p times
        that chance over all rows is the rate at which the number of different rows grows at t.
        """
        before = self._held(table, cached)
        step = before * SLOPE_STEP
        growth = self.unique_rows(table, before + step) - self.unique_rows(table, before)
        return 1 - np.clip(growth / np.maximum(step, TINY), 0.0, 1.0)

    def hit_share_over(self, table: Ints, cached: Floats, lookups: Floats) -> Floats:
        """The mean of `hit_share` over `lookups` lookups (N,) that start with an empty cache.

        While the cache fills, each row misses once.
        """
        before = np.minimum(self._held(table, cached), lookups)
        missed = self.unique_rows(table, before) + (1 - self.hit_share(table, cached)) * (lookups - before)
        return np.clip(1 - missed / np.maximum(lookups, TINY), 0.0, 1.0)

    def by_chance(self, table: int) -> tuple[Floats, Floats]:
        """Blocks of a table's rows that are read equally often: the rows of each (B,), and the chance of a row (B,).

        If there are counts, rows read OFTEN or more keep their counted rate; the other rows follow the Zipf law of the
        table.
        """
        index = np.array([table])
        often = (self.reads[table] >= OFTEN) & (self.bins[table] > 0)
        hot, rate = self.bins[table, often], self.reads[table, often] / max(self.counted[table], 1.0)
        if not often.any():
            log_rank, rows = (each[0] for each in ranks(self.rows[index]))
            served = 0.0
        else:
            served = min(float((hot * rate).sum()), 1.0)
            first, last = log(hot.sum() + 0.5), log(max(self.rows[table], hot.sum() + 1) + 0.5)
            log_rank, rows = (each[0] for each in between(np.array([first]), np.array([last])))
        law = exp(-self.zipf[table] * log_rank)
        law *= (1 - served) / (law * rows).sum()
        return np.concatenate([hot, rows]), np.concatenate([rate, law])

    def staying(self, table: Ints, lookups: Floats, cached: Floats) -> Floats:
        """Rows (N,) that remain in a cache of the `cached` most read rows, besides the missed rows of two batches."""
        return np.maximum(cached - 2 * self._missed_beside(table, lookups, cached), 0.0)

    def missed_static(self, table: Ints, lookups: Floats, cached: Floats) -> Floats:
        """The number of different rows of these lookups that miss a cache of the most read rows (N,)."""
        return self._missed_beside(table, lookups, self.staying(table, lookups, cached))

    def _missed_beside(self, table: Ints, lookups: Floats, kept: Floats) -> Floats:
        """Different rows (N,) of these lookups that are not among the `kept` most read rows.

        By a Zipf law, the most read rows are a smaller table with the same exponent. By counts, every missed lookup is
        assumed to read a different row.
        """
        hot = self._kept_share(table, kept)
        among = zipf_unique_rows(self.zipf[table], np.maximum(kept, 1.0), lookups * hot)
        rows = self.unique_rows(table, lookups)
        by_law = np.maximum(rows - np.where(kept >= 1, among, 0.0), 0.0)
        return np.where(self.counted[table] > 0, np.minimum(rows, lookups * (1 - hot)), by_law)

    def _kept_share(self, table: Ints, rows: Floats) -> Floats:
        """As `hot_share`, for lookups other than the counted ones: rows not read OFTEN follow the Zipf law."""
        share, counted = self.hot_share(table, rows), self.counted[table] > 0
        if not counted.any():
            return share
        often = (self.reads >= OFTEN)[table] * self.bins[table]
        hot, served = often.sum(axis=1), (often * self.reads[table]).sum(axis=1) / np.maximum(self.counted[table], 1.0)
        zipf, last = self.zipf[table], self.rows[table]
        begun = harmonic(zipf, hot)
        part = (harmonic(zipf, np.clip(rows, hot, last)) - begun) / np.maximum(harmonic(zipf, last) - begun, TINY)
        return np.where(counted & (rows > hot), served + np.maximum(1 - served, 0) * np.minimum(part, 1.0), share)

    def _held(self, table: Ints, cached: Floats) -> Floats:
        """The number of lookups (N,) that read `cached` different rows."""
        low, high = np.zeros(len(table)), np.full(len(table), float(HORIZON))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            too_far = self.unique_rows(table, cached * power(2.0, middle)) > cached
            low, high = np.where(too_far, low, middle), np.where(too_far, middle, high)
        return cached * power(2.0, low)

    def _thinned(self, table: Ints, lookups: Floats) -> Floats:
        """Rows left of the counted batch if each read is kept with chance q: of rows read c times, 1 - (1 - q) ** c."""
        with np.errstate(divide="ignore"):  # the counted batch itself: q is 1
            log_lost = log1p(-lookups / np.maximum(self.counted[table], 1))
        return -(self.bins[table] * expm1(self.reads[table] * log_lost[:, None])).sum(axis=1)

    def _counted_share(self, table: Ints, rows: Floats) -> Floats:
        """The share of reads of the hottest rows (N,) by counts: linear within a bin, most read bin first."""
        left, served, total = rows, np.zeros(len(table)), (self.bins * self.reads).sum(axis=1)
        for bin_ in reversed(range(NUM_REUSE_BINS)):
            taken = np.minimum(left, self.bins[table, bin_])
            left, served = left - taken, served + taken * self.reads[table, bin_]
        return np.where(rows >= self.unique[table], 1.0, np.minimum(served / total[table], 1))


_UNKNOWN = AccessProfile(zipf=DEFAULT_ZIPF)


def _exponent(profile: AccessProfile) -> float:
    """The exponent of a profile: 0 if it has counts, and the assumed one if it says only where hot rows are."""
    assumed = DEFAULT_ZIPF if profile.reuse_bins is None else 0.0
    return assumed if profile.zipf is None else profile.zipf


def _shares(profiles: Sequence[AccessProfile]) -> Floats:
    """Shares of the counted rows in each bin (T, 17), scaled to add up to 1, because files may round them."""
    no_bins = (0.0,) * NUM_REUSE_BINS
    shares = np.array([profile.reuse_bins or no_bins for profile in profiles]).reshape(-1, NUM_REUSE_BINS)
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 0.5)


def _reads_of_a_row(bins: Floats, counted: Floats) -> Floats:
    """Reads of a row of each bin (T, 17), chosen so that their sum is the counted lookups, as nearly as the bins allow.

    A row has the geometric mean of its bin's ends; the open last bin takes the remaining reads. Any remaining
    difference moves the reads of all bins by the same fraction of the distance to their lower, or upper, end.
    """
    most = np.tile(_MOST, (len(bins), 1))
    most[:, -1] = np.maximum(counted, _FEWEST[-1])
    reads = np.sqrt(_FEWEST * most)
    left = counted - (bins * reads)[:, :-1].sum(axis=1)
    reads[:, -1] = np.clip(left / np.maximum(bins[:, -1], TINY), _FEWEST[-1], most[:, -1])
    missing = counted - (bins * reads).sum(axis=1)
    room = np.where(missing[:, None] > 0, most, _FEWEST) - reads
    reach = (bins * room).sum(axis=1)
    part = np.divide(missing, reach, out=np.zeros_like(reach), where=reach != 0)
    return reads + room * np.clip(part, 0, 1)[:, None]
