"""Rows that streams need, as `recsmith data capacity` predicts them, compared with a simulation of every lookup.

python benchmarks/capacity.py served            # shares that tables serve, by a sample and exactly
python benchmarks/capacity.py whole             # rows of whole streams, predicted from their first tenth
python benchmarks/capacity.py cost              # CPU seconds a million lookups, and the peak of memory
python benchmarks/capacity.py sketches          # rows predicted from sketches as `watch` keeps them

MovieLens needs its folder: --movielens FOLDER. `--quick` takes streams a tenth as long.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recsmith._random import ZipfLaw
from recsmith.data import MovieLensSpec, open_dataset
from recsmith.streaming.capacity import Asked, IdSample, Sampled, TableReads, forecast
from recsmith.streaming.capacity.caches import SERVED
from recsmith.streaming.capacity.of_sketches import capacity_of_job
from recsmith.streaming.sketch_files import SketchFiles

LOOKUPS = 300_000
SERVE = 0.99
KEPT = 2**16  # lookups that a sample keeps
PARTS = (0.1, 0.3, 1.0)  # of the rows that serve 99 %, whose shares are compared
POLICIES = tuple(SERVED)
SEEDS = 2


def zipf(power: float, ids: int, lookups: int, seed: int) -> np.ndarray:
    """The same ids all the time."""
    chance = np.random.default_rng(seed)
    return chance.permutation(ids)[np.asarray(ZipfLaw(ids, power).ranks(chance.random(lookups)), np.int64)]


def replaced(power: float, ids: int, lookups: int, seed: int, rate: float) -> np.ndarray:
    """Ids of which `rate` a lookup give their place, however often it is read, to new ones."""
    chance = np.random.default_rng(seed)
    places = np.asarray(ZipfLaw(ids, power).ranks(chance.random(lookups)), np.int64)
    held, new, made = chance.permutation(ids), ids, np.empty(lookups, np.int64)
    for first in range(0, lookups, 1000):
        count = chance.poisson(rate * 1000)
        held[chance.integers(0, ids, count)] = np.arange(new, new + count)
        new += count
        made[first : first + 1000] = held[places[first : first + 1000]]
    return made


def newest(power: float, ids: int, lookups: int, seed: int, rate: float) -> np.ndarray:
    """`rate` new ids a lookup, of which the newest are read most: news."""
    chance = np.random.default_rng(seed)
    ranks = np.asarray(ZipfLaw(ids, power).ranks(chance.random(lookups)), np.int64)
    return ids + (np.arange(lookups) * rate).astype(np.int64) - ranks


def streams(quick: bool, movielens: str | None, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """(what it is, ids in order)."""
    n = LOOKUPS // 10 if quick else LOOKUPS
    yield "Zipf 1.05, 100,000 ids", zipf(1.05, 100_000, n, seed)
    yield "Zipf 0.8, 30,000 ids", zipf(0.8, 30_000, n, seed)
    yield "Zipf 1.0, 20,000 at once, 0.02 new ids a lookup", replaced(1.0, 20_000, n, seed, 0.02)
    yield "Zipf 0.7, 5,000 at once, 0.1 new ids a lookup", replaced(0.7, 5000, n, seed, 0.1)
    yield "the newest read most, 0.02 new ids a lookup", newest(1.0, 20_000, n, seed, 0.02)
    if movielens is not None and seed == 0:
        source = open_dataset(MovieLensSpec(path=movielens, split="all", split_by="time")).source
        blocks = [source.read(block).whole() for block in range(len(source.sizes()))]
        yield "MovieLens by time, movies", np.concatenate([each.ids["movie"].values for each in blocks])
        yield "MovieLens by time, users", np.concatenate([each.ids["user"].values for each in blocks])


def sampled(ids: np.ndarray, most: int) -> Sampled:
    """What is kept of a stream."""
    sample = IdSample(most)
    for first in range(0, len(ids), 10_000):
        sample.add(ids[first : first + 10_000])
    return sample.sampled()


def fewest_rows(ids: list[int], policy: str, wanted: float) -> int:
    """The fewest rows, to half a percent, that serve so many lookups, each of them simulated."""
    low, high = 0, len(set(ids))
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if SERVED[policy](ids, middle, 1) >= wanted else (middle, high)
    return high


def served(quick: bool, movielens: str | None) -> None:
    """Shares of lookups and rows, by a sample and by every lookup."""
    print("| stream | ids kept | policy | rows of 99 %: predicted | exact | off | largest error of a share, points |")
    print("|---|---|---|---|---|---|---|")
    for name, ids in streams(quick, movielens, 0):
        reads, every = TableReads(sampled(ids, KEPT if not quick else KEPT // 8)), ids.tolist()
        again = len(every) - len(set(every))
        for policy in POLICIES:
            true = fewest_rows(every, policy, SERVE * again)
            errors = [
                abs(reads.served(policy, max(1, round(part * true))) -
                    SERVED[policy](every, max(1, round(part * true)), 1) / len(every))
                for part in PARTS
            ]  # fmt: skip
            predicted = round(reads.rows(policy, SERVE))
            kept = f"{reads.sampled.rate:.3g}"
            print(f"| {name} | {kept} | {policy} | {predicted:,} | {true:,} | {predicted / true - 1:+.1%} | "
                  f"{100 * max(errors):.2f} |", flush=True)  # fmt: skip


def whole(quick: bool, movielens: str | None) -> None:
    """Rows of 99 % of the whole stream, predicted from its first tenth, of several seeds."""
    found: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for seed in range(1 if quick else SEEDS):
        for name, ids in streams(quick, movielens, seed):
            all_of_it = TableReads(sampled(ids, 2**20))
            begun = all_of_it.sampled.first(len(ids) // 10)
            predicted = forecast(begun, len(ids), POLICIES, serve=SERVE)
            for policy in POLICIES:
                now, true = TableReads(begun).rows(policy, SERVE), all_of_it.rows(policy, SERVE)
                inside = predicted.low <= true / predicted.rows[policy] <= predicted.high
                found.setdefault((name, policy), []).append((now, predicted.rows[policy], true, float(inside)))
    print("| stream | policy | rows of the tenth | predicted | whole | off, by seed | in the interval |")
    print("|---|---|---|---|---|---|---|")
    for (name, policy), each in found.items():
        now, predicted, true, inside = (statistics.mean(part) for part in zip(*each, strict=True))
        off = ", ".join(f"{one[1] / one[2] - 1:+.1%}" for one in each)
        print(f"| {name} | {policy} | {now:,.0f} | {predicted:,.0f} | {true:,.0f} | {off} | "
              f"{inside * len(each):.0f} of {len(each)} |")  # fmt: skip


def cost(quick: bool) -> None:
    """CPU seconds of keeping a million lookups, of predicting rows by all policies, and the peak of memory."""
    print("| lookups | CPU s a million, kept | CPU s, prediction | memory in addition to imports |")
    print("|---|---|---|---|")
    for millions in (1, 2) if quick else (1, 4, 16):
        done = subprocess.run(
            [sys.executable, __file__, "one", "--millions", str(millions)], capture_output=True, text=True, check=True
        )
        print(done.stdout, end="", flush=True)


def one(millions: int) -> None:
    """One line of the costs: a stream that is drawn part by part."""
    law, chance = ZipfLaw(5_000_000, 1.0), np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sample, kept_s = IdSample(), 0.0
    for _ in range(millions * 10):
        ids = np.asarray(law.ranks(chance.random(100_000)), np.int64)
        begun = time.process_time()
        sample.add(ids)
        kept_s += time.process_time() - begun
    begun = time.process_time()
    reads = TableReads(sample.sampled())
    for policy in POLICIES:
        reads.rows(policy, SERVE)
    predicted_s = time.process_time() - begun
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"| {millions},000,000 | {kept_s / millions:.2f} | {predicted_s:.1f} | {more:.0f} MiB |")


def sketches(quick: bool) -> None:
    """Rows of the whole stream by sketches of its first 40 %: a batch of 1,000 in 8 is looked at, 500 ids of it."""
    print("| stream | policy | predicted | interval | whole |")
    print("|---|---|---|---|---|")
    looks = 2 if quick else 8  # short streams have few batches
    for name, ids in streams(quick, None, 0):
        true = TableReads(sampled(ids, 2**20))
        with tempfile.TemporaryDirectory() as folder:
            files, ones = (
                SketchFiles(Path(folder), 0, ("id",), len(ids) // 10_000, looks=looks),
                np.ones(1000, np.int32),
            )
            for step in range(1, len(ids) // 2500 + 1):
                batch = ids[(step - 1) * 1000 : step * 1000]
                if step % looks == 0:
                    files.add("id", ones, batch[:500], ones[:500])
                if step % (len(ids) // 10_000) == 0:
                    files.write(step)
            (feature,) = capacity_of_job(folder, Asked(whole=len(ids))).features
        for each in feature.policies:
            print(f"| {name} | {each.policy} | {each.rows:,} | {each.low:,} to {each.high:,} | "
                  f"{true.rows(each.policy, SERVE):,.0f} |", flush=True)  # fmt: skip


def main() -> None:
    """The tables of docs/vocabularies.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["served", "whole", "cost", "sketches", "one"])
    parser.add_argument("--movielens", metavar="FOLDER")
    parser.add_argument("--millions", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.what in ("served", "whole"):
        {"served": served, "whole": whole}[given.what](given.quick, given.movielens)
    elif given.what == "one":
        one(given.millions)
    else:
        {"cost": cost, "sketches": sketches}[given.what](given.quick)


if __name__ == "__main__":
    main()
