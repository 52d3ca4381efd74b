"""Faults of data that the watch of a job tells, with their column, and alarms of streams in which nothing happens.

python benchmarks/watching_columns.py faults --seeds 10               # 20 kinds of fault, each after 700 calm steps
python benchmarks/watching_columns.py calm --steps 20000              # five kinds of job in which nothing happens
python benchmarks/watching_columns.py cost                            # microseconds of CPU a step and a look

No model trains: batches of generated samples are added up and judged by the parts that do so in a job. This is exact,
since these levels follow from data alone; only faults of predictions, rates and times are left out. Choices were
made with seeds 100 to 109, and are reported for others.
"""

import argparse
import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from recsmith._random import mixed
from recsmith.data import Batch, JaggedIds, open_dataset, spec_from_raw
from recsmith.streaming.column_sums import ColumnSums
from recsmith.streaming.job_signals import CAUSES, JobSignals
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.repeats import SeenSamples

EVERY, IDS = 8, 256  # steps between two looks, and ids of a feature for hot sets, as `watch: auto` has them
CALM, WITHIN, BATCH = 700, 50, 128  # steps before a fault; those in which it is to be told; samples of a step
Change = Callable[[Batch, int], Batch]  # of a batch, and its step


class Watched:
    """A stream of batches, looked at as a job on one rank does. found: (step of telling, kind, column, text)."""

    def __init__(self, schema: Any, whole: int) -> None:
        names = schema.feature_names
        layout = JobLayout(names, tuple(schema.dense), 1, ((1.0,),) * len(names), tuple(schema.labels))
        lengths = [each.pooling_factor or 1.0 for each in schema.features]
        self.columns = ColumnSums(layout, lengths, whole, EVERY, range(len(schema.labels)))
        self.signals, self.samples = JobSignals(layout, kinds=CAUSES), SeenSamples()
        self.sent: tuple[int, JobSums] | None = None
        self.found = list[tuple[int, str, str, str]]()

    def step(self, step: int, batch: Batch) -> None:
        """Add a step; at a look, judge the sums of the one before."""
        self.samples.add(batch.sample_ids, 0)
        if self.columns.counts(step):
            self.columns.add(batch)
        if step % EVERY:
            return
        told = [] if self.sent is None else self.signals.look(*self.sent)
        self.found += [(step, each.kind, each.of, each.because) for each in told]
        sums = self.columns.take()
        self.columns.known.look(lambda bits: bits)
        sums["checked"], sums["repeated"] = self.samples.take()
        for row, (name, bags) in enumerate(batch.ids.items()):
            ids, hot = bags.values[:IDS], self.signals.hot[name]
            sums.add_ids(row, ids, hot.count(ids))
            if hot.full:
                hot.choose(*hot.collected())
            if not hot.chosen:
                sums.features[row, 2] = 0
        self.sent = step, sums


# --- faults -----------------------------------------------------------------------------------------------------------


def _chosen(batch: Batch, share: float) -> np.ndarray:
    return mixed(mixed(batch.sample_ids.astype(np.uint64))) < np.uint64(share * 2**64)


def _dense(column: int, change: Callable[[np.ndarray, Batch], Any]) -> Change:
    def broken(batch: Batch, _: int) -> Batch:
        dense = batch.dense.copy()
        dense[:, column] = change(dense[:, column], batch)
        return replace(batch, dense=dense)

    return broken


def _ids(name: str, change: Callable[[JaggedIds, Batch, np.random.Generator], JaggedIds]) -> Change:
    def broken(batch: Batch, step: int) -> Batch:
        chance = np.random.default_rng([step, len(name)])
        return replace(batch, ids={**batch.ids, name: change(batch.ids[name], batch, chance)})

    return broken


def _labels(change: Callable[[np.ndarray, Batch], Any]) -> Change:
    return lambda batch, _: replace(batch, labels=np.asarray(change(batch.labels, batch), np.float32))


def _values(change: Callable[[np.ndarray, Batch, np.random.Generator], np.ndarray]) -> Any:
    return lambda bags, batch, chance: replace(bags, values=change(bags.values, batch, chance).astype(np.int64))


def _kept(bags: JaggedIds, kept: np.ndarray) -> JaggedIds:
    return JaggedIds(values=bags.values[np.repeat(kept, bags.lengths)], lengths=(bags.lengths * kept).astype(np.int32))


def _doubled(bags: JaggedIds, *_: Any) -> JaggedIds:
    return JaggedIds(values=np.repeat(bags.values, 2), lengths=(2 * bags.lengths).astype(np.int32))


OF_NONE = ("corrupt_samples", "repeated_samples")  # kinds that are of no column
ROWS = 2000
FAULTS: dict[str, tuple[str, Change]] = {  # what happens: the column that is to be named, and how it is done
    "all labels 0": ("label", _labels(lambda labels, _: np.zeros_like(labels))),
    "half of the clicks lost": ("label", _labels(lambda labels, batch: labels * ~_chosen(batch, 0.5)[:, None])),
    "labels turned round": ("label", _labels(lambda labels, _: 1 - labels)),
    "labels of other rows": ("label", _labels(lambda labels, _: np.roll(labels, 1, 0))),
    "a dense column 3 deviations higher": ("dense_0", _dense(0, lambda values, _: values + 3)),
    "a dense column times 100": ("dense_1", _dense(1, lambda values, _: values * 100)),
    "a dense column 4 times as wide": (
        "dense_1", _dense(1, lambda values, _: values.mean() + 4 * (values - values.mean()))),
    "40 % of a dense column missing": ("dense_2", _dense(2, lambda values, batch: values * ~_chosen(batch, 0.4))),
    "20 % of a dense column no numbers": (
        "dense_2", _dense(2, lambda values, batch: np.where(_chosen(batch, 0.2), np.nan, values))),
    "a dense column constant": ("dense_0", _dense(0, lambda values, _: np.full_like(values, 0.7))),
    "a dense column of other rows": ("dense_0", _dense(0, lambda values, _: np.roll(values, 1))),
    "5 % of the samples corrupt": ("", lambda batch, _: replace(batch, corrupt=round(0.05 * len(batch)))),
    "one id takes 30 %": (
        "f1", _ids("f1", _values(lambda ids, batch, _: np.where(_chosen(batch, 0.3).repeat(
            batch.ids["f1"].lengths), 7, ids)))),
    "a feature one id alone": ("f0", _ids("f0", _values(lambda ids, *_: np.zeros_like(ids)))),
    "half of the bags empty": ("f2", _ids("f2", lambda bags, batch, _: _kept(bags, ~_chosen(batch, 0.5)))),
    "all bags empty": ("f2", _ids("f2", lambda bags, batch, _: _kept(bags, np.zeros(len(batch), bool)))),
    "ids evenly drawn (a broken hash, bots)": (
        "f3", _ids("f3", _values(lambda ids, _, chance: chance.integers(0, ROWS, len(ids))))),
    "ids of another vocabulary": ("f3", _ids("f3", _values(lambda ids, *_: (ids * 7919 + 13) % ROWS))),
    "ids of other rows": ("f4", _ids("f4", _values(lambda ids, *_: np.roll(ids, 1)))),
    "each id twice": ("f5", _ids("f5", _doubled)),
    "samples that come again": ("", lambda batch, _: batch),  # the stream is read again, see `broken`
}  # fmt: skip


def stream(spec: dict[str, Any], batch: int, steps: int) -> tuple[Any, Iterator[Batch]]:
    """Batches of generated samples, in order."""
    dataset = open_dataset(spec_from_raw({"format": "generator", "num_samples": batch * (steps + 10), **spec}, "it"))

    def batches() -> Iterator[Batch]:
        with dataset.batches(rank=0, world_size=1, batch_size=batch, seed=0, shuffle=False) as source:
            for number, each in enumerate(source):
                if number == steps:
                    return
                yield each

    return dataset.schema, batches()


def plain(seed: int) -> dict[str, Any]:
    """Six features of 2,000 rows, three dense columns, a label that is 1 in a quarter of the samples."""
    features = [{"name": f"f{i}", "num_embeddings": ROWS, "zipf": 1.05} for i in range(6)]
    return {"features": features, "dense": 3, "seed": seed}


def faults(seeds: range, size: int) -> None:
    """How many seeds have each fault reported with its column, and how soon."""
    delays, others = {fault: list[int]() for fault in FAULTS}, {fault: Counter[str]() for fault in FAULTS}
    kinds, before = {fault: Counter[str]() for fault in FAULTS}, list[tuple[int, str, str, str]]()
    text = dict[str, str]()
    for seed in seeds:
        schema, batches = stream(plain(seed), size, CALM + WITHIN + EVERY)
        calm, kept = Watched(schema, size), list[Batch]()
        for step, batch in enumerate(batches, 1):
            if step <= CALM:
                calm.step(step, batch)
            if step > CALM - 30:
                kept.append(batch)
        before += calm.found
        for fault, (column, change) in FAULTS.items():
            watched = copy.deepcopy(calm)
            for place in range(WITHIN + EVERY):
                again = fault == "samples that come again"
                batch = kept[place % 24] if again else change(kept[30 + place], CALM + 1 + place)
                watched.step(CALM + 1 + place, batch)
            for step, kind, of, because in watched.found[len(calm.found) :]:
                if of == column and step - CALM <= WITHIN and (column or kind in OF_NONE):
                    kinds[fault][kind] += 1
                    delays[fault].append(step - CALM)
                    text.setdefault(fault, because)
                    break
            right = {(column, kind) for kind in kinds[fault]}
            others[fault].update(f"{kind} {of}" for _, kind, of, _ in watched.found[len(calm.found) :]
                                 if (of, kind) not in right)  # fmt: skip
    print("| fault | reported as | within 50 steps | steps until then | other alarms |\n|---|---|---|---|---|")
    for fault in FAULTS:
        told = ", ".join(f"`{kind}`" for kind in kinds[fault]) or "-"
        when = sorted(delays[fault])
        span = f"{when[0]} to {when[-1]}, median {when[len(when) // 2]}" if when else "-"
        more = ", ".join(f"{count} {what}" for what, count in others[fault].items()) or "0"
        print(f"| {fault} | {told} | {len(when)} of {len(seeds)} | {span} | {more} |")
    full = sum(len(each) >= 0.9 * len(seeds) for each in delays.values())
    print(f"\n{full} of {len(FAULTS)} kinds are reported in nine of ten seeds; {sum(map(len, delays.values()))} of "
          f"{len(FAULTS) * len(seeds)} cases; {len(before)} alarms before the faults {before}")  # fmt: skip
    for fault, because in text.items():
        print(f"{fault}: {because}")


# --- calm streams -----------------------------------------------------------------------------------------------------


def calm_jobs(seed: int) -> dict[str, tuple[dict[str, Any], int, Change | None]]:
    """Five kinds of job: the generator's spec, samples of a step, and what is done to batches."""

    def named(count: int, **fields: Any) -> list[dict[str, Any]]:
        return [{"name": f"f{i}", **{key: value(i) if callable(value) else value for key, value in fields.items()}}
                for i in range(count)]  # fmt: skip

    def own_laws(batch: Batch, step: int) -> Batch:
        """Dense columns with heavy tails, a third of one missing; a second label, which a third of samples lack."""
        chance = np.random.default_rng([seed, step])
        dense = np.exp(1.5 * batch.dense) * (chance.random(batch.dense.shape) < (1.0, 0.67, 0.95))
        other = np.where(chance.random(len(batch)) < 1 / 3, np.nan, chance.random(len(batch)) < 0.05)
        return replace(batch, dense=dense.astype(np.float32),
                       labels=np.column_stack([batch.labels[:, 0], other]).astype(np.float32))  # fmt: skip

    return {
        "small tables, 128 samples a step": (plain(seed), 128, None),
        "bags of 1 to 12 ids in sessions, 256 samples": (
            {"features": named(5, num_embeddings=20_000, lengths="poisson", pooling_factor=lambda i: 1 + 2.5 * i),
             "dense": 4, "seed": seed, "sessions": {"size": 4, "duplication": 0.5}}, 256, None),
        "rare labels (1 in 100), 1,024 samples": (
            {**plain(seed), "teacher": {"positive_rate": 0.01}}, 1024, None),
        "tables of 10,000,000 rows, 512 samples, drifting truth": (
            {"features": named(6, num_embeddings=10_000_000), "dense": 2, "seed": seed,
             "drift": {"kind": "rotating", "samples": 20_000_000, "of": ["ids"]}}, 512, None),
        "heavy tails, missing values, two labels, 256 samples": (plain(seed), 256, own_laws),
    }  # fmt: skip


def calm(steps: int, seeds: range) -> None:
    """Alarms of streams in which nothing happens."""
    total = alarms = 0
    print("| job | steps | alarms |\n|---|---|---|")
    for name in calm_jobs(0):
        found = list[tuple[int, str, str, str]]()
        for seed in seeds:
            spec, size, change = calm_jobs(seed)[name]
            schema, batches = stream(spec, size, steps)
            if change is not None:
                schema = replace(schema, labels=("label", "other"), missing_labels=("other",))
            watched = Watched(schema, size)
            for step, batch in enumerate(batches, 1):
                watched.step(step, batch if change is None else change(batch, step))
            found += watched.found
        told = ", ".join(f"{count} `{kind}`" for kind, count in Counter(each[1] for each in found).items())
        print(f"| {name} | {steps * len(seeds):,} | {told or '0'} |", flush=True)
        for each in found[:6]:
            print("   ", each)
        total, alarms = total + steps * len(seeds), alarms + len(found)
    print(f"\n{alarms} alarms in {total:,} steps")


def cost() -> None:
    """Microseconds of CPU: of the sums of a step, and of judging a look."""
    features = [{"name": f"f{i}", "num_embeddings": 100_000} for i in range(26)]
    print("| samples a step | steps of 8 that are counted | sums of a step, mean of all | judging a look |")
    print("|---|---|---|---|")
    for size in (128, 512, 2048):
        schema, batches = stream({"features": features, "dense": 13, "seed": 0}, size, 64)
        watched, held = Watched(schema, size), list(batches)
        adds = looks = 0.0
        for _ in range(8):
            for place, batch in enumerate(held, 1):
                begun = time.process_time()
                if watched.columns.counts(place):
                    watched.columns.add(batch)
                adds += time.process_time() - begun
                if place % EVERY == 0:
                    sums = watched.columns.take()
                    begun = time.process_time()
                    list(watched.signals.causes.levels.faults(sums))
                    looks += time.process_time() - begun
        steps = 8 * len(held)
        look = looks / steps * EVERY
        print(f"| {size:,} | {watched.columns.steps} | {adds / steps * 1e6:.0f} µs | {look * 1e6:.0f} µs |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("faults", "calm", "cost"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=BATCH)
    parser.add_argument("--steps", type=int, default=20_000)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    if given.part == "faults":
        faults(seeds, given.samples)
    elif given.part == "calm":
        calm(given.steps, seeds)
    else:
        cost()


if __name__ == "__main__":
    main()
