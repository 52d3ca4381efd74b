"""What is said beside the alarms of a series: another detector or threshold, or another column, would tell more of it.

A hint is no alarm, and changes none. Each goes by the values alone.
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

IDS = re.compile(r"(?i:(^|[_\W])ids?)$|[a-z]I[dD]s?$")  # of names of columns that hold ids
MOST = 20_000  # values, the newest, that a period is looked for in
CYCLES = 4  # periods that are seen at least
REACH = 5  # values beside the peak of the correlation among which the period is the one that explains most
TIMES, LESS = range(2, 8), 0.8  # multiples of a period that are tried, and of the deviation, at most, that one leaves
LIKE, NEAR = 0.5, 0.9  # correlation a period later, at least; and of the largest one, where the first peak is
CLIP = 3.0  # robust deviations from the median, so that no single value makes a season or hides one
EXPLAINED = 0.5  # of the deviation, at most, that is left where an earlier season is taken from later values
TO_DEVIATION = 1.4826  # of a normal law: deviation over median distance
RARE = 0.9  # of values that are the same: the others are rare counts
STRETCH, DRIFTED = 100, 3.0  # values of the first and the last stretch; deviations between their medians
HIDING = 30.0  # deviations of a drift, as of a loss in its first steps, which hides smaller spikes (docs/watch.md)
OFTEN, FEW = 200, 5  # values an alarm, and alarms, from which on they are many


@record
class SeriesSeason:
    """How a series repeats. period: in values. left, whole: its deviation less the season, and as it is."""

    period: int
    left: float
    whole: float


def hints_of(series: NamedSeries, alarms: Sequence[Alarm], *, plain: bool = True) -> tuple[str, ...]:
    """What is said of a series that the default detector judged. plain: on its own scale, not on that of logarithms."""
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
    told = any(shape_of(values, each.at, each.season).kind in ("level", "late") for each in alarms)
    if not told and (said := _drift_note(name, values)) is not None:
        yield said


def season_note(name: str, values: Sequence[float]) -> str | None:
    """What is said of a series with a season; None of one without."""
    if (found := season_of_values(values)) is None:
        return None
    learn = f" --set learn={PERIODS * found.period}" if len(values) <= LEARN else ""
    return (
        f"'{name}' repeats every {found.period:,} values: less that season its deviation is {found.left:.3g} instead "
        f"of {found.whole:.3g}; --detector seasonal --set period={found.period}{learn} judges what is left"
    )


def other_period_note(name: str, values: Sequence[float], period: int) -> str | None:
    """What is said of a series judged by a period that is none of its own; None where it is one, or none is known."""
    found = season_of_values(values)
    if found is None or period % found.period == 0:
        return None
    return f"'{name}' repeats every {found.period:,} values, and was judged by a period of {period:,}"


def season_of_values(values: Sequence[float]) -> SeriesSeason | None:
    """The season of a series; None of one without.

    A season is a period after which the series is like itself, and whose course in the first half of the values is that
    of the second half, too: less it, their deviation is half as much or less.
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
    """The period near a peak that leaves least; a multiple of it, as weeks are of days, that leaves far less."""
    most = len(series) // CYCLES

    def left(period: int) -> float:
        return float(np.mean(np.abs(_left(series, period))))

    best = min(range(max(about - REACH, 1), min(about + REACH, most) + 1), key=left)
    longer = [best * times for times in TIMES if best * times <= most]
    multiple = min(longer, key=left, default=best)
    return multiple if left(multiple) < LESS * left(best) else best


def _left(series: Floats, period: int) -> Floats:
    """The second half less the season of the first, around its median."""
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
    """What is said of a series that ends elsewhere than it began, by the noise within its stretches."""
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
