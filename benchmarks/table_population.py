"""What sample_workload draws from, and the exponents of docs/files.md: distilled, fitted and drawn.

    python benchmarks/table_population.py sharding_stats_example.txt locality_stats_2021.txt
    python benchmarks/table_population.py ... --write    # also population.yaml and docs/pictures

The first argument is TorchRec's public planner report: torchrec/docs/wiki/sharding_stats_example.txt of
meta-pytorch/torchrec (BSD-3). The second counts how often rows are read in one batch of 65,536 samples: the file
embedding_bag/2021/locality_stats.txt of facebookresearch/dlrm_datasets (MIT). About a minute.
"""

import argparse
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from recsmith import Workload, load_workload
from recsmith._types import Floats
from recsmith.files import dump_json, read_text
from recsmith.units import format_size
from recsmith.workloads import builtins, sample, workload_to_raw
from recsmith.workloads.sample import (
    LEAST_POOLING,
    POOL_SEED,
    POOL_TABLES,
    AccessRule,
    TableKind,
    TablePopulation,
    shared_pool,
)
from recsmith.workloads.torchrec_report import table_rows
from recsmith.workloads.zipf import reads_per_bin, zipf_reuse_bins, zipf_unique_rows

Counts = tuple[float, tuple[Floats, Floats]]  # unique ratio; the 17 bins' shares of unique rows, and of reads
LINES = ('stroke="#1f6fb4" stroke-width="2"', 'stroke="#d1495b" stroke-width="2" stroke-dasharray="5 3"')
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
BATCH = 65_536  # samples that the published counts are of
RATIO = 0.14  # unique rows / lookups of built-ins; the published files lie between 0.132 and 0.145
LOWEST = 0.3  # of the exponents: assumed, for up to 0.4 the counts hardly tell (they fit 0 best, by a hair)
HIGHEST = (0.95, 1.0, 1.05, 1.1, 1.2)  # of the exponents: tried
SLOPES = np.arange(0.0, 1.21, 0.04)  # of exponents per decade of reads per row: tried
KINDS = (  # (dims, least rows, rows below); dim 128 in three, for a Gaussian copula alone loses that its largest
    # tables and those of some thousand rows are read most
    ((4,), 0, np.inf), ((8,), 0, np.inf), ((12, 32), 0, np.inf), ((64,), 0, np.inf), ((128,), 0, 10_000),
    ((128,), 10_000, 1_000_000), ((128,), 1_000_000, np.inf), ((256, 1024, 1280, 1536, 1792, 2048), 0, np.inf),
)  # fmt: skip
SOURCE = (
    "drawn from figures distilled from TorchRec's public planner report, torchrec/docs/wiki/sharding_stats_example.txt "
    "of meta-pytorch/torchrec (BSD-3); exponents fitted to facebookresearch/dlrm_datasets (MIT)"
)


# --- the report ---------------------------------------------------------------------------------------------------


def read_report(path: str) -> Floats:
    """Rows, dims and ids per sample (3, tables) of the report's pooled tables; 0.000 ids stand for less than that."""
    rows = [row for row in table_rows(read_text(path), path) if row["Output"] == "pooled"]
    dims = [float(row["Emb Dim (CW Dim)"].split()[0]) for row in rows]
    ids = np.maximum([float(row["Num Indices"]) for row in rows], LEAST_POOLING)
    return np.array([[float(row["Hash Size"]) for row in rows], dims, ids])


def ranks(values: Floats) -> Floats:
    """Mean rank of each value among all, twins alike."""
    _, where, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[where]


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def distance(a: Floats, b: Floats) -> float:
    """Kolmogorov-Smirnov: the largest difference of two samples' cumulated shares."""
    at = np.union1d(a, b)
    shares = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def distil(rows: Floats, dims: Floats, ids: Floats) -> tuple[TableKind, ...]:
    """Each kind's quantiles: 33 levels from 300 tables on, 17 from 60 on, 9 below."""
    kinds = []
    for its_dims, least, below in KINDS:
        mine = np.isin(dims, its_dims) & (rows >= least) & (rows < below)
        count = int(mine.sum())
        levels = np.linspace(0, 1, 33 if count >= 300 else 17 if count >= 60 else 9)
        kind = TableKind(
            dims=its_dims,
            tables=tuple(int((dims[mine] == dim).sum()) for dim in its_dims),
            correlation=round(2 * np.sin(np.pi / 6 * rank_correlation(rows[mine], ids[mine])), 3),
            rows=tuple(int(value) for value in np.rint(np.quantile(rows[mine], levels))),
            pooling=tuple(round(float(value), 3) for value in np.quantile(ids[mine], levels)),
        )
        kinds.append(kind)
    return tuple(kinds)


# --- the exponents ------------------------------------------------------------------------------------------------


def read_ratios(path: str) -> list[float]:
    """Unique rows / lookups of every file that the text describes."""
    numbers = re.findall(r"^Avg # of indices: (\d+)\nAvg # of unique cols: (\d+)$", read_text(path), re.MULTILINE)
    return [int(unique) / int(lookups) for lookups, unique in numbers]


def read_counts(path: str) -> Counts:
    """Unique ratio, and the 17 bins' shares of unique rows and of reads, of the first file that the text describes."""
    text = read_text(path).split("\n\n")[0]
    lookups, unique = (float(number) for number in re.findall(r"^Avg # of .*: (\d+)$", text, re.MULTILINE))
    shares = np.array([float(number) for number in re.findall(r"^\(\d+.*: ([0-9.]+)$", text, re.MULTILINE)])
    return unique / lookups, (shares[:17] / shares[:17].sum(), shares[17:] / shares[17:].sum())


def columns(workload: Workload) -> tuple[Floats, Floats]:
    """Rows, and ids of a batch of 65,536 samples, of every table."""
    ids = [sum(f.pooling_factor * f.num_poolings for f in table.features) for table in workload.tables]
    return np.array([float(table.num_embeddings) for table in workload.tables]), BATCH * np.array(ids)


def exponents(workload: Workload) -> Floats:
    return np.array([table.access.zipf for table in workload.tables if table.access], dtype=float)


def unique_ratio(zipf: Floats, rows: Floats, lookups: Floats) -> float:
    """Unique rows / lookups of all tables together."""
    return float(zipf_unique_rows(zipf, rows, lookups).sum() / lookups.sum())


def bins(zipf: Floats, rows: Floats, lookups: Floats) -> tuple[Floats, Floats]:
    """The 17 bins' shares of unique rows and of reads of all tables together."""
    unique, reads = zipf_reuse_bins(zipf, rows, lookups).sum(axis=0), reads_per_bin(zipf, rows, lookups).sum(axis=0)
    return unique / unique.sum(), reads / reads.sum()


def apart(a: Floats, b: Floats) -> Floats:
    """Differences of cumulated shares, bin by bin."""
    return np.cumsum(a) - np.cumsum(b)


def bisect(ratio_at: Callable[[float], float], goal: float, low: float, high: float) -> float:
    """Where a falling function meets the goal."""
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio_at(middle) > goal else (low, middle)
    return (low + high) / 2


def common_exponent(workload: Workload) -> float:
    """The one exponent of all tables at which the unique ratio is 0.14."""
    rows, lookups = columns(workload)
    return bisect(lambda s: unique_ratio(np.full(len(rows), s), rows, lookups), RATIO, 0.0, 2.0)


def fit(kinds: tuple[TableKind, ...], counts: Counts) -> AccessRule:
    """The rule under which the pool of 856 tables has the published unique ratio and fits the two histograms best.

    Best: least sum of squared differences of cumulated shares, of unique rows and of reads together.
    """
    flat = AccessRule(batch_size=BATCH, intercept=0.0, slope=0.0, lowest=LOWEST, highest=1.0)
    rows, _, pooling = TablePopulation(source=SOURCE, kinds=kinds, access=flat).sample(POOL_TABLES, POOL_SEED)
    ratio, shares = counts

    def solved(slope: float, highest: float) -> AccessRule:
        def ratio_at(intercept: float) -> float:
            zipf = replace(flat, intercept=intercept, slope=slope, highest=highest).zipf(rows, pooling)
            return unique_ratio(zipf, rows, BATCH * pooling)

        intercept = round(bisect(ratio_at, ratio, 0.0, 4.0), 4)
        return replace(flat, intercept=intercept, slope=round(slope, 2), highest=highest)

    def loss(rule: AccessRule) -> float:
        found = bins(rule.zipf(rows, pooling), rows, BATCH * pooling)
        return sum(float((apart(*pair) ** 2).sum()) for pair in zip(found, shares, strict=True))

    return min((solved(float(slope), highest) for highest in HIGHEST for slope in SLOPES), key=loss)


# --- what is written ----------------------------------------------------------------------------------------------


def population_text(drawn: TablePopulation) -> str:
    """population.yaml."""
    lines = ["# What sample_workload draws from: written by benchmarks/table_population.py, see docs/files.md."]
    lines += [f"source: >-\n  {drawn.source}", "kinds:"]
    for kind in drawn.kinds:
        lines += [f"  - dims: {list(kind.dims)}", f"    tables: {list(kind.tables)}"]
        lines += [f"    correlation: {kind.correlation}", f"    rows: {list(kind.rows)}"]
        lines += [f"    pooling: {list(kind.pooling)}"]
    access = drawn.access
    words = f"batch_size: {access.batch_size}, intercept: {access.intercept}, slope: {access.slope}"
    return "\n".join([*lines, f"access: {{{words}, lowest: {access.lowest}, highest: {access.highest}}}"]) + "\n"


def panel(left: int, title: str, across: dict[float, str], up: tuple[str, str], curves: dict[str, Floats]) -> list[str]:
    """Curves (name: heights 0..1 at even steps), with words at ticks (0..1) below and at both ends of the side."""
    parts = [f'<path d="M{left} 40V240H{left + 300}" fill="none" stroke="#888"/>']
    words = [(left + 150, 20, title), (left - 22, 244, up[0]), (left - 22, 46, up[1])]
    words += [(left + round(300 * at), 258, word) for at, word in across.items()]
    for index, (name, heights) in enumerate(curves.items()):
        places = zip(np.linspace(left, left + 300, len(heights)), 240 - 200 * heights, strict=True)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts += [f'<polyline points="{points}" fill="none" {LINES[index]}/>']
        parts += [f'<path d="M{left + 150} {196 + 18 * index}h24" {LINES[index]}/>']
        words += [(left + 238, 200 + 18 * index, name)]
    return parts + [f'<text x="{x}" y="{y}" text-anchor="middle">{word}</text>' for x, y, word in words]


def picture(*panels: list[str]) -> str:
    """An SVG of panels side by side."""
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 730 270" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="730" height="270" fill="#fff"/>', *chain(*panels), "</svg>"]) + "\n"


def reuse_picture(published: Sequence[Floats], found: tuple[Floats, Floats]) -> str:
    """How often rows are read: the 17 bins cumulated, published and of the pool."""
    across = {0.0: "once", 0.25: "16", 0.5: "256", 0.75: "4,096", 1.0: "more"}
    titles = ("Unique rows, by how often they are read", "Reads, by how often their row is read")
    pairs = [{"published": np.cumsum(a), "pool": np.cumsum(b)} for a, b in zip(published, found, strict=True)]
    return picture(*(panel(45 + 360 * i, titles[i], across, ("0", "all"), pairs[i]) for i in (0, 1)))


def tables_picture(report: Floats, drawn: Floats) -> str:
    """Quantiles of rows and of ids per sample, of the report and of a large sample."""
    levels, sides = np.linspace(0, 1, 65), []
    for i, title, low, high in ((0, "Rows of a table", 0, 8), (1, "Ids per sample of a table", -3, 4)):
        names = zip(("report", "sample"), (report[i], drawn[i]), strict=True)
        curves = {name: (np.quantile(np.log10(each), levels) - low) / (high - low) for name, each in names}
        ends = (f"{10.0**low:g}", f"1e{high}")
        sides.append(panel(45 + 360 * i, title, {0.0: "least", 0.5: "half", 1.0: "most"}, ends, curves))
    return picture(*sides)


# --- what is printed ----------------------------------------------------------------------------------------------


def print_tables(report: Floats, drawn: Floats) -> None:
    (rows, dims, ids), (more_rows, more_dims, more_ids) = report, drawn
    print(f"\n| figure | report, {len(rows):,} tables | sample of {len(more_rows):,} |\n|---|---|---|")
    for name, a, b in (("rows", rows, more_rows), ("dim", dims, more_dims), ("ids per sample", ids, more_ids)):
        print(f"| {name}: mean | {a.mean():,.1f} | {b.mean():,.1f} |")
        print(f"| {name}: Kolmogorov-Smirnov distance | | {distance(a, b):.3f} |")
    pairs = (("rows, dim", 0, 1), ("rows, ids", 0, 2), ("dim, ids", 1, 2))
    for name, a, b in pairs:
        print(f"| Spearman {name} | {rank_correlation(report[a], report[b]):.3f} "
              f"| {rank_correlation(drawn[a], drawn[b]):.3f} |")  # fmt: skip
    for least, below in ((1, 1e4), (1e4, 1e7), (1e7, np.inf)):
        shares = [x[2][(x[0] >= least) & (x[0] < below)].sum() / x[2].sum() for x in (report, drawn)]
        print(f"| ids of tables of {least:,.0f} rows to below {below:,.0f} | {shares[0]:.1%} | {shares[1]:.1%} |")


def print_reuse(counts: Counts, drawn: TablePopulation) -> tuple[Floats, Floats]:
    """The pool of seed 0, and those of 15 more seeds, beside the published counts; the bins' shares of the first."""
    shares, ratios = [], []
    for seed in range(16):
        rows, _, pooling = drawn.sample(POOL_TABLES, seed)
        zipf = drawn.access.zipf(rows, pooling)
        ratios.append(unique_ratio(zipf, rows, BATCH * pooling))
        shares.append(bins(zipf, rows, BATCH * pooling))
    print("\n| | published | pool of seed 0 | seeds 0 to 15 | their mean |\n|---|---|---|---|---|")
    words = f"{ratios[0]:.4f} | {min(ratios):.4f} to {max(ratios):.4f} | {np.mean(ratios):.4f}"
    print(f"| unique rows / lookups | {counts[0]:.4f} | {words} |")
    for side, name in ((0, "unique rows"), (1, "reads")):
        far = [abs(apart(each[side], counts[1][side])).max() for each in shares]
        words = f"{far[0]:.3f} | {min(far):.3f} to {max(far):.3f} | {np.mean(far):.3f}"
        print(f"| largest difference of the cumulated bins, {name} | | {words} |")
    return shares[0]


def print_bins(counts: Counts, found: tuple[Floats, Floats]) -> None:
    print("\n| reads of a row up to | unique rows: published | pool | reads: published | pool |\n|---|---|---|---|---|")
    both = [np.cumsum(each) for each in (counts[1][0], found[0], counts[1][1], found[1])]
    for index, row in enumerate(zip(*both, strict=True)):
        edge = f"{2**index:,}" if index < 16 else "any"
        print(f"| {edge} | " + " | ".join(f"{share:.3f}" for share in row) + " |")


def print_limits(drawn: TablePopulation) -> None:
    rows, _, pooling = drawn.sample(POOL_TABLES, POOL_SEED)
    lowest = drawn.access.zipf(rows, pooling) == drawn.access.lowest
    print(f"\nAt the lowest exponent: {lowest.mean():.0%} of the pool's tables, ", end="")
    print(f"{pooling[lowest].sum() / pooling.sum():.0%} of its reads. Ids per sample and table: {pooling.mean():.1f}.")


def print_exponents() -> None:
    print(
        "\n| workload | tables | weights | ids per sample | exponent for 0.14 | shipped | its ratio | ratio at 1.05 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for workload in (*(load_workload(name) for name in builtins()), shared_pool()):
        if any(table.access is None or not table.pooled for table in workload.tables):
            continue  # sequence models: their exponents are fitted to what was counted, or there are none
        rows, lookups = columns(workload)
        zipf = exponents(workload)
        one = f"{zipf[0]:.3f}" if len(set(zipf)) == 1 else "one a table"
        words = f"{len(rows):,} | {format_size(workload.weight_bytes)} | {lookups.sum() / BATCH:,.0f}"
        ratios = [unique_ratio(each, rows, lookups) for each in (zipf, np.full(len(rows), 1.05))]
        words += f" | {common_exponent(workload):.3f} | {one} | {ratios[0]:.4f} | {ratios[1]:.4f}"
        print(f"| {workload.name} | {words} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("counts")
    parser.add_argument("--write", action="store_true", help="write population.yaml and the pictures")
    words = parser.parse_args()
    report, counts = read_report(words.report), read_counts(words.counts)
    kinds = distil(*report)
    drawn = TablePopulation(source=SOURCE, kinds=kinds, access=fit(kinds, counts))
    large = drawn.sample(20_000, 0)
    print(population_text(drawn))
    print_tables(report, large)
    found = print_reuse(counts, drawn)
    print_bins(counts, found)
    print_limits(drawn)
    ratios = read_ratios(words.counts)
    print(f"Published unique ratios, {len(ratios)} files: {min(ratios):.4f} to {max(ratios):.4f}.")
    if words.write:
        (Path(sample.__file__).parent / "population.yaml").write_text(population_text(drawn), "utf-8")
        sample.table_population.cache_clear()
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / "reuse.svg").write_text(reuse_picture(counts[1], found), "utf-8")
        (PICTURES / "tables.svg").write_text(tables_picture(report[[0, 2]], large[[0, 2]]), "utf-8")
    print_exponents()
    digest = hashlib.sha256(dump_json(workload_to_raw(shared_pool())).encode()).hexdigest()
    print(f"\nSHA-256 of the pool's file: {digest}")


if __name__ == "__main__":
    main()
