"""Loads of blocks of rows: what is counted on a part of data, beside what another part of it asks of ranks.

    python benchmarks/loads.py blocks --movielens FOLDER         # without a folder three sets
    python benchmarks/loads.py batches                           # how busy the fullest of 1,000 batches makes a block
    python benchmarks/loads.py memory                            # TorchRec jobs of two ranks: their peak, predicted too
    python benchmarks/loads.py bounds --problems 1000            # random problems with blocks: bound and brute force
    python benchmarks/loads.py kernels --repeats 7               # of row-wise plans on two CPU ranks, rank by rank
    python benchmarks/loads.py plans --ranks 4 --repeats 5       # chosen with blocks and without, their kernels

Sets: `movielens` (films as they are numbered), and three that are generated: `hashed` (a Zipf law of 1.05 whose ids are
hashed), `by frequency` (the same, the most read row first) and `bursts` (hashed, but for each sixteen batches a stretch
of new rows that has 40 % of the lookups). Profiles are counted on even stretches of batches, and asked of odd ones.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from recsmith import AccessProfile, Feature, Table, Workload, load_cluster, plan
from recsmith._random import ZipfLaw
from recsmith._types import Ints
from recsmith.plans import Plan
from recsmith.problems import Space
from recsmith.problems.drawn import most_ids
from recsmith.workloads.data_types import Pooling
from recsmith.workloads.optimizers import OptimizerName
from recsmith.workloads.reuse import Reuse
from recsmith.workloads.row_blocks import access_of_ids, busiest_block, busiest_deviation

ROWS, BATCH, BATCHES, STRETCH = 200_000, 32_768, 512, 16  # rows, ids of all ranks' batches, batches, and of a burst
RANKS = (4, 8, 16)
ZIPF = 1.05
BURST = 0.4  # of the lookups
TYPES = ("table_wise", "column_wise", "row_wise")
GAP = 1.1  # a bound's slack that counts as tight


@dataclass(frozen=True)
class Stream:
    """A set: the rows of its table, and batches of ids of all ranks in their order."""

    name: str
    rows: int
    batches: tuple[Ints, ...]

    def half(self, odd: int) -> tuple[Ints, ...]:
        """The batches of even or odd stretches."""
        return tuple(ids for i, ids in enumerate(self.batches) if i // STRETCH % 2 == odd)


def generated(name: str, seed: int = 0) -> Stream:
    """One of the three sets."""
    draw, law = np.random.default_rng(seed), ZipfLaw(ROWS, ZIPF)
    hashed = draw.permutation(ROWS) if name != "by frequency" else np.arange(ROWS)
    batches: list[Ints] = []
    for i in range(BATCHES):
        if i % STRETCH == 0:
            newest = int(draw.integers(0, ROWS - ROWS // 200))
        ids = hashed[law.ranks(draw.random(BATCH))]
        if name == "bursts":
            new = draw.random(BATCH) < BURST
            ids = np.where(new, newest + draw.integers(0, ROWS // 200, BATCH), ids)
        batches.append(ids)
    return Stream(name, ROWS, tuple(batches))


def movielens(folder: str) -> Stream:
    """Films of ratings, in a random order."""
    from recsmith.data import open_dataset
    from recsmith.data.figures import first_samples
    from recsmith.data.movielens import MovieLensSpec

    dataset = open_dataset(MovieLensSpec(path=folder, split="all"))
    ids = first_samples(dataset, 2**31)[0].ids["movie"].values
    order = np.random.default_rng(0).permutation(len(ids))
    return Stream("movielens", int(ids.max()) + 1, tuple(np.array_split(ids[order], 2 * STRETCH)))


def streams(folder: str | None) -> Iterator[Stream]:
    """MovieLens, where its folder is given, and the generated sets."""
    if folder:
        yield movielens(folder)
    yield from map(generated, ("hashed", "by frequency", "bursts"))


# --- blocks ---------------------------------------------------------------------------------------------------------


def times_of(batches: tuple[Ints, ...], rows: int, ranks: int) -> tuple[float, float]:
    """Lookups of the busiest of TorchRec's blocks over the mean one: of all batches, and the mean of single ones."""
    size = -(-rows // ranks)
    counts = np.array([np.bincount(ids // size, minlength=ranks) for ids in batches])
    return float(counts.sum(0).max() / counts.sum(0).mean()), float((counts.max(1) / counts.mean(1)).mean())


def table_of(stream: Stream) -> Table:
    """The stream's table with what is counted on its even half."""
    ends = np.cumsum([len(ids) for ids in stream.half(0)])[:-1].tolist()
    access = access_of_ids(np.concatenate(stream.half(0)), stream.rows, ends)
    features = (Feature(name=stream.name, pooling_factor=16.0),)
    return Table(name=stream.name, num_embeddings=stream.rows, embedding_dim=64, features=features, access=access)


def blocks(folder: str | None) -> bool:
    """Prints the table of the page; whether all of it is within 10 %."""
    good = True
    print("set            ranks   predicted   of a batch    error   of all batches")
    for stream in streams(folder):
        table = table_of(stream)
        for ranks in RANKS:
            found = busiest_block(table, Reuse.of((table,)), ranks, float(BATCH))
            predicted = ranks * found.lookups if found else 1.0
            together, single = times_of(stream.half(1), stream.rows, ranks)
            error = predicted / single - 1
            good &= abs(error) < 0.1
            print(f"{stream.name:<14} {ranks:>5} {predicted:>11.3f} {single:>12.3f} {error:>+8.1%} {together:>16.3f}")
    return good


def batches(folder: str | None) -> bool:
    """Prints how many ids the busiest block has in the fullest batches; whether none has more than memory is told."""
    good = True
    print("set            ranks   mean   predicted at 99.9 %   fullest of batches   predicted / fullest")
    for stream in streams(folder):
        table, size = table_of(stream), len(stream.batches[0])
        for ranks in RANKS:
            found = busiest_block(table, Reuse.of((table,)), ranks, float(size))
            share = np.array([found.lookups if found else 1 / ranks])
            told = float(most_ids(size * share, share, np.array([busiest_deviation(table, ranks)]))[0])
            block = -(-stream.rows // ranks)
            fullest = max(int(np.bincount(ids // block, minlength=ranks).max()) for ids in stream.half(1))
            good &= fullest <= 1.01 * told  # one batch of four in which one of 256 has more
            words = f"{stream.name:<14} {ranks:>5} {size * share[0]:>6.0f} {told:>21.0f}"
            print(f"{words} {fullest:>20} {told / fullest:>21.3f}")
    return good


# --- memory ---------------------------------------------------------------------------------------------------------

Read = tuple[float, Literal["in_front"] | None]  # a Zipf exponent, and where the hot rows lie
JOBS: tuple[tuple[Pooling, str, Read, OptimizerName], ...] = (
    ("none", "table_wise", (1.05, "in_front"), "sgd"), ("none", "row_wise", (1.05, "in_front"), "sgd"),
    ("none", "table_wise", (0.0, None), "sgd"), ("none", "row_wise", (0.0, None), "sgd"),
    ("none", "table_wise", (1.05, None), "rowwise_adagrad"), ("none", "row_wise", (1.05, None), "adagrad"),
    ("none", "column_wise", (1.05, None), "sgd"), ("sum", "row_wise", (1.05, "in_front"), "sgd"),
)  # fmt: skip


def memory(steps: int) -> bool:
    """What embeddings take at their peak in TorchRec jobs of two ranks, beside what is told of each."""
    from recsmith.verifying.jobs import verify_job

    good = True
    print("pooling  type         ids                optimizer        rank   predicted   measured   over measured")
    for pooling, kind, (zipf, where), optimizer in JOBS:
        access = AccessProfile(zipf=zipf, hot_rows=where)
        tables = tuple(
            Table(name=name, num_embeddings=ROWS, embedding_dim=64, access=access, pooling=pooling,
                  features=(Feature(name=name, pooling_factor=32.0),))
            for name in ("t0", "t1")
        )  # fmt: skip
        work, space = (
            Workload(batch_size=2048, optimizer=optimizer, tables=tables),
            Space(types=(kind,), kernels=("fused",)),
        )
        made = plan(work, load_cluster("cpu:2"), space=space, cost_model="analytic").plan
        for rank in verify_job(made, steps=steps).ranks:
            ratio = rank.predicted_bytes / rank.peak_bytes
            good &= 0.9 < ratio < 1.2
            ids = f"zipf {zipf} {where or 'scattered'}" if zipf else "even"
            words = f"{pooling:<8} {kind:<12} {ids:<18} {optimizer:<16} {rank.rank:>4}"
            sizes = f"{rank.predicted_bytes / 1e6:>8.1f} MB {rank.peak_bytes / 1e6:>7.1f} MB"
            print(words, sizes, f"{ratio:>10.3f}", flush=True)
    return good


# --- bounds ---------------------------------------------------------------------------------------------------------


def bounds(problems: int, first: int) -> bool:
    """Bounds of random problems with uneven blocks beside the best of all their plans; whether none is broken."""
    from support.cases import BOTH, brute_force, seeded, small_case, with_blocks

    from recsmith.bounds import lower_bound

    asked = empty = tight = broken = 0
    for seed in range(first, first + problems):
        pick = seeded(seed)
        case = with_blocks(pick, small_case(pick, models=BOTH))
        least = brute_force(case).least_s
        if least is None:
            empty += 1
            continue
        bound = lower_bound(case.evaluator).bound.value_s
        asked += 1
        broken += bound is None or not bound <= least * (1 + 1e-9)
        tight += bound is not None and bound * GAP >= least
    print(f"{problems} problems, {empty} without a plan; of {asked}: {broken} bounds broken, {tight} within 10 %")
    return not broken


# --- kernels and plans -----------------------------------------------------------------------------------------------


def workload_of(stream: Stream | None, tables: int, dim: int = 64) -> Workload:
    """Equal tables that are read as a set is, by bags of 16 ids; without one, evenly."""
    rows = stream.rows if stream else ROWS
    access = table_of(stream).access if stream else AccessProfile(block_lookups=(1.0,) * 128, zipf=0.0)
    made = [
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, access=access,
              features=(Feature(name=f"t{i}", pooling_factor=16.0),))
        for i in range(tables)
    ]  # fmt: skip
    return Workload(batch_size=2048, optimizer="sgd", tables=tuple(made))


def planned(workload: Workload, *types: str) -> Plan:
    """The plan of a workload on two CPU ranks, under the model of CPU kernels."""
    return planned_on(2, workload, *types)


def planned_on(ranks: int, workload: Workload, *types: str) -> Plan:
    """The plan of a workload on some CPU ranks, under the model of CPU kernels."""
    space = Space(types=types, kernels=("fused",))
    return plan(workload, load_cluster(f"cpu:{ranks}"), space=space, cost_model="neural:cpu", iterations=20).plan


def row_wise(folder: str | None) -> dict[str, Plan]:
    """Four tables split by rows, read evenly and as each set is; of bursts no ids are drawn."""
    found = {"even": planned(workload_of(None, 4), "row_wise")}
    some = (stream for stream in streams(folder) if stream.name != "bursts")
    return found | {stream.name: planned(workload_of(stream, 4), "row_wise") for stream in some}


def kernels(folder: str | None, repeats: int) -> bool:
    """Kernels of each rank of row-wise plans, rank by rank, visit by visit, beside what the busiest was predicted."""
    from recsmith.verifying.kernels import verify_kernels

    found = verify_kernels(list(row_wise(folder).items()), visits=repeats)
    busiest = [max(rank.measured_s for rank in each.ranks) for each in found.plans]
    predicted = [max(rank.predicted_s for rank in each.ranks) for each in found.plans]
    good = True
    print("set            predicted   busiest rank   other rank   over even: predicted   measured    error")
    for each, own, expected in zip(found.plans, busiest, predicted, strict=True):
        other, ratio = min(rank.measured_s for rank in each.ranks), (expected / predicted[0], own / busiest[0])
        error = ratio[0] / ratio[1] - 1
        good &= abs(error) < 0.15
        print(
            f"{each.name:<14} {expected * 1e3:>6.2f} ms {own * 1e3:>11.2f} ms {other * 1e3:>9.2f} ms "
            f"{ratio[0]:>21.3f} {ratio[1]:>10.3f} {error:>+8.1%}"
        )
    return good


def plans(folder: str | None, repeats: int, ranks: int) -> bool:
    """Plans of three tables chosen with and without their blocks; measured with ids that blocks tell of.

    Ids of bursts are drawn as a batch has them, in which one stretch of rows is hot.
    """
    from recsmith.verifying.kernels import verify_kernels

    good = True
    for stream in streams(folder):
        told = workload_of(stream, 3, dim=16)
        untold = replace(told, tables=tuple(replace(each, access=blind(each.access)) for each in told.tables))
        drawn = told if stream.name != "bursts" else in_burst(told, stream)
        chosen = {
            "without blocks": replace(planned_on(ranks, untold, *TYPES), workload=drawn, digest=""),
            "with blocks": replace(planned_on(ranks, told, *TYPES), workload=drawn, digest=""),
        }
        found = verify_kernels(list(chosen.items()), visits=repeats, cost_model="neural:cpu")
        seconds = [max(rank.measured_s for rank in each.ranks) for each in found.plans]
        expected = [max(rank.predicted_s for rank in each.ranks) for each in found.plans]
        for each, own, predicted in zip(chosen.values(), seconds, expected, strict=True):
            types = ", ".join(f"{len(p.ranks)} x {p.sharding_type}" for p in each.placements)
            print(f"{stream.name:<14} {types:<60} predicted {predicted * 1e3:.2f} ms, measured {own * 1e3:.2f} ms")
        gains = expected[0] / expected[1], seconds[0] / seconds[1]
        print(f"{stream.name:<14} predicted gain {gains[0]:.2f}, measured {gains[1]:.2f}", flush=True)
        good &= gains[1] >= 1.1 or stream.name == "hashed"  # whose blocks are nearly equal
    return good


def in_burst(work: Workload, stream: Stream) -> Workload:
    """The workload of a set as one of its batches reads it, of a stretch that no profile was counted on."""
    access = access_of_ids(stream.batches[STRETCH], stream.rows)
    return replace(work, tables=tuple(replace(each, access=access) for each in work.tables))


def blind(access: AccessProfile | None) -> AccessProfile | None:
    """The profile without its blocks."""
    return access and access.scattered()


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "blocks": lambda given: blocks(given.movielens),
    "batches": lambda given: batches(given.movielens),
    "memory": lambda given: memory(given.steps),
    "bounds": lambda given: bounds(given.problems, given.first),
    "kernels": lambda given: kernels(given.movielens, given.repeats),
    "plans": lambda given: plans(given.movielens, given.repeats, given.ranks),
}


def main() -> None:
    """Runs one part; its exit code says whether the page's figures hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--movielens", help="a folder with ratings.csv and movies.csv")
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed of problems")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2, help="of `plans`")
    given = parser.parse_args()
    sys.exit(0 if PARTS[given.part](given) else 1)


if __name__ == "__main__":
    main()
