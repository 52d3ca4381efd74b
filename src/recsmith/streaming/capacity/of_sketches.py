"""Computes how many rows a watched job's tables need, from its sketches, by a law that is fitted to them.

Sketches record the number of different ids in each period and in several together, and how often ids are read, but not
which id was read when. A law is fitted to these numbers, a stream is drawn from it, and that stream is read like data.
A period that samples few lookups sees fewer ids with the same skew, so lengths are counted in sketched lookups.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recsmith._random import philox, salt
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.plans import load_plan
from recsmith.streaming.capacity.capacity import Asked, Capacity, FeatureCapacity, PolicyRows, features_of
from recsmith.streaming.capacity.drawn import drawn
from recsmith.streaming.capacity.fitting import SeenIds, fit
from recsmith.streaming.capacity.law import LawFit
from recsmith.streaming.capacity.reads import DEVIATIONS
from recsmith.streaming.live_workload import reads_of_ids
from recsmith.streaming.sketch_files import read_periods
from recsmith.streaming.sketches import MOST, IdSketch

DRAWN = 2**18  # lookups of a stream drawn from the law
OFF_BY = 0.016  # standard error of the number of different ids by HyperLogLog
BY_READS, THINNED = 0.05, 6  # relative error of the ids in parts of a period; number of halvings of a period
REPEATED = 12  # laws fitted to randomly perturbed counts
FEWEST = 1000  # least number of sketched lookups

Periods = Sequence[IdSketch]  # sketches of a feature by period, the oldest first


def capacity_of_job(folder: str, asked: Asked) -> Capacity:
    """The tables that a run needs, from the sketches in its output folder.

    asked: what to compute; `whole` is the length of the stream in samples, by default those the job has read so far.

    Raises:
        UsageError: there are no sketches, they have features of another job, or too few lookups were sketched.
    """
    periods = read_periods(Path(folder))
    sketches = {name: [each[name] for _, each in periods if name in each] for name in periods[-1][1]}
    _check_names(folder, tuple(sketches), asked)
    named = {name: each for name, each in sketches.items() if name in (asked.features or sketches)}
    first = next(iter(named.values()), [])
    steps = [step for step, _ in periods]
    covered = len(steps) * (steps[1] - steps[0]) if len(steps) > 1 else steps[0]
    bags = sum(each.bags for each in first)
    if not bags:
        raise UsageError(f"nothing was sketched yet in '{folder}'; wait until the job has looked at some batches")
    every = sum(each.of_lookups for each in first) / max(1, sum(each.lookups for each in first))
    samples = round(bags * every * steps[-1] / covered)
    length = max(samples, asked.whole or 0)
    return Capacity(
        source=folder, samples=samples, whole=length if length > samples else None, serve=asked.serve,
        admit=asked.admit, features=tuple(_features(named, asked, length)), by_law=True,
    )  # fmt: skip


def _check_names(folder: str, names: tuple[str, ...], asked: Asked) -> None:
    strange = next((each for each in asked.features if each not in names), None)
    if strange is not None:
        raise UsageError(f"the sketches have no feature '{strange}'{did_you_mean(strange, list(names))}")
    plan = Path(folder) / "plan.json"
    if not plan.exists():
        return
    known = {each.name for table in load_plan(str(plan)).workload.tables for each in table.features}
    other = next((each for each in names if each not in known), None)
    if other is not None:
        raise UsageError(
            f"'{folder}' has sketches of feature '{other}', which no table of its plan reads "
            f"({', '.join(sorted(known))}): they are of other data; give the folder of one run"
        )


def _features(sketches: Mapping[str, Periods], asked: Asked, samples: int) -> Iterator[FeatureCapacity]:
    for name, periods in sketches.items():
        if sum(each.sketched for each in periods) < FEWEST:
            raise UsageError(
                f"{sum(each.sketched for each in periods):,} lookups of feature '{name}' were sketched, which are too "
                "few; let the job go on, or look at more ids"
            )
        yield _of_law(name, job_law(periods), periods, asked, samples)


def _of_law(name: str, made: LawFit, periods: Periods, asked: Asked, samples: int) -> FeatureCapacity:
    """The table for a stream drawn from the law; its interval includes the error of the fit and of the sketches."""
    bags = sum(each.bags for each in periods)
    lookups = max(1, round(samples * sum(each.lookups for each in periods) / bags))
    (found,) = features_of({name: drawn(made.law, lookups, DRAWN)}, asked, 1.0)
    off = math.exp(DEVIATIONS * math.hypot(made.off, _spread(periods, lookups, asked.serve)))

    def wider(each: PolicyRows) -> PolicyRows:
        return replace(each, low=math.floor(each.low / off), high=math.ceil(each.high * off))

    return replace(found, policies=tuple(wider(each) for each in found.policies))


def job_law(periods: Periods) -> LawFit:
    """The law of a feature's ids, fitted to its sketches, with `churn` per lookup of the whole job."""
    made = fit(seen_in(periods))
    return replace(made, law=replace(made.law, churn=made.law.churn * _thinned(periods)))


def _spread(periods: Periods, lookups: int, serve: float) -> float:
    """Standard deviation of log(rows), from laws fitted to counts perturbed by the errors of sketches."""
    found, thinned = seen_in(periods), _thinned(periods)
    generator = np.random.Generator(philox(0, 0, salt("figures of sketches")))
    start = fit(found).law
    ratios = list[float]()
    for _ in range(REPEATED):
        off = np.exp(generator.standard_normal(len(found.distinct)) * [each[2] for each in found.distinct])
        moved = tuple((each[0], each[1] * by, each[2]) for each, by in zip(found.distinct, off.tolist(), strict=True))
        law = fit(replace(found, distinct=moved), start).law
        ratios.append(math.log(replace(law, churn=law.churn * thinned).rows(lookups, serve)))
    return float(np.std(ratios, ddof=1))


def _thinned(periods: Periods) -> float:
    """The share of a job's lookups that were sketched."""
    sketched, of_lookups = (sum(getattr(each, name) for each in periods) for name in ("sketched", "of_lookups"))
    return sketched / max(of_lookups, sketched)


def seen_in(periods: Periods) -> SeenIds:
    """Counts of different ids from sketches: in runs of consecutive periods, and in parts of the newest period."""
    found = [(width, ids, math.hypot(OFF_BY, 1 / math.sqrt(max(ids, 1)))) for width, ids in _in_periods(periods)]
    parts = [(width, ids, BY_READS) for width, ids in _in_parts(periods[-1])]
    return SeenIds(
        lookups=sum(each.sketched for each in periods), distinct=tuple(sorted(found, reverse=True)) + tuple(parts),
        common=(),
    )  # fmt: skip


def _in_periods(periods: Periods) -> Iterator[tuple[float, float]]:
    """Mean (lookups, different ids) of runs of consecutive periods, for each length of a run."""
    for count in range(1, len(periods) + 1):
        runs = [periods[at : at + count] for at in range(len(periods) - count + 1)]
        yield (
            float(np.mean([sum(each.sketched for each in run) for run in runs])),
            float(np.mean([run[0].distinct_with(*run[1:]) for run in runs])),
        )


def _in_parts(sketch: IdSketch) -> Iterator[tuple[float, float]]:
    """(lookups, different ids) of 1/2, 1/4, ... of a period's lookups, estimated from how often ids are read."""
    reads, count = reads_of_ids(sketch, MOST)
    for halving in range(1, THINNED + 1):
        part = 0.5**halving
        yield sketch.sketched * part, float(count @ -np.expm1(reads * np.log1p(-part)))
