"""What other constants would bring cost model `analytic` beside published GPU times: nothing here changes it.

    python benchmarks/public_gpu_fits.py collectives   # the best factors on latencies and speeds, and what is held back
    python benchmarks/public_gpu_fits.py host          # constants chosen without one shape, and that shape

collectives: figures of round 2 above 1 MiB, without L40S. Each group gets the two factors that meet its figures best
which are not held back, and the held-back fifth judges them. host: the three constants are chosen anew from all shapes
but one, by a grid; error is the geometric mean of how far predicted and measured are apart, as a factor.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable
from unittest.mock import patch

import numpy as np
from public_gpu import HOST, LIKE, Figure, comparable, figures, hosts, kernel_seconds, one_device

from recsmith._types import Floats
from recsmith.clusters import load_cluster
from recsmith.costs import embedding_kernels
from recsmith.costs.collectives import latency, seconds_per_byte
from recsmith.costs.published import COLLECTIVES, LARGE_BYTES
from recsmith.sharding import Collective

LATENCIES, SPEEDS = np.arange(0.25, 6, 0.05), np.arange(0.5, 2.5, 0.025)  # factors on seconds
LINKS, HOT, MANAGEMENT_S = (
    (0.5, 0.56, 0.62, 0.68, 0.74),
    (0, 48, 96, 192, 384),
    (0.8e-9, 1.1e-9, 1.6e-9, 2.2e-9, 3.2e-9),
)
CONSTANTS = ("LINK_EFFICIENCY", "HOT_ROWS", "CACHE_MANAGEMENT_S")


def error(predicted: Floats, measured: Floats) -> float:
    """The geometric mean of how far both are apart, as a factor."""
    return float(np.exp(np.mean(np.abs(np.log(predicted / measured)))))


# --- collectives --------------------------------------------------------------------------------------------------


def fit_collectives() -> None:
    """Print a row for each group: its error now, the best factors, and the error with them."""
    chosen = [each for each in comparable(figures()) if each.part == COLLECTIVES and each.row["round"] == "2"]
    chosen = [each for each in chosen if each.card != "l40s"]
    now, then = [], []
    print("| collectives | latency x | seconds a byte x | error where fitted | where held back | to 1 MiB |")
    print("|---|---|---|---|---|---|")
    for inside, reducing in itertools.product((True, False), repeat=2):
        group = [
            each
            for each in chosen
            if (hosts(each.row) == 1) == inside and reducing == (each.row["kind"] == "all_reduce")
        ]
        large = [each for each in group if float(each.row["bytes"]) > LARGE_BYTES]
        fitted, judged = (terms(large, lambda each, held=held: each.held_back == held) for held in (False, True))
        small = terms(group, lambda each: float(each.row["bytes"]) <= LARGE_BYTES)
        best = min(itertools.product(LATENCIES, SPEEDS), key=lambda factors: off(factors, fitted))
        now.append(priced((1, 1), judged))
        then.append(priced(best, judged))
        pairs = " | ".join(
            f"{off((1, 1), each):.2f} now, {off(best, each):.2f} then" for each in (fitted, judged, small)
        )
        name = f"{'all-reduces' if reducing else 'others'} {'inside a host' if inside else 'between hosts'}"
        print(f"| {name} | {best[0]:.2f} | {best[1]:.2f} | {pairs} |")
    both = [error(*np.concatenate(each, axis=1)) for each in (now, then)]
    print(f"\nall that are held back: {both[0]:.2f} now, {both[1]:.2f} then")


def terms(found: Iterable[Figure], chosen: Callable[[Figure], bool]) -> Floats:
    """(N, 3): seconds of latency and of bytes by the model, and those measured."""
    rows = []
    for each in filter(chosen, found):
        row, count = each.row, hosts(each.row)
        cluster = load_cluster(f"{each.card}:{int(row['devices']) // count}x{count}")
        call = Collective(row["kind"], "world", "table" if row["kind"] == "all_reduce" else "outputs")  # type: ignore[arg-type]
        rows.append((latency(call, cluster), float(row["bytes"]) * seconds_per_byte(call, cluster), each.measured))
    return np.array(rows)


def priced(factors: tuple[float, float], found: Floats) -> Floats:
    """(2, N): predicted with factors, and measured."""
    return np.stack([found[:, :2] @ np.array(factors), found[:, 2]])


def off(factors: tuple[float, float], found: Floats) -> float:
    """The error with factors."""
    return error(*priced(factors, found))


# --- host memory --------------------------------------------------------------------------------------------------


def fit_host() -> None:
    """Print a row for each shape: the constants that the others choose, and its error with them."""
    found = [each for each in comparable(figures()) if each.part == HOST]
    shapes = [tuple(each.row[name] for name in ("tables", "rows", "batch")) for each in found]
    groups = sorted(set(shapes))
    of = np.array([groups.index(shape) for shape in shapes])
    measured = np.array([each.measured for each in found])
    grid = list(itertools.product(LINKS, HOT, MANAGEMENT_S))
    logs = np.array([np.log(host_seconds(found, constants) / measured) for constants in grid])  # (constants, N)
    judged = []
    print("| tables, rows, batch of the shape left out | figures | link | hot rows | ns an id | error on it |")
    print("|---|---|---|---|---|---|")
    for i, shape in enumerate(groups):
        best = int(np.abs(logs[:, of != i]).mean(axis=1).argmin())
        judged.append(np.abs(logs[best, of == i]))
        link, hot, management = grid[best]
        words = f"{len(judged[-1])} | {link} | {hot} | {management * 1e9:.1f}"
        print(f"| {', '.join(shape)} | {words} | {np.exp(judged[-1].mean()):.2f} |")
    print(f"\nall, each by constants chosen without its shape: {np.exp(np.concatenate(judged).mean()):.2f}")


def host_seconds(found: Iterable[Figure], constants: tuple[float, ...]) -> Floats:
    """Predictions under other constants of host memory."""
    with patch.multiple(embedding_kernels, **dict(zip(CONSTANTS, constants, strict=True))):
        clusters = {each.row["gpu"]: one_device(*LIKE.get(each.row["gpu"], (each.row["gpu"], None))) for each in found}
        return np.array([kernel_seconds(each.row, clusters[each.row["gpu"]]) for each in found])


def main() -> None:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("collectives", "host"))
    (fit_collectives if parser.parse_args().part == "collectives" else fit_host)()


if __name__ == "__main__":
    main()
