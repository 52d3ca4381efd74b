"""Detects columns of a job's data that have changed: labels, dense columns, bags and ids are watched levels.

F features, D dense columns, L labels, n levels
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.streaming.detectors.plain_state import PlainState, places_of
from recsmith.streaming.id_levels import IdShares, agreement
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.levels import Levels, Mask

LEVELS = ("label_rate", "missing_values", "corrupt_samples", "dense_mean", "dense_spread", "bag_length", "new_ids",
          "joined_rows")  # fmt: skip
# The least changes that are reported:
LABEL, SPREAD, LENGTH = 1.5, 2.5, 1.3  # factors of a label's mean, of a standard deviation, of the ids in a bag
SHARE, MEAN = 0.1, 0.5  # differences of a share of missing values, and of a mean in deviations of its column
CORRUPT, NEW = 0.02, 0.15  # differences of the share of corrupt samples, and of new ids
OTHER = 0.05  # difference of shares of ids: the sum over buckets of (now - before)^2 / before
AGREED, LOST = 2.0, 0.5  # deviations from which a column agrees with the label; factor below which it no longer does
PRESENT = 30  # least number of non-zero values of a dense column in a look for mean and deviation
CHECKED = 8  # least number of ids in a look for a share of new ones
SMALLEST = 1e-9  # least deviation of a dense column relative to its mean, for constant columns
LARGEST_LOG = 700.0  # largest logarithm of a deviation, so that its exponential is finite


class ColumnFault(NamedTuple):
    """A fault of a column: its kind, the column, how it is now, since how many looks, and how it was before."""

    kind: str
    of: str
    because: str
    looks: int = 0
    then: str = ""


class ColumnLevels(PlainState):
    """The levels of all labels, dense columns and features of a job."""

    STATE = ("levels", "shares")

    def __init__(self, layout: JobLayout) -> None:
        self.layout = layout
        labels, dense, features = layout.labels, layout.dense, layout.features
        parts = {
            "label": labels, "lacks": labels, "zeros": dense, "mean": dense, "spread": dense, "corrupt": ("",),
            "empty": features, "length": features, "new": features, "other": features,
            "with": (*features, *dense), "all": ("",),
        }  # fmt: skip
        starts = np.cumsum([0, *(len(names) for names in parts.values())]).tolist()
        self._parts = {part: slice(*starts[at : at + 2]) for at, part in enumerate(parts)}
        self.levels = Levels([f"{part}/{name}" for part, names in parts.items() for name in names])
        self.shares = IdShares(len(features))

    def with_layout(self, layout: JobLayout) -> "ColumnLevels":
        """The levels of other columns; how labels agree with all columns together is learned anew."""
        made, before = ColumnLevels(layout), self.layout
        made.levels = self.levels.with_names(made.levels.names, "all/")
        made.shares = self.shares.with_features(places_of(layout.features, before.features))
        return made

    def faults(self, sums: JobSums) -> Iterator[ColumnFault]:
        """The faults of levels that have shifted at this look by enough to matter."""
        if not sums["rows"]:
            return
        values, noise = np.full(len(self.levels.names), np.nan), np.zeros(len(self.levels.names))
        spreads = self._measure(sums, values, noise)
        usual, before = self.levels.usual.copy(), self.levels.known
        moved = self.levels.add(values, noise) & before
        matter = self._matters(usual, self.levels.now, spreads)
        found = {part: np.flatnonzero(moved[at] & matter[part]) for part, at in self._parts.items() if part in matter}
        for part, places in found.items():
            for place in places.tolist() if part in TEXTS else ():
                yield self._told(part, place, usual, values)
        if len(found["with"]) or len(found["all"]):
            yield from self._joined(found["with"], usual)

    # --- measuring -------------------------------------------------------------------------------------------------

    def _measure(self, sums: JobSums, values: Floats, noise: Floats) -> Floats:
        """Fill in the levels' values (n,) and sampling noise (n,); returns the dense columns' deviations (D,)."""
        parts, rows = self._parts, sums["rows"]
        total, present, _ = sums.labels.T
        with np.errstate(divide="ignore", invalid="ignore"):
            values[parts["label"]] = total / present
            values[parts["lacks"]] = 1 - present / rows
            bags, lookups, empty = sums.features[:, 1], sums.features[:, 0], sums.features[:, 8]
            values[parts["empty"]], values[parts["length"]] = empty / bags, lookups / bags
            checked = sums.features[:, 9]
            values[parts["new"]] = np.where(checked >= CHECKED, sums.features[:, 10] / checked, np.nan)
            mean, spread = self._dense(sums, rows)
        values[parts["zeros"]], values[parts["mean"]] = sums.dense[:, 2] / rows, mean
        values[parts["spread"]] = np.log(spread)
        values[parts["corrupt"]] = sums["corrupt"] / (rows + sums["corrupt"])
        values[parts["other"]], features = self.shares.look(sums.buckets, sums.judged)
        values[parts["with"]] = each = np.concatenate([features, agreement(sums.dense, sums.judged)])
        values[parts["all"]] = self._together(each)
        counts = {"label": present, "lacks": rows, "zeros": rows, "corrupt": rows, "empty": bags, "new": checked}
        for part, count in counts.items():
            at = parts[part]
            noise[at] = _noise(self.levels.usual[at], np.broadcast_to(count, noise[at].shape))
        return spread

    def _together(self, each: Floats) -> float:
        """Agreement of labels with all columns, weighted by the usual agreement, in deviations; NaN if that is weak."""
        at = self._parts["with"]
        usual = np.where(self.levels.known[at] & np.isfinite(each), self.levels.usual[at], 0.0)
        length = math.sqrt(float(usual @ usual))
        return float(usual @ np.where(usual == 0, 0.0, each)) / length if length >= AGREED else math.nan

    def _dense(self, sums: JobSums, rows: float) -> tuple[Floats, Floats]:
        """(mean, deviation) of the non-zero values of each dense column (D,); NaN if there are too few."""
        total, squares, zeros, _ = sums.dense.T
        present = np.where(rows - zeros >= PRESENT, rows - zeros, np.nan)
        mean = total / present
        spread = np.sqrt(np.maximum(squares / present - mean * mean, 0.0))
        spread = np.maximum(spread, SMALLEST * (1 + np.abs(mean)))
        fine = np.isfinite(mean) & np.isfinite(spread)
        return np.where(fine, mean, np.nan), np.where(fine, spread, np.nan)

    def _matters(self, usual: Floats, now: Floats, spread: Floats) -> dict[str, Mask]:
        """Whether each level has changed enough to matter, by part."""
        before = {part: usual[at] for part, at in self._parts.items()}
        after = {part: now[at] for part, at in self._parts.items()}
        low, high = np.minimum(before["label"], after["label"]), np.maximum(before["label"], after["label"])
        widest = np.fmax(np.exp(np.minimum(before["spread"], LARGEST_LOG)), spread)
        moved = {part: np.abs(after[part] - before[part]) for part in self._parts}
        lengths = np.maximum(before["length"], 1e-9), np.maximum(after["length"], 1e-9)
        return {
            "label": (high > LABEL * low) | (1 - low > LABEL * (1 - high)),
            "lacks": moved["lacks"] > SHARE, "zeros": moved["zeros"] > SHARE, "empty": moved["empty"] > SHARE,
            "corrupt": after["corrupt"] - before["corrupt"] > CORRUPT, "mean": moved["mean"] > MEAN * widest,
            "spread": moved["spread"] > math.log(SPREAD),
            "length": np.maximum(lengths[0] / lengths[1], lengths[1] / lengths[0]) > LENGTH,
            "new": after["new"] - before["new"] > NEW, "other": after["other"] - before["other"] > OTHER,
            "with": _lost(before["with"], after["with"]), "all": _lost(before["all"], after["all"]),
        }  # fmt: skip

    # --- telling ---------------------------------------------------------------------------------------------------

    def _told(self, part: str, place: int, usual: Floats, now: Floats) -> ColumnFault:
        """The fault of a shifted level, whose sums are then reset."""
        at = self._parts[part].start + place
        looks, before, after = int(self.levels.run[at]), float(usual[at]), float(now[at])
        name = self.levels.names[at].partition("/")[2]
        self.levels.mark_reported(np.array([at]))
        kind, *texts = TEXTS[part]
        if part == "spread":
            before, after = _of_log(before), _of_log(after)
        text, then = (each.format(name=name, now=after, before=before) for each in texts)
        return ColumnFault(kind, name, text, looks, then)

    def _joined(self, found: Ints, usual: Floats) -> Iterator[ColumnFault]:
        """Faults of columns that no longer agree with the label; if most of them do not, one fault of the label."""
        at, everything = self._parts["with"], self._parts["all"].start
        before, now, run = usual[at], self.levels.now[at], self.levels.run[at]
        part = np.where(_lost(before, now, least=0.0) & (run > 0), before**2, 0.0)
        strongest = int(np.argmax(before**2))
        others = part.sum() - part[strongest], before @ before - before[strongest] ** 2
        if part[strongest] and 2 * others[0] > others[1]:
            looks = int(max(self.levels.run[everything], run[part > 0].min()))
            self.levels.mark_reported(np.array([everything, *(at.start + found)]))
            of = self.layout.labels[0] if len(self.layout.labels) == 1 else ""
            what = f"label '{of}'" if of else "the labels"
            text = f"the columns say less of {what}"
            then = " than before: its values may be of other rows; look at how it is joined"
            yield ColumnFault("joined_rows", of, text, looks, then)
            return
        self.levels.mark_reported(at.start + found)
        for place in found.tolist():
            name = self.levels.names[at.start + place].partition("/")[2]
            what = f"feature '{name}'" if place < len(self.layout.features) else f"dense column '{name}'"
            text = f"{what} goes with the label by {abs(now[place]):.1f} deviations a look"
            then = f", and by {abs(before[place]):.1f} before: it may be of other rows; look at how it is joined"
            yield ColumnFault("joined_rows", name, text, int(run[place]), then)


def _lost(before: Floats, now: Floats, *, least: float = AGREED) -> Mask:
    """Which columns agreed with the label, by more than `least` deviations, and no longer do."""
    return (np.abs(before) > least) & (now * np.sign(before) < LOST * np.abs(before))


TEXTS = {
    "label": ("label_rate", "label '{name}' is {now:.3g} on average",
              ", and was {before:.3g} before: it may be lost, late or turned round; look at how it is joined"),
    "lacks": ("missing_values", "{now:.0%} of the samples lack label '{name}'",
              ", and {before:.0%} did before: its join may lose some; look at how it is joined"),
    "zeros": ("missing_values", "{now:.0%} of dense column '{name}' are missing (0, or no number)",
              ", and {before:.0%} were before: a part of its source may be gone; look at what fills it"),
    "mean": ("dense_mean", "the mean of dense column '{name}' is {now:.4g}",
             ", and was {before:.4g} before: its unit or its source may be another one; look at what fills it"),
    "spread": ("dense_spread", "the standard deviation of dense column '{name}' is {now:.4g}",
               ", and was {before:.4g} before: its unit or its source may be another one; look at what fills it"),
    "corrupt": ("corrupt_samples", "{now:.1%} of the samples cannot be read",
                ", and {before:.1%} could not before: what writes them may have changed; look at the newest files"),
    "empty": ("missing_values", "{now:.0%} of the samples have no id of feature '{name}'",
              ", and {before:.0%} had none before: a part of its source may be gone; look at what fills it"),
    "length": ("bag_length", "feature '{name}' has {now:.3g} ids a sample",
               ", and had {before:.3g} before: its lists may be cut, or joined twice; look at what fills it"),
    "new": ("new_ids", "{now:.0%} of the ids of feature '{name}' are new",
            ", and {before:.0%} were before: its hash or vocabulary may be another one; look at what fills it"),
    "other": ("hot_set", "feature '{name}' reads its ids in other shares",
              " than before: its traffic, its hash or its vocabulary may be another one; look at what fills it"),
}  # fmt: skip
"""By part: the kind of fault, a text of how the level is now, and one of how it was, its meaning and where to look."""


def _of_log(value: float) -> float:
    return math.exp(min(value, LARGEST_LOG))


def _noise(share: Floats, count: Floats) -> Floats:
    """The standard deviation of shares that were counted in `count` independent values."""
    count = np.maximum(count, 2.0)
    share = np.clip(share, 1 / count, 1 - 1 / count)
    return np.sqrt(share * (1 - share) / count)
