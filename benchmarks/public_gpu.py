"""Cost models `analytic` and `fitted` beside GPU times that others have published: benchmarks/public_gpu.csv.

    python benchmarks/public_gpu.py                          # error by part, kernel, GPU and size
    python benchmarks/public_gpu.py --points                 # every figure
    python benchmarks/public_gpu.py --picture pictures.svg   # predicted and measured, a dot a figure

Predicted over measured. bias: the geometric mean; error: the geometric mean of how far they are apart, as a factor.
Figures came in two rounds. The constants of tables in host memory were chosen with all of round 1 in sight; no constant
was changed after round 2, which judges the model. A fifth of either is marked as held back, for decisions to come: of
round 2 by a hash of their ids, before any of it was compared.
"""

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import COST_MODELS
from recsmith.costs.analytic import AnalyticEvaluator
from recsmith.costs.collectives import latency, seconds_per_byte
from recsmith.costs.embedding_kernels import LINK_EFFICIENCY
from recsmith.costs.published import ANALYTIC, COLLECTIVES, DEVICE, FITTED, FITTED_DEVICE, HOST, LARGE_BYTES, published
from recsmith.plans.predicted_error import PublishedTimes
from recsmith.problems import Space, build_problem
from recsmith.sharding import Collective
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.reuse import Reuse

FIGURES = Path(__file__).with_suffix(".csv")
LIKE = {  # card, memory bandwidth
    "h100-96": ("h100", 2.4e12), "h20": ("h100", None), "h800": ("h100", None), "mi325x": ("mi300x", None),
}  # fmt: skip
BATCHES = 100  # whose rows are the footprint of which recsys-examples makes its cache a share (benchmark README)
KINDS = ("forward", "backward")  # of kernels
PARTS = {"fused": DEVICE, "fused_uvm": HOST, "fused_uvm_caching": HOST}
LINK = "host link"
OTHER_NETWORK = "one 100 Gb/s card for 8 GPUs"  # less than the catalogue's V100 has
GIGABYTE = 1e9  # of which a host link's time is compared


@dataclass(frozen=True)
class Figure:
    """A published time. predicted: None where its shape is not known, or its GPU."""

    row: dict[str, str]
    measured: float
    predicted: float | None

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return (self.predicted or math.nan) / self.measured

    @property
    def held_back(self) -> bool:
        """Whether no decision to come may look at it."""
        return bool(self.row["held_back"])

    @property
    def card(self) -> str:
        """The device of the catalogue by which it is priced."""
        return LIKE.get(self.row["gpu"], (self.row["gpu"], None))[0]

    @property
    def part(self) -> str:
        """What of a step it is."""
        if self.row["kind"] == "host_link":
            return LINK
        return PARTS[self.row["kernel"]] if self.row["kind"] in KINDS else COLLECTIVES

    @property
    def size(self) -> str:
        """Of a collective's message."""
        size = float(self.row["bytes"] or 0)
        return "to 1 MiB" if size <= LARGE_BYTES else "to 128 MiB" if size <= 2**27 else "larger"

    @property
    def laboratory(self) -> str:
        """Who published it."""
        return self.row["source"].split(":")[0]


def figures(kernels: str = ANALYTIC) -> list[Figure]:
    """All figures, priced where that can be done; kernels by a cost model of formulas."""
    with FIGURES.open(newline="", encoding="utf-8") as file:
        return [Figure(row, measured(row), predicted(row, kernels)) for row in csv.DictReader(file)]


def comparable(found: Iterable[Figure]) -> list[Figure]:
    """Those that have a prediction and a time."""
    return [each for each in found if each.predicted is not None and not math.isnan(each.measured)]


def measured(row: dict[str, str]) -> float:
    """Seconds; of a collective given as a bus bandwidth those of its bytes, of a link those of a gigabyte."""
    if row["seconds"]:
        return float(row["seconds"])
    if row["kind"] == "host_link":
        return GIGABYTE / (float(row["gigabytes_a_second"]) * 1e9)
    if not row["bytes"]:
        return math.nan  # a ceiling of the links, no single message
    ranks, times = int(row["devices"]), 2 if row["kind"] == "all_reduce" else 1
    return times * (ranks - 1) / ranks * float(row["bytes"]) / (float(row["gigabytes_a_second"]) * 1e9)


def predicted(row: dict[str, str], kernels: str = ANALYTIC) -> float | None:
    """Seconds by the model; None where shape or GPU is not known."""
    card, bandwidth = LIKE.get(row["gpu"], (row["gpu"], None))
    if "?" in card or card.startswith("unnamed") or row["kind"] == "step":
        return None
    if row["kind"] in KINDS:
        if not (row["rows"].isdigit() and row["dim"].isdigit()):
            return None
        return kernel_seconds(row, one_device(card, bandwidth), kernels)
    if row["kind"] == "host_link":
        link = load_cluster(f"{card}:1").device.host_link_bandwidth
        return None if link is None else GIGABYTE / (link * LINK_EFFICIENCY)
    if row["kind"] == "forward_backward" or not row["bytes"] or OTHER_NETWORK in row["doubt"]:
        return None
    payload = "table" if row["kind"] == "all_reduce" else "outputs"
    call = Collective(row["kind"], "world", payload)  # type: ignore[arg-type]
    cluster = load_cluster(f"{card}:{int(row['devices']) // hosts(row)}x{hosts(row)}")
    return latency(call, cluster) + float(row["bytes"]) * seconds_per_byte(call, cluster)


def hosts(row: dict[str, str]) -> int:
    """Of a figure: as it says, or as many as hold eight devices each."""
    return int(row["hosts"] or max(int(row["devices"]) // 8, 1))


def one_device(card: str, bandwidth: float | None) -> Cluster:
    """A device as large as need be."""
    cluster = load_cluster(f"{card}:1").with_memory(2**42)
    device = cluster.device if bandwidth is None else replace(cluster.device, hbm_bandwidth=bandwidth)
    return replace(cluster, device=device, ddr_bytes_per_host=2**42)


def kernel_seconds(row: dict[str, str], cluster: Cluster, kernels: str = ANALYTIC) -> float:
    """Seconds of the kernel of a row, without launches where its time has none."""
    factors = (cache_share(row),) if row["cache_share"] else Space().cache_factors
    space = Space(types=("table_wise",), kernels=(row["kernel"],), cache_factors=factors)
    problem = build_problem(workload_of(row), cluster, space=space)  # a mode for each table
    evaluator = COST_MODELS[kernels].compile(problem)
    assert isinstance(evaluator, AnalyticEvaluator)
    modes = np.arange(len(problem.modes.table))
    terms = evaluator.terms(modes, problem.demand.dim[problem.modes.table])
    forward_s, backward_s, *_ = evaluator.head(terms.sum(axis=0, keepdims=True))[0].tolist()
    part = KINDS.index(row["kind"])
    launches = evaluator.launched[part] if "without launches" in row["setting"] else 0
    return (forward_s, backward_s)[part] - launches * evaluator.launch_s


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


# --- errors -------------------------------------------------------------------------------------------------------


def summary(found: Iterable[Figure]) -> tuple[int, int, float, float, float, float]:
    """(figures, laboratories, bias, error, least, most) of predicted over measured."""
    chosen = list(found)
    logs = [math.log(each.ratio) for each in chosen]
    mean, apart = sum(logs) / len(logs), sum(map(abs, logs)) / len(logs)
    laboratories = len({each.laboratory for each in chosen})
    return len(logs), laboratories, math.exp(mean), math.exp(apart), math.exp(min(logs)), math.exp(max(logs))


def device_by_fitted() -> list[Figure]:
    """Kernels in device memory, by cost model `fitted`."""
    return [each for each in comparable(figures(FITTED)) if each.part == DEVICE]


def seen_by(found: Iterable[Figure]) -> dict[str, dict[str, PublishedTimes]]:
    """What costs/weights/published-times.json holds: figures, laboratories and error by part and device."""
    groups: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for each in found:
        if each.part != LINK and not (each.part == COLLECTIVES and each.size == "to 1 MiB"):
            groups[each.part, each.card].append(each)
    for each in device_by_fitted():
        groups[FITTED_DEVICE, each.card].append(each)
    seen: dict[str, dict[str, PublishedTimes]] = defaultdict(dict)
    for (part, card), chosen in sorted(groups.items()):
        count, laboratories, _, error, *_ = summary(chosen)
        seen[part][card] = PublishedTimes(figures=count, laboratories=laboratories, error=round(error - 1, 2))
    return dict(seen)


def judgement(each: Figure) -> tuple[str, ...]:
    """The part of a step, and the round by which it is judged."""
    above = "" if each.part != COLLECTIVES else ", to 1 MiB" if each.size == "to 1 MiB" else ", above 1 MiB"
    return each.part + above, each.row["round"]


def by_kernel(each: Figure) -> tuple[str, ...]:
    """Kernel or way, direction, optimizer, GPU and round; of collectives those above 1 MiB."""
    row = each.row
    if each.part == LINK:
        way, flows, *_ = row["setting"].split(", ")
        return "host link", way, flows, row["gpu"], row["round"]
    if each.part == COLLECTIVES:
        return "collective", row["kind"], "between hosts" if hosts(row) > 1 else "in a host", row["gpu"], row["round"]
    return row["kernel"], row["kind"], row["optimizer"] if row["kernel"] != "fused" else "", row["gpu"], row["round"]


def by_size(each: Figure) -> tuple[str, ...]:
    """Of collectives: operation, where, size."""
    return each.row["kind"], "between hosts" if hosts(each.row) > 1 else "in a host", each.size


def table(words: str, found: Iterable[Figure], key: Callable[[Figure], tuple[str, ...]]) -> None:
    """Print the errors of groups of figures; words: the heads of the columns of a key."""
    groups: dict[tuple[str, ...], list[Figure]] = defaultdict(list)
    for each in found:
        groups[key(each)].append(each)
    print(f"| {words} | figures | laboratories | bias | error | least to most |")
    print("|---" * (words.count("|") + 6) + "|")
    for regime, chosen in sorted(groups.items()):
        count, laboratories, bias, error, least, most = summary(chosen)
        numbers = f"{count} | {laboratories} | {bias:.2f} | {error:.2f} | {least:.2f} to {most:.2f}"
        print(f"| {' | '.join(regime)} | {numbers} |")
    print()


def draw(found: Iterable[Figure], path: Path) -> None:
    """Write a picture: kernels, and collectives, with a dot for each figure."""
    from learning_pictures import picture, predicted_panel

    chosen = [each for each in found if each.part != LINK]
    groups = {
        "kernels": [each for each in chosen if each.part != COLLECTIVES],
        "collectives": [each for each in chosen if each.part == COLLECTIVES],
    }
    panels = [
        replace(panel, title=f"{name.capitalize()}: predicted (up), measured (across)")
        for name, some in groups.items()
        for panel in [
            predicted_panel(np.array([each.predicted for each in some]), np.array([each.measured for each in some]))
        ]
    ]
    path.write_text(picture(panels), encoding="utf-8")


def print_points(found: Iterable[Figure]) -> None:
    """Every figure on a line."""
    for each in found:
        row, key = each.row, by_kernel(each)
        shape = f"T{row['tables']} E{row['rows']} B{row['batch']} L{row['ids_a_bag']} D{row['dim']}"
        shape = shape if row["rows"] else f"{row['devices']} devices, {row['bytes']} bytes"
        mark = "held" if each.held_back else "    "
        print(f"{row['id']} {mark} {' '.join(key):52} {shape} {each.measured * 1e6:.1f} us, {each.ratio:.2f}")


def main() -> None:
    """Print the tables, or every figure, or draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    found = comparable(figures())
    if arguments.points:
        print_points(found)
    elif arguments.picture:
        draw(found, arguments.picture)
    else:
        table("part | round", found, judgement)
        print("without L40S, of which one laboratory published collectives 14 to 20 times slower than its links:\n")
        table("part | round", [each for each in found if each.card != "l40s"], judgement)
        print("held back, for decisions to come:\n")
        table("part | round", [each for each in found if each.held_back], judgement)
        large = [each for each in found if each.part != COLLECTIVES or each.size != "to 1 MiB"]
        print("kernels in device memory by cost model fitted; those of sequences are analytic's:\n")
        table("kernel | direction or operation | optimizer or way | GPU | round", device_by_fitted(), by_kernel)
        table("kernel | direction or operation | optimizer or way | GPU | round", large, by_kernel)
        table("collective | where | message", [each for each in found if each.part == COLLECTIVES], by_size)
    if (now := seen_by(found)) != published():
        raise SystemExit(f"published-times.json is out of step; it should be:\n{now}")


if __name__ == "__main__":
    main()
