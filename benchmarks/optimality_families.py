"""Families of generated problems, each unlike the others in what makes it hard: of optimality.py families.

Four are there to choose settings by (TUNED), the others to judge by alone (JUDGED). A seed changes numbers, not the kind.
"""

from collections.abc import Callable

import numpy as np

from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.sample import sample_workload

Random = np.random.Generator
Made = tuple[Workload, str]
DEVICE_BYTES = 80e9


def equal_rows(random: Random) -> Made:
    """Many tables that are alike in all but their pooling factors, which take few values."""
    count, devices = int(random.integers(64, 400)), str(random.choice(["8", "8x2", "8x8"]))
    rows, dim = int(10 ** random.uniform(5, 6.5)), int(random.choice([32, 64, 128]))
    lengths = random.choice([1, 10, 40], count)
    return _workload("equal-rows", [(rows, dim, float(length), 1.05) for length in lengths]), f"h100:{devices}"


def two_sizes(random: Random) -> Made:
    """Two pools of equal tables: small and narrow ones, and large wide ones."""
    many, few = int(random.integers(60, 300)), int(random.integers(8, 60))
    small = (int(10 ** random.uniform(3, 5)), int(random.choice([8, 16, 32])), float(random.integers(1, 20)), 0.9)
    large = (int(10 ** random.uniform(6, 7.5)), int(random.choice([64, 128, 256])), float(random.integers(5, 80)), 1.1)
    devices = str(random.choice(["8", "8x2", "8x4"]))
    return _workload("two-sizes", [small] * many + [large] * few), f"h100:{devices}"


def long_tail(random: Random) -> Made:
    """Rows, columns and lengths that span five orders of magnitude; in all at most half of the devices' memory."""
    count, devices = int(random.integers(80, 500)), str(random.choice(["8", "8x2", "8x8"]))
    rows = (10 ** np.minimum(3 + random.pareto(1.2, count), 8.3)).astype(int)
    dims = random.choice([4, 8, 16, 32, 64, 128, 256], count, p=[0.1, 0.25, 0.25, 0.2, 0.1, 0.07, 0.03])
    lengths = np.minimum(1 + random.pareto(0.9, count), 600)
    zipf = random.uniform(0.3, 1.3, count)
    share = (rows * dims * 4).sum() / (DEVICE_BYTES * sum_of(devices))
    rows = (rows / max(1.0, 2 * share)).astype(int)
    return _workload("long-tail", list(zip(rows, dims, lengths, zipf, strict=True))), f"h100:{devices}"


def few_giants(random: Random) -> Made:
    """Three to nine tables that fill a good part of a host, and some small ones."""
    giants, small, devices = int(random.integers(3, 10)), int(random.integers(0, 12)), str(random.choice(["4", "8", "8x2"]))
    made = [(int(10 ** random.uniform(7.3, 8.2)), int(random.choice([64, 128])), float(random.integers(1, 100)), 1.05)
            for _ in range(giants)]  # fmt: skip
    made += [(int(10 ** random.uniform(3, 5)), 32, float(random.integers(1, 30)), 0.8) for _ in range(small)]
    return _workload("few-giants", made), f"h100:{devices}"


def sampled(random: Random) -> Made:
    """Tables of `recsmith workload sample`, 100 to 600 of them."""
    count, devices = int(random.integers(100, 600)), str(random.choice(["8", "8x2", "8x8"]))
    return sample_workload(count, int(random.integers(1000, 2**31)), max_bytes=60 * 2**30), f"h100:{devices}"


def one_width(random: Random) -> Made:
    """Tables of one width, as models of field-aware interactions have them, with rows drawn evenly by their logarithm."""
    count, devices, dim = int(random.integers(26, 260)), str(random.choice(["4", "8", "8x4"])), int(random.choice([64, 128]))
    made = [(int(10 ** random.uniform(2, 7.7)), dim, float(np.ceil(random.exponential(6))), 1.05) for _ in range(count)]
    return _workload("one-width", made), f"h100:{devices}"


def sequences_like(random: Random) -> Made:
    """A dozen features with hundreds of ids, among many with one."""
    long, short, devices = int(random.integers(6, 20)), int(random.integers(40, 200)), str(random.choice(["8", "8x2"]))
    made = [(int(10 ** random.uniform(5.5, 7.5)), int(random.choice([32, 64, 128])), float(random.integers(100, 900)), 1.0)
            for _ in range(long)]  # fmt: skip
    made += [(int(10 ** random.uniform(2, 7)), int(random.choice([16, 32, 64])), 1.0, 1.0) for _ in range(short)]
    return _workload("long-bags", made), f"h100:{devices}"


def tight_memory(random: Random) -> Made:
    """Tables that fill four fifths of the devices' memory."""
    count = int(random.integers(40, 250))
    made = [(int(10 ** random.uniform(5, 7)), int(random.choice([32, 64, 128])), float(random.integers(1, 30)), 1.05)
            for _ in range(count)]  # fmt: skip
    total = sum(rows * dim * 4 for rows, dim, _, _ in made)
    grown = 0.8 * 8 * DEVICE_BYTES / total
    made = [(int(rows * grown), dim, length, zipf) for rows, dim, length, zipf in made]
    return _workload("tight-memory", made), "h100:8"


TUNED: dict[str, Callable[[Random], Made]] = {
    "equal-rows": equal_rows, "two-sizes": two_sizes, "long-tail": long_tail, "few-giants": few_giants,
}  # fmt: skip
JUDGED: dict[str, Callable[[Random], Made]] = {
    "sampled": sampled, "one-width": one_width, "long-bags": sequences_like, "tight-memory": tight_memory,
}  # fmt: skip
FIRST_JUDGED = 1000  # seeds from here on are judged alone, of all families


def problem_of(family: str, seed: int) -> Made:
    """The problem of a family and a seed."""
    number = sorted((*TUNED, *JUDGED)).index(family)
    return {**TUNED, **JUDGED}[family](np.random.default_rng([number, seed]))


def sum_of(devices: str) -> int:
    """Devices of '8' or '8x2'."""
    return int(np.prod([int(part) for part in devices.split("x")]))


def _workload(name: str, rows: list[tuple[int, int, float, float]]) -> Workload:
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=max(2, int(count)), embedding_dim=int(dim),
              features=(Feature(name=f"f{i}", pooling_factor=round(float(length), 3)),),
              access=AccessProfile(zipf=round(float(zipf), 3)))
        for i, (count, dim, length, zipf) in enumerate(rows)
    )  # fmt: skip
    return Workload(name=name, batch_size=8192, tables=tables, optimizer="rowwise_adagrad")
