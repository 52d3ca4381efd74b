"""The score of the Numenta Anomaly Benchmark (NAB): it rewards early alarms and few false ones on 58 labelled series.

Lavin and Ahmad, "Evaluating Real-Time Anomaly Detection Algorithms - the Numenta Anomaly Benchmark", ICMLA 2015; the
weights are those of its program (nab/sweeper.py), whose published scores are reproduced.

n points of all series, w labelled windows; every point with a score at or above the threshold is an alarm
"""

import csv
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.errors import UsageError

PROBATION, LONGEST_PROBATION = 0.15, 750  # points at the beginning of a series that are not judged: share, maximum
TOO_LATE = 3.0  # window widths after a window's end from which an alarm costs as much as any false one
PROFILES = {"standard": (0.11, 1.0), "reward_low_FP_rate": (0.22, 1.0), "reward_low_FN_rate": (0.11, 2.0)}


@noun
class NabSeries:
    """A labelled series: its values (n,), and the first and last point of each window with an anomaly."""

    values: tuple[float, ...]
    windows: tuple[tuple[int, int], ...]


@noun
class NabScore:
    """A NAB score and its threshold; 100 for alarms at the first point of each window only, 0 for no alarms."""

    score: float
    threshold: float


def load_nab(folder: str | Path) -> dict[str, NabSeries]:
    """The series in a checkout of NAB, by names such as realTweets/Twitter_volume_AAPL.csv; files may be .gz.

    Raises:
        UsageError: the folder is no checkout of NAB.
    """
    labels = Path(folder) / "labels" / "combined_windows.json"
    if not labels.is_file():
        raise UsageError(f"'{folder}' has no labels/combined_windows.json; give a checkout of github.com/numenta/NAB")
    windows: dict[str, list[list[str]]] = json.loads(labels.read_text(encoding="utf-8"))
    found: dict[str, NabSeries] = {}
    for name in sorted(windows):
        rows = read_rows(Path(folder) / "data" / name)
        place = {row["timestamp"]: number for number, row in enumerate(rows)}
        ends = [(place[_second(first)], place[_second(last)]) for first, last in windows[name]]
        found[name] = NabSeries(values=tuple(float(row["value"]) for row in rows), windows=tuple(sorted(ends)))
    return found


def read_rows(file: Path) -> list[dict[str, str]]:
    """Rows of a CSV file with a header; its .gz version is read if there is one."""
    packed = file.with_name(f"{file.name}.gz")
    text = gzip.decompress(packed.read_bytes()).decode() if packed.is_file() else file.read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _second(time: str) -> str:
    """A time from the labels without fractions of a second, as in the data."""
    return time.partition(".")[0]


def nab_score(
    corpus: Mapping[str, NabSeries], scores: Mapping[str, Sequence[float]], *, profile: str = "standard",
    threshold: float | None = None,
) -> NabScore:  # fmt: skip
    """The NAB score of a detector, from its scores of every point.

    Args:
        corpus: the labelled series, by name.
        scores: the detector's scores of each series' points, by the same names.
        profile: the costs of a false alarm and of a missed window, one of PROFILES.
        threshold: scores at or above it are alarms; None: the threshold with the best NAB score, as in NAB.

    Raises:
        UsageError: a series does not have one score per point, or the profile is unknown.
    """
    if profile not in PROFILES:
        raise UsageError(f"no profile is called '{profile}'; there are {', '.join(PROFILES)}")
    false_cost, miss_cost = PROFILES[profile]
    marks, weights, places, first = [], [], [], 0
    for name, series in corpus.items():
        mine = np.asarray(scores.get(name, ()), np.float64)
        if len(mine) != len(series.values):
            raise UsageError(
                f"series '{name}' has {len(series.values):,} points and {len(mine):,} scores; give one a point"
            )
        weight, place = _weights(series, false_cost)
        judged = slice(probation(len(mine)), None)
        marks.append(mine[judged])
        weights.append(weight[judged])
        places.append(np.where(place[judged] >= 0, place[judged] + first, -1))
        first += len(series.windows)
    totals, thresholds = _totals(np.concatenate(marks), np.concatenate(weights), np.concatenate(places), miss_cost)
    at = int(np.argmax(totals)) if threshold is None else int((thresholds >= threshold).sum()) - 1
    nothing = -miss_cost * first
    used = float(thresholds[at]) if threshold is None else threshold
    return NabScore(score=100 * (float(totals[at]) - nothing) / (first - nothing), threshold=used)


def probation(points: int) -> int:
    """Number of points at the beginning of a series that are not judged."""
    return min(math.floor(PROBATION * points), LONGEST_PROBATION)


def _weights(series: NabSeries, false_cost: float) -> tuple[Floats, Ints]:
    """(reward of an alarm at each point (n,), window of each point, -1 outside (n,))."""
    points = len(series.values)
    weight, place = np.full(points, -false_cost), np.full(points, -1)
    earliest = float(_sigmoid(np.array(-1.0)))
    ends = [*(first for first, _ in series.windows[1:]), points]
    for number, (first, last) in enumerate(series.windows):
        end = ends[number]
        width = last - first + 1
        weight[first : last + 1] = _sigmoid(-np.arange(width, 0, -1) / width) / earliest
        place[first : last + 1] = number
        weight[last + 1 : end] = false_cost * _sigmoid(np.arange(1, end - last) / max(width - 1, 1))
    return weight, place


def _sigmoid(position: Floats) -> Floats:
    """NAB's scaled sigmoid of the position relative to a window: -1 at its beginning, 0 at its end."""
    return np.where(position > TOO_LATE, -1.0, 2 / (1 + np.exp(5 * np.clip(position, -50, 50))) - 1)


def _totals(scores: Floats, weights: Floats, places: Ints, miss_cost: float) -> tuple[Floats, Floats]:
    """(total reward at each threshold, thresholds), starting with no alarms; a window counts by its best alarm only."""
    order = np.argsort(-scores, kind="stable")
    scores, weights, places = scores[order], weights[order], places[order]
    gains = np.where(places < 0, weights, 0.0)
    best: dict[int, float] = {}
    for point in np.flatnonzero(places >= 0):
        window, weight = int(places[point]), float(weights[point])
        before = best.get(window, -miss_cost)
        if weight > before:
            gains[point] = weight - before
            best[window] = weight
    missed = len(set(places[places >= 0].tolist()))
    totals = np.cumsum(gains) - miss_cost * missed
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # equal scores are alarms together
    return np.append(-miss_cost * missed, totals[last]), np.append(np.inf, scores[last])
