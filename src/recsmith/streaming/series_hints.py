"""Hints in addition to the alarms of a series: that another detector, threshold or column would suit it better.

A hint is no alarm and does not change alarms. All hints follow from the values and alarms alone.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from recsmith._types import Floats, record
from recsmith.streaming.alarm_shapes import shape_of
from recsmith.streaming.csv_series import NamedSeries
from recsmith.streaming.detectors.log_scale import tail_note
from recsmith.streaming.detectors.seasonal import LEARN, PERIODS, likeness_of
from recsmith.streaming.series import Alarm

IDS = re.compile(r"(?i:(^|[_\W])ids?)$|[a-z]I[dD]s?$")  # names of columns that hold ids
MOST = 20_000  # newest values in which a period is sought
CYCLES = 4  # periods that the values must cover at least
REACH = 5  # values around the correlation's peak, among which the period that explains most is chosen
TIMES, LESS = range(2, 8), 0.8  # multiples of a period that are tried; one must leave at most this share of deviation
LIKE, NEAR = 0.5, 0.9  # least autocorrelation at the period; share of its maximum that marks the first peak
CLIP = 3.0  # robust deviations from the median at which values are clipped: none alone makes or hides a season
EXPLAINED = 0.5  # largest share of the deviation that is left after subtracting an earlier season from later values
TO_DEVIATION = 1.4826  # standard deviation / median absolute deviation of a normal distribution
RARE = 0.9  # share of equal values from which the other values are taken for rare counts
STRETCH, DRIFTED = 100, 3.0  # values in the first and in the last stretch; deviations between their medians
HIDING = 30.0  # deviations of a drift, as of a loss in its first steps, that hides smaller spikes (docs/watch.md)
OFTEN, FEW = 200, 5  # values per alarm, and number of alarms, from which there are too many alarms


@record
class SeriesSeason:
    """The season of a series. period: its length in values. left, whole: deviation without and with the season."""

    period: int
    left: float
    whole: float


def hints_of(series: NamedSeries, alarms: Sequence[Alarm], *, plain: bool = True) -> tuple[str, ...]:
    """Hints about a series that the default detector judged. plain: whether on the plain scale, not the log scale."""
    found = tuple(_hints(series, alarms, plain))
    if found or len(alarms) < FEW or len(alarms) * OFTEN < len(series.values):
        return found
    return (
        f"'{series.name}' has an alarm in every {len(series.values) // len(alarms):,} values, which are too many to be "
        "faults; a higher --threshold reports the rarest alone, and --column NAME judges other columns",
    )


def _hints(series: NamedSeries, alarms: Sequence[Alarm], plain: bool) -> Iterator[str]:
    name, values = series.name, series.values
    if IDS.search(name) and all(value == int(value) for value in values):
        if alarms:
            yield f"'{name}' holds ids, by its name, which measure nothing; name columns that do with --column"
        return
    if (said := _rare_note(name, values)) is not None:
        if alarms:
            yield said
        return
    if (said := season_note(name, values)) is not None:
        yield said
        return
    if plain and (said := tail_note(name, values, [each.at for each in alarms])) is not None:
        yield said
    has_levels = any(shape_of(values, each.at, each.season).kind in ("level", "late") for each in alarms)
    if not has_levels and (said := _drift_note(name, values)) is not None:
        yield said


def season_note(name: str, values: Sequence[float]) -> str | None:
    """A hint for a series with a season; None if it has none."""
    if (found := season_of_values(values)) is None:
        return None
    learn = f" --set learn={PERIODS * found.period}" if len(values) <= LEARN else ""
    return (
        f"'{name}' repeats every {found.period:,} values: less that season its deviation is {found.left:.3g} instead "
        f"of {found.whole:.3g}; --detector seasonal --set period={found.period}{learn} judges what is left"
    )


def other_period_note(name: str, values: Sequence[float], period: int) -> str | None:
    """A hint if a series was judged with a period that is no multiple of its own; None otherwise."""
    found = season_of_values(values)
    if found is None or period % found.period == 0:
        return None
    return f"'{name}' repeats every {found.period:,} values, and was judged by a period of {period:,}"


def season_of_values(values: Sequence[float]) -> SeriesSeason | None:
    """The season of a series; None if it has none.

    A season is a period at which the autocorrelation is high, and whose shape in the first half of the values recurs in
    the second half: subtracting it there leaves at most half of the deviation.
    """
    series = np.asarray(values[-MOST:], float)
    middle = float(np.median(series))
    reach = CLIP * _deviation(series)
    if reach == 0:
        return None
    series = np.clip(series, middle - reach, middle + reach)
    likeness, start = likeness_of(series)
    likeness = likeness[: len(series) // CYCLES + 1]
    if start >= len(likeness) or (most := float(np.max(likeness[start:]))) < LIKE:
        return None
    first = start + int(np.argmax(likeness[start:] >= NEAR * most))
    period = first + int(np.argmax(likeness[first : first + first // 5 + 1]))
    period = _best_period(series, period)
    left, whole = _deviation(_left(series, period)), _deviation(series[len(series) // 2 :])
    return None if left > EXPLAINED * whole else SeriesSeason(period=period, left=left, whole=whole)


def _best_period(series: Floats, about: int) -> int:
    """The period near a peak that leaves the least, or a multiple of it, as weeks of days, if that leaves far less."""
    most = len(series) // CYCLES

    def left(period: int) -> float:
        return float(np.mean(np.abs(_left(series, period))))

    best = min(range(max(about - REACH, 1), min(about + REACH, most) + 1), key=left)
    longer = [best * times for times in TIMES if best * times <= most]
    multiple = min(longer, key=left, default=best)
    return multiple if left(multiple) < LESS * left(best) else best


def _left(series: Floats, period: int) -> Floats:
    """The second half of a series minus the season of the first half, centred on its median."""
    half = len(series) // 2
    cycles = series[half - half // period * period : half].reshape(-1, period)
    later = series[half:]
    left = later - np.resize(np.median(cycles, axis=0), len(later))
    return left - np.median(left)


def _rare_note(name: str, values: Sequence[float]) -> str | None:
    usual, count = Counter(values).most_common(1)[0]
    if not RARE * len(values) <= count < len(values):
        return None
    return (
        f"'{name}' is {usual:g} in {count / len(values):.1%} of its values, and single other ones alarm; where these "
        "are no faults, judge sums of longer stretches, or give a higher --threshold"
    )


def _drift_note(name: str, values: Sequence[float]) -> str | None:
    """A hint if the first and the last stretch of a series differ by many deviations of the noise; else None."""
    series = np.asarray(values, float)
    stretches = series[: len(series) // STRETCH * STRETCH].reshape(-1, STRETCH)
    if len(stretches) < 3:
        return None
    noise = float(np.median([_deviation(each) for each in stretches]))
    begun, ended = float(np.median(stretches[0])), float(np.median(series[-STRETCH:]))
    if noise == 0 or abs(ended - begun) < DRIFTED * noise:
        return None
    hidden = (
        "; while it moves so far, and for some 1,000 values afterwards, spikes of 25 deviations are reported, and "
        "hardly any of 10"
        if abs(ended - begun) > HIDING * noise else ""
    )  # fmt: skip
    return (
        f"'{name}' went from {begun:.4g} in its first {STRETCH} values to {ended:.4g} in its last, "
        f"{abs(ended - begun) / noise:.1f} deviations, and no alarm says that its level moved: such a slow drift is "
        f"for --detector adwin{hidden}"
    )


def _deviation(values: Floats) -> float:
    return TO_DEVIATION * float(np.median(np.abs(values - np.median(values))))
