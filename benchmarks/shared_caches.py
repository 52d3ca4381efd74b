"""Prices of groups whose tables share the second-level cache, beside what the hardware takes.

    python benchmarks/shared_caches.py neural:simulated-h100 analytic
    python benchmarks/shared_caches.py neural:h100 --data shipped:h100-caches      # groups that were measured

A group has 2 to 12 tables that are read much and nearly evenly, 8 to 80 MB each: alone most of them would fit the cache
of an H100, together they do not. Two groups in five have cold tables besides. They are drawn here and follow from a
seed, so that no model was trained on them. Each is a case of the hardware, and is priced as the only group of a rank,
launches included. Off is predicted / measured - 1, forward and backward together. With --data they are the groups of
folders, such as `recsmith measure compute --scale job-caches` and `cpu-caches` measure.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

from recsmith._types import Floats
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.hardware import Case, Measurement, load_hardware
from recsmith.hardware.loads import scale_for
from recsmith.learning.costs import read_groups
from recsmith.learning.costs.baselines import cluster_of, workload_of
from recsmith.measuring.about import locate
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import OptimizerName

OWN = 61  # beside the seed, so that nothing else draws these groups; the head was chosen on those of seed 0
MEGABYTES, POOLING, ZIPF = (8.0, 80.0), (40.0, 250.0), (0.1, 0.6)  # of the tables that share a cache
WIDTHS = (32, 64, 96, 128, 256)
TYPES: tuple[DataType, ...] = ("fp32", "fp16")
OPTIMIZERS: tuple[OptimizerName, ...] = ("sgd", "adagrad", "rowwise_adagrad")
COLD_ROWS, COLD_POOLING, COLD_ZIPF = (1e6, 5e7), (1.0, 20.0), (0.3, 1.0)
BATCH, MOST_IDS = (2.0**15, 2.0**17), 2**28  # bags of a table, and ids of a group; half to twice those of the tasks
ODD = 0.06  # too low by more than this is too much


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--hardware", default="simulated:h100")
    parser.add_argument("--cluster", default="h100", help="whose device the models are asked about")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="folders of measured groups, with commas between, instead of drawn ones")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    if words.data:
        workloads, taken, device = measured([locate(folder) for folder in words.data.split(",")])
    else:
        cases = [draw_group(words.seed, number) for number in range(words.count)]
        hardware = load_hardware(words.hardware, scale_for([(case,) for case in cases], words.hardware))
        workloads, taken = [case.workload for case in cases], np.array([_seconds(hardware.measure(c)) for c in cases])
        device = one_device(load_cluster(words.cluster))
    print(f"{len(workloads)} groups; how far their prices are off\n")
    heads = ("priced by", "median", "mean", "bias", "most too low", "most too high", "forward, median",
             f"below -{ODD:.0%}")  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in words.models:
        model = cost_model(name)
        said = np.array([group_seconds(model, each, device) for each in workloads])
        print(line(name, said, taken), flush=True)


def measured(folders: list[Path]) -> tuple[list[Workload], Floats, Cluster]:
    """The groups of folders of samples: their tables, seconds (N, 2), and the device of the catalogue they are of."""
    groups, _, origin = read_groups(folders)
    device = cluster_of(origin)
    assert device is not None, f"the catalogue lacks {origin.device}"
    return [workload_of(groups, i) for i in range(len(groups))], groups.seconds, device


def line(name: str, said: Floats, taken: Floats) -> str:
    """A row of the table, of seconds (N, 2) forward and backward."""
    off, forward = said.sum(axis=1) / taken.sum(axis=1) - 1, said[:, 0] / taken[:, 0] - 1
    figures = (np.median(np.abs(off)), np.abs(off).mean(), np.median(np.abs(forward)))
    median, mean, forwards = (f"{each:.1%}" for each in figures)
    signed = " | ".join(f"{each:+.1%}" for each in (off.mean(), off.min(), off.max()))
    return f"| {name} | {median} | {mean} | {signed} | {forwards} | {(off < -ODD).sum()} |"


def _seconds(answer: Measurement) -> tuple[float, float]:
    assert answer.forward_s is not None, answer.message
    assert answer.backward_s is not None, answer.message
    return answer.forward_s, answer.backward_s


def draw_group(seed: int, number: int) -> Case:
    """A group of tables that are hot, and of some cold ones in two groups of five."""
    rng = np.random.default_rng([OWN, seed, number])
    data_type: DataType = TYPES[int(rng.random() < 0.25)]
    hot = [_hot(rng, data_type) for _ in range(int(rng.integers(2, 13)))]
    cold = [_cold(rng, data_type) for _ in range(int(rng.integers(1, 7)) if rng.random() < 0.4 else 0)]
    tables = tuple(_named(i, *figures, data_type) for i, figures in enumerate(hot + cold))
    pooling = sum(table.features[0].pooling_factor for table in tables)
    batch = int(min(_between(rng, BATCH), MOST_IDS / pooling))
    optimizer = OPTIMIZERS[int(rng.integers(3))]
    work = Workload(batch_size=batch, optimizer=optimizer, tables=tables)
    return Case(seed=seed, number=number, workload=work)


Figures = tuple[int, int, float, float]


def _hot(rng: np.random.Generator, data_type: DataType) -> Figures:
    """Rows, columns, ids a bag, and exponent of a table of so many megabytes, read often and nearly evenly."""
    width, size = int(rng.choice(WIDTHS)), {"fp32": 4, "fp16": 2}[data_type]
    rows = int(_between(rng, MEGABYTES) * 1e6 / (width * size))
    return rows, width, round(_between(rng, POOLING), 3), round(rng.uniform(*ZIPF), 3)


def _cold(rng: np.random.Generator, _: DataType) -> Figures:
    width = int(rng.choice(WIDTHS))
    return (
        int(_between(rng, COLD_ROWS)),
        width,
        round(_between(rng, COLD_POOLING), 3),
        round(rng.uniform(*COLD_ZIPF), 3),
    )


def _between(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    """A number between two, whose logarithm is uniform."""
    return float(np.exp(rng.uniform(*np.log(ends))))


def _named(index: int, rows: int, width: int, pooling: float, zipf: float, data_type: DataType) -> Table:
    name = f"t{index}"
    return Table(
        name=name, num_embeddings=rows, embedding_dim=width, data_type=data_type,
        features=(Feature(name=name, pooling_factor=pooling),), access=AccessProfile(zipf=zipf),
    )  # fmt: skip


if __name__ == "__main__":
    main()
