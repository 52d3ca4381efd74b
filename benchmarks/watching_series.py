"""Detectors on series of which it is known what happens: false alarms, and how many shifts, spikes and ramps are told.

python benchmarks/watching_series.py --seeds 20 --first-seed 5000      # the table of docs/watch.md

Each series is noise of deviation 1 around 0. A calm one has 2,000 values. In the others something happens at value
1,000: they are 5 or 1 higher from there on, or one value is 10 higher, or within 300 values they become 5 higher.
Told is an alarm within so many values as CHANGES says. Only counts are printed, which are the same on every machine.
"""

import argparse
from typing import Any

import numpy as np

from recsmith._types import Floats
from recsmith.streaming import AlarmingSeries

DETECTORS: dict[str, tuple[object, ...]] = {  # an alarm of any is one
    "ensemble": ("ensemble",),
    "ensemble, scale log": ({"name": "ensemble", "scale": "log"},),
    "tail": ("tail",),
    "ewma": ("ewma",),
    "median_mad": ("median_mad",),
    "seasonal": ({"name": "seasonal", "period": 24},),
    "adwin": ("adwin",),
    "ewma and adwin": ("ewma", "adwin"),
}
CALM, AT = 2000, 1000
PLACE = np.arange(CALM)
CHANGES = {  # what is added, and the values within which it is to be told
    "shift of 5": (5.0 * (PLACE >= AT), 50),
    "shift of 1": (1.0 * (PLACE >= AT), 500),
    "spike of 10": (10.0 * (PLACE == AT), 2),
    "ramp to 5": (5.0 * np.clip((PLACE - AT) / 300, 0, 1), 300),
}


def noise(kind: str, seed: int) -> Floats:
    """A series of mean 0 and deviation 1."""
    chance = np.random.default_rng(seed)
    if kind == "AR(1) 0.8":
        steps = chance.normal(size=CALM + 100) * 0.6
        values = [0.0]
        for step in steps.tolist():
            values.append(0.8 * values[-1] + step)
        return np.array(values[-CALM:])
    law = {"white": chance.normal, "Laplace": chance.laplace, "log-normal": chance.lognormal}[kind]
    mean, deviation = {
        "white": (0, 1),
        "Laplace": (0, 2**0.5),
        "log-normal": (np.exp(0.5), (np.e * (np.e - 1)) ** 0.5),
    }[kind]
    return (law(size=CALM) - mean) / deviation


KINDS = ("white", "AR(1) 0.8", "Laplace", "log-normal")


def alarms(detectors: tuple[object, ...], values: Floats) -> list[int]:
    """Where any of some detectors alarms."""
    judges = [AlarmingSeries(each) for each in detectors]
    found = [[judge.add(value) is not None for value in values.tolist()] for judge in judges]
    return np.flatnonzero(np.any(found, axis=0)).tolist()


def row(name: str, kind: str, seeds: range, detectors: dict[str, tuple[Any, ...]] = DETECTORS) -> str:
    """What a detector does with noise of a kind."""
    calm = [alarms(detectors[name], noise(kind, seed)) for seed in seeds]
    false, early = sum(map(len, calm)), sum(at < 500 for each in calm for at in each)
    told = [
        sum(any(AT <= at < AT + within for at in alarms(detectors[name], noise(kind, seed) + added)) for seed in seeds)
        for added, within in CHANGES.values()
    ]
    return (
        f"| {kind} | {name} | {false / len(seeds):.2f} | {early / len(seeds):.2f} | "
        f"{' | '.join(f'{each} of {len(seeds)}' for each in told)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--only", action="append", choices=DETECTORS, help="a detector (default: all)")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    print(f"| noise | detector | false alarms in {CALM:,} | of these in 500 | {' | '.join(CHANGES)} |")
    print("|---|" + "---|" * (3 + len(CHANGES)))
    for kind in KINDS:
        for name in given.only or DETECTORS:
            print(row(name, kind, seeds), flush=True)


if __name__ == "__main__":
    main()
