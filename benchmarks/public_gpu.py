"""Cost model `analytic` beside GPU times that others have published: benchmarks/public_gpu.csv, figure by figure.

    python benchmarks/public_gpu.py            # error by kernel, direction, GPU and regime
    python benchmarks/public_gpu.py --points   # every figure

Predicted over measured. bias: the geometric mean; error: the geometric mean of how far they are apart, as a factor. A
fifth of the shapes, drawn by a hash of them, is marked as held back, for decisions to come. The constants of tables in
host memory were chosen with all figures in sight.
"""

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import recsmith
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs.collectives import latency, seconds_per_byte
from recsmith.problems import Space
from recsmith.sharding import Collective
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.reuse import Reuse

FIGURES = Path(__file__).with_suffix(".csv")
LIKE = {"h100-96": ("h100", 2.4e12), "h20": ("h100", None), "h800": ("h100", None)}  # card, memory bandwidth
BATCHES = 100  # whose rows are the footprint of which recsys-examples makes its cache a share (benchmark README)
LAUNCHES = {"forward": 2, "backward": 20}  # that a published time of the kernel alone leaves out


@dataclass(frozen=True)
class Figure:
    """A published time. predicted: None where its shape is not known, or its GPU."""

    row: dict[str, str]
    measured: float
    predicted: float | None

    @property
    def held_back(self) -> bool:
        """Whether no decision to come may look at it."""
        return bool(self.row["held_back"])

    @property
    def regime(self) -> tuple[str, ...]:
        """What is compared together."""
        row = self.row
        if row["kind"] in LAUNCHES:
            state = row["optimizer"] if row["kernel"] != "fused" else ""
            return row["kernel"], row["kind"], state, row["gpu"]
        size = "above 1 MiB" if float(row["bytes"] or 0) > 2**20 else "below"
        return "collective", row["kind"], size, row["gpu"]


def figures() -> list[Figure]:
    """All figures, priced where that can be done."""
    with FIGURES.open(newline="", encoding="utf-8") as file:
        return [Figure(row, measured(row), predicted(row)) for row in csv.DictReader(file)]


def measured(row: dict[str, str]) -> float:
    """Seconds; of a collective given as a speed, those of its bytes."""
    if row["seconds"]:
        return float(row["seconds"])
    if not row["bytes"]:
        return math.nan  # a ceiling of the links, no single message
    ranks = int(row["devices"])
    return (ranks - 1) / ranks * float(row["bytes"]) / (float(row["gigabytes_a_second"]) * 1e9)


def predicted(row: dict[str, str]) -> float | None:
    """Seconds by the model; None where shape or GPU is not known."""
    card, bandwidth = LIKE.get(row["gpu"], (row["gpu"], None))
    if "?" in card or card.startswith("unnamed") or row["kind"] == "step":
        return None
    if row["kind"] in LAUNCHES:
        if not (row["rows"].isdigit() and row["dim"].isdigit()):
            return None
        return kernel_seconds(row, one_device(card, bandwidth))
    if row["kind"] == "forward_backward" or not row["bytes"]:
        return None
    call = Collective(row["kind"], "world")  # type: ignore[arg-type]
    devices = int(row["devices"])
    cluster = load_cluster(f"{card}:{min(devices, 8)}" + (f"x{devices // 8}" if devices > 8 else ""))
    return latency(call, cluster) + float(row["bytes"]) * seconds_per_byte(call, cluster)


def one_device(card: str, bandwidth: float | None) -> Cluster:
    """A device as large as need be."""
    cluster = load_cluster(f"{card}:1").with_memory(2**42)
    device = cluster.device if bandwidth is None else replace(cluster.device, hbm_bandwidth=bandwidth)
    return replace(cluster, device=device, ddr_bytes_per_host=2**42)


def kernel_seconds(row: dict[str, str], cluster: Cluster) -> float:
    """Seconds of the kernel of a row."""
    factors = (cache_share(row),) if row["cache_share"] else Space().cache_factors
    space = Space(types=("table_wise",), kernels=(row["kernel"],), cache_factors=factors)
    plan = recsmith.plan(workload_of(row), cluster, planner="size_greedy", space=space).plan
    (device,) = plan.cost.per_device
    seconds = device.forward_compute_s if row["kind"] == "forward" else device.backward_compute_s
    if "without launches" in row["setting"]:
        from recsmith.costs.analytic import LAUNCH_S

        seconds -= LAUNCHES[row["kind"]] * (cluster.device.launch_s or LAUNCH_S)
    return seconds


def cache_share(row: dict[str, str]) -> float:
    """Share of a table's rows that its cache holds; given as such, or of the rows that BATCHES batches read."""
    share = float(row["cache_share"])
    if "footprint" not in row["setting"]:
        return share
    tables = workload_of(row).tables[:1]
    reads = np.array([float(row["batch"]) * float(row["ids_a_bag"]) * BATCHES])
    return share * float(Reuse.of(tables).unique_rows(np.array([0]), reads)[0]) / int(row["rows"])


def workload_of(row: dict[str, str]) -> Workload:
    """The tables of a row."""
    access = AccessProfile(zipf=float(row["access"].split()[1]) if row["access"].startswith("zipf") else 0.0)
    tables = tuple(
        Table(
            name=f"t{i}", num_embeddings=int(row["rows"]), embedding_dim=int(row["dim"]), access=access,
            pooling=row["pooling"],  # type: ignore[arg-type]
            data_type=row["weights"],  # type: ignore[arg-type]
            features=(Feature(name=f"t{i}", pooling_factor=float(row["ids_a_bag"])),),
        )
        for i in range(int(row["tables"]))
    )  # fmt: skip
    return Workload(batch_size=int(row["batch"]), optimizer=row["optimizer"] or "sgd", tables=tables)  # type: ignore[arg-type]


def summary(found: Iterable[Figure]) -> tuple[int, float, float, float, float]:
    """(figures, bias, error, least, most) of predicted over measured."""
    logs = [math.log((each.predicted or math.nan) / each.measured) for each in found]
    mean = sum(logs) / len(logs)
    apart = sum(map(abs, logs)) / len(logs)
    return len(logs), math.exp(mean), math.exp(apart), math.exp(min(logs)), math.exp(max(logs))


def main() -> None:
    """Print the table, or every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", action="store_true")
    arguments = parser.parse_args()
    priced = [each for each in figures() if each.predicted is not None and not math.isnan(each.measured)]
    if arguments.points:
        for each in priced:
            row = each.row
            print(
                f"{row['id']} {'held ' if each.held_back else '     '}{' '.join(each.regime):45} T{row['tables']} "
                f"E{row['rows']} B{row['batch']} L{row['ids_a_bag']} D{row['dim']} {row['bytes']} "
                f"{each.measured * 1e6:.1f} us, {each.predicted / each.measured:.2f}"  # type: ignore[operator]
            )
        return
    groups: dict[tuple[str, ...], list[Figure]] = defaultdict(list)
    for each in priced:
        groups[each.regime].append(each)
    print("| kernel | direction | optimizer or size | GPU | figures | bias | error | least to most |")
    print("|---|---|---|---|---|---|---|---|")
    for regime, found in sorted(groups.items()):
        count, bias, error, least, most = summary(found)
        print(f"| {' | '.join(regime)} | {count} | {bias:.2f} | {error:.2f} | {least:.2f} to {most:.2f} |")
    for name, kinds in (("fused", ("fused",)), ("host memory", ("fused_uvm", "fused_uvm_caching"))):
        for which, held in (("all", (False, True)), ("marked for decisions to come", (True,))):
            some = [each for each in priced if each.row["kernel"] in kinds and each.held_back in held]
            if some:
                count, bias, error, *_ = summary(some)
                print(f"{name}, {which}: {count} figures, bias {bias:.2f}, error {error:.2f}")


if __name__ == "__main__":
    main()
