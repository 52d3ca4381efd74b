"""How often the rows of tables are read again: how many rows a batch reads, and which share the hottest rows serve.

A table's access profile is a Zipf exponent, or the counts of one batch; DEFAULT_ZIPF without one. From counts, fewer
lookups are a binomial thinning of the counted batch; more are extrapolated by the Zipf law that meets the counts.

Legend: T tables; N questions, each of a table (by index) and an amount; 17 bins by reads of a row in a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.elementary import exp, expm1, log, log1p, power
from recsmith.workloads.access import NUM_REUSE_BINS, AccessProfile
from recsmith.workloads.workload import Table
from recsmith.workloads.zipf import between, fit_zipf, harmonic, ranks, zipf_hot_share, zipf_unique_rows

DEFAULT_ZIPF = 0.893  # assumed for tables that say nothing: with it the 856 tables of sample.py's shared pool read 0.14
# unique rows a lookup in 65,536 samples, as Meta's published batches do (docs/files.md)

HORIZON = 40  # powers of 2 of lookups for each cached row: the most that a cache is taken to remember
HALVINGS = 20  # of that range: lookups are then found within a factor 2 ** (40 / 2 ** 20)
SLOPE_STEP = 0.01  # of the lookups that are remembered: over it the growth of different rows is taken
FLAT = 1e-9  # in place of an exponent of 0, where it divides
OFTEN = 5  # reads from which on a count says how often a row is read
TINY = 1e-300  # in place of no rows, where they divide

_MOST = 2.0 ** np.arange(NUM_REUSE_BINS)  # reads of a row of each bin: 1, 2, 4, 8 ...; the last has no such end
_FEWEST = np.concatenate([[1.0], _MOST[:-1] + 1])  # 1, 2, 3, 5 ... 32769


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How the rows of many tables are read; arrays over tables.

    rows: of the table (T,).
    zipf: exponent; given, assumed, or fitted to the counts (T,).
    scale: what the Zipf law's unique rows are multiplied with, to meet the counts (T,).
    counted: lookups of the counted batch (T,); 0 where nothing was counted, as in the next two.
    unique: rows read in the counted batch (T,).
    bins: of these, the rows in each bin (T, 17).
    reads: what a row of each bin is taken to be read in the counted batch (T, 17).
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
        """The reuse of tables, from their access profiles; counts of more rows than a table has mean all its rows."""
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
        """The expected number of different rows in so many lookups of a table (N,); at most its rows, and lookups."""
        unique = np.empty(len(table))
        counted = lookups <= self.counted[table]
        unique[counted] = self._thinned(table[counted], lookups[counted])
        other, more = table[~counted], lookups[~counted]
        unique[~counted] = self.scale[other] * zipf_unique_rows(self.zipf[other], self.rows[other], more)
        return np.minimum(unique, np.minimum(self.rows[table], lookups))

    def extrapolated(self, table: Ints, lookups: Floats) -> Bools:
        """Where a table with counts is asked for more lookups than were counted (N,)."""
        return (self.counted[table] > 0) & (lookups > self.counted[table])

    def hot_share(self, table: Ints, rows: Floats) -> Floats:
        """The share (0..1) of a table's reads that goes to its most read rows (N,); 1 if no other row is read."""
        counted = self.counted[table] > 0
        if not counted.any():
            return zipf_hot_share(self.zipf[table], self.rows[table], rows)
        share, other = np.empty(len(table)), table[~counted]
        share[counted] = self._counted_share(table[counted], rows[counted])
        share[~counted] = zipf_hot_share(self.zipf[other], self.rows[other], rows[~counted])
        return share

    def read_often(self, table: Ints, lookups: Floats, reads: float) -> Floats:
        """How many rows of a table so many lookups are expected to read `reads` times and more (N,).

        By a Zipf law the row of rank r is read in proportion to r ** -zipf, so as many as bring the most read one's
        reads down to that; by counts, the rows of the bins that are read so often.
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
        """How many different rows of so many lookups miss a cache of the `cached` rows that were read last (N,).

        Che, Tung and Wang, "Hierarchical Web caching systems" (IEEE JSAC 20(7), 2002): these rows are what the last t
        lookups read, t such that they read that many; t + n lookups read what n lookups miss beyond them.
        """
        before = self._held(table, cached)
        return np.maximum(self.unique_rows(table, before + lookups) - self.unique_rows(table, before), 0.0)

    def hit_share(self, table: Ints, cached: Floats) -> Floats:
        """The share (0..1) of lookups whose row is among the `cached` rows that were read last (N,); Che et al., ibid.

        A row that is read with chance p is absent from the last t lookups with chance exp(-p t); the sum of p times
        that chance over all rows is how fast the number of different rows grows at t.
        """
        before = self._held(table, cached)
        step = before * SLOPE_STEP
        growth = self.unique_rows(table, before + step) - self.unique_rows(table, before)
        return 1 - np.clip(growth / np.maximum(step, TINY), 0.0, 1.0)

    def hit_share_over(self, table: Ints, cached: Floats, lookups: Floats) -> Floats:
        """As `hit_share`, in the mean of so many lookups (N,) from a cache on that is empty.

        While it fills, each row misses once.
        """
        before = np.minimum(self._held(table, cached), lookups)
        missed = self.unique_rows(table, before) + (1 - self.hit_share(table, cached)) * (lookups - before)
        return np.clip(1 - missed / np.maximum(lookups, TINY), 0.0, 1.0)

    def by_chance(self, table: int) -> tuple[Floats, Floats]:
        """Blocks of a table's rows that are read equally often: how many rows each has (B,), and their chance (B,).

        Of counts, rows that were read OFTEN are read so often; the others follow the Zipf law of the table.
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
        """Rows (N,) that stay in a cache of the `cached` most read ones, beside others that two batches bring in."""
        return np.maximum(cached - 2 * self._missed_beside(table, lookups, cached), 0.0)

    def missed_static(self, table: Ints, lookups: Floats, cached: Floats) -> Floats:
        """How many different rows of so many lookups miss a cache that keeps the most read rows (N,)."""
        return self._missed_beside(table, lookups, self.staying(table, lookups, cached))

    def _missed_beside(self, table: Ints, lookups: Floats, kept: Floats) -> Floats:
        """Different rows (N,) of so many lookups that are not among the `kept` most read ones.

        By a Zipf law, the most read rows are a smaller table with the same exponent. By counts, every lookup that
        misses is taken for another row.
        """
        hot = self._kept_share(table, kept)
        among = zipf_unique_rows(self.zipf[table], np.maximum(kept, 1.0), lookups * hot)
        rows = self.unique_rows(table, lookups)
        by_law = np.maximum(rows - np.where(kept >= 1, among, 0.0), 0.0)
        return np.where(self.counted[table] > 0, np.minimum(rows, lookups * (1 - hot)), by_law)

    def _kept_share(self, table: Ints, rows: Floats) -> Floats:
        """As `hot_share`, in lookups other than the counted ones: rows that were not read OFTEN follow the Zipf law."""
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
        """The number of lookups (N,) that read so many different rows."""
        low, high = np.zeros(len(table)), np.full(len(table), float(HORIZON))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            too_far = self.unique_rows(table, cached * power(2.0, middle)) > cached
            low, high = np.where(too_far, low, middle), np.where(too_far, middle, high)
        return cached * power(2.0, low)

    def _thinned(self, table: Ints, lookups: Floats) -> Floats:
        """Rows left of the counted batch if each read stays with chance q: of those read c times, 1 - (1 - q) ** c."""
        with np.errstate(divide="ignore"):  # the counted batch itself: q is 1
            log_lost = log1p(-lookups / np.maximum(self.counted[table], 1))
        return -(self.bins[table] * expm1(self.reads[table] * log_lost[:, None])).sum(axis=1)

    def _counted_share(self, table: Ints, rows: Floats) -> Floats:
        """The share of the hottest rows (N,) by counts: linear within a bin, most read bin first."""
        left, served, total = rows, np.zeros(len(table)), (self.bins * self.reads).sum(axis=1)
        for bin_ in reversed(range(NUM_REUSE_BINS)):
            taken = np.minimum(left, self.bins[table, bin_])
            left, served = left - taken, served + taken * self.reads[table, bin_]
        return np.where(rows >= self.unique[table], 1.0, np.minimum(served / total[table], 1))


_UNKNOWN = AccessProfile(zipf=DEFAULT_ZIPF)


def _exponent(profile: AccessProfile) -> float:
    """The exponent of a profile: 0 where it has counts, and the assumed one where it says only where hot rows lie."""
    assumed = DEFAULT_ZIPF if profile.reuse_bins is None else 0.0
    return assumed if profile.zipf is None else profile.zipf


def _shares(profiles: Sequence[AccessProfile]) -> Floats:
    """Shares of the counted rows in each bin, (T, 17); files may round them, here they add up to 1."""
    no_bins = (0.0,) * NUM_REUSE_BINS
    shares = np.array([profile.reuse_bins or no_bins for profile in profiles]).reshape(-1, NUM_REUSE_BINS)
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 0.5)


def _reads_of_a_row(bins: Floats, counted: Floats) -> Floats:
    """Reads of a row of each bin, (T, 17), such that all reads are those counted, as nearly as the bins allow.

    The geometric middle of a bin; the open last bin takes what reads are left. What still differs moves the reads of
    all bins by one part of the way to their lower, or their upper, end.
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
