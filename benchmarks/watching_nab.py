"""Detectors of recsmith.streaming on the Numenta Anomaly Benchmark: score, held-out halves, microseconds a value.

python benchmarks/watching_nab.py FOLDER      # half a minute; FOLDER: a checkout of github.com/numenta/NAB
python benchmarks/watching_nab.py FOLDER --only ensemble --only "robust EWMA and ADWIN"

First NAB's scorer is checked: from the published scores of the windowed Gaussian detector it must compute 39.65.
Each detector is scored as it is, and with one alarm an episode: of scores that follow each other within 100 values only
those that are higher than all before them count. Thresholds are NAB's: the best one for all series, or, held out, the
best one of every other series for the rest. Times are CPU seconds of one thread, the least of three passes.
"""

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recsmith.streaming import NabSeries, detector_of, load_nab, nab_score
from recsmith.streaming.detectors.ensemble import AlarmEpisodes
from recsmith.streaming.nab import PROFILES, read_rows

DETECTORS: dict[str, object] = {
    "ensemble": "ensemble",
    "ensemble, an episode of 50": {"name": "ensemble", "episode": 50},
    "ensemble, an episode of 200": {"name": "ensemble", "episode": 200},
    "tail of a robust EWMA": "tail",
    "robust EWMA": "ewma",
    "median and MAD of 200": "median_mad",
    "seasonal ESD residuals": "seasonal",
    "ADWIN (river)": "adwin",
    "robust EWMA and ADWIN": None,
}
ROUNDS = 3
Scores = dict[str, list[float]]


class Chance:
    """Scores that nothing is known by."""

    def __init__(self) -> None:
        self.score = lambda _: random.random()


class Both:
    """Alarms of the robust EWMA and of ADWIN, each above its own threshold: scores are multiples of it."""

    def __init__(self) -> None:
        self.ewma, self.adwin = detector_of("ewma"), detector_of("adwin")

    def score(self, value: float) -> float:
        """The higher of both; a mean that ADWIN found moved is as far as its move in robust deviations, and 1 more."""
        moved = self.adwin.score(value)
        return max(
            self.ewma.score(value) / self.ewma.threshold,
            1 + moved / self.ewma.deviation if moved and self.ewma.known else 0.0,
        )


class Nothing:
    """No alarm ever."""

    def score(self, _: float) -> float:
        """0."""
        return 0.0


def scored(corpus: Mapping[str, NabSeries], make: Any) -> tuple[Scores, float]:
    """A detector's scores of every series, and the seconds that a value takes."""
    best, scores = float("inf"), Scores()
    for _ in range(ROUNDS):
        begun = time.process_time()
        for name, series in corpus.items():
            score = make().score
            scores[name] = [score(value) for value in series.values]
        best = min(best, time.process_time() - begun)
    return scores, best / sum(len(series.values) for series in corpus.values())


def in_episodes(scores: Sequence[float]) -> list[float]:
    """Of each episode only the scores that are higher than all before."""
    rise = AlarmEpisodes(length=100).rise
    return [rise(score) for score in scores]


def held_out(corpus: Mapping[str, NabSeries], scores: Scores) -> tuple[float, float]:
    """The scores of every other series, first and second, each with the threshold of the others."""
    halves = [{name: corpus[name] for name in sorted(corpus)[start::2]} for start in (0, 1)]
    best = [nab_score(half, scores) for half in halves]
    return tuple(nab_score(halves[i], scores, threshold=best[1 - i].threshold).score for i in (0, 1))  # type: ignore


def published(folder: Path, corpus: Mapping[str, NabSeries]) -> Scores:
    """The scores that NAB publishes for its windowed Gaussian detector."""
    found = Scores()
    for name in corpus:
        group, file = name.split("/")
        rows = read_rows(folder / "results/windowedGaussian" / group / f"windowedGaussian_{file}")
        found[name] = [float(row["anomaly_score"]) for row in rows]
    return found


def line(name: str, corpus: Mapping[str, NabSeries], scores: Scores, seconds: float | None) -> str:
    """A row of the table."""
    once = {each: in_episodes(values) for each, values in scores.items()}
    plain = [nab_score(corpus, scores, profile=profile).score for profile in PROFILES]
    better = once if nab_score(corpus, once).score > plain[0] else scores
    first, second = held_out(corpus, better)
    cost = "" if seconds is None else f"{seconds * 1e6:.1f} µs"
    return (
        f"| {name} | {' | '.join(f'{each:.2f}' for each in plain)} | {nab_score(corpus, once).score:.2f} "
        f"| {first:.1f} and {second:.1f} | {nab_score(corpus, better).threshold:.3g} | {cost} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", action="append", choices=DETECTORS, help="a detector (default: all, and those beside)"
    )
    given = parser.parse_args()
    folder = given.folder
    corpus = load_nab(folder)
    theirs = published(folder, corpus)
    points = sum(len(series.values) for series in corpus.values())
    print(f"{len(corpus)} series, {points:,} values, {sum(len(series.windows) for series in corpus.values())} windows")
    print(f"windowed Gaussian, published scores: {nab_score(corpus, theirs).score:.4f} (published: 39.6495)\n")
    print("| detector | " + " | ".join(PROFILES) + " | one alarm an episode | held-out halves | threshold | a value |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.only or DETECTORS:
        spec = DETECTORS[name]
        scores, seconds = scored(corpus, Both if spec is None else lambda spec=spec: detector_of(spec))
        print(line(name, corpus, scores, seconds), flush=True)
        own = 1.0 if spec is None else detector_of(spec).threshold
        once = {each: in_episodes(values) for each, values in scores.items()}
        found = [nab_score(corpus, each, threshold=own).score for each in (scores, once)]
        print(f"  with its own threshold, {own:g}: {found[0]:.2f}; one alarm an episode: {found[1]:.2f}", flush=True)
    if given.only:
        return
    print(line("windowed Gaussian, published", corpus, theirs, None))
    random.seed(0)
    print(line("random", corpus, scored(corpus, Chance)[0], None))
    print(line("null", corpus, scored(corpus, Nothing)[0], None))


if __name__ == "__main__":
    main()
