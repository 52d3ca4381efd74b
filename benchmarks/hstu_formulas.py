"""How far formulas of layers and of whole steps are from what others published of HSTU and of DLRM-v2 on GPUs.

Tables of docs/sequences.md.

python benchmarks/hstu_formulas.py
"""

from dataclasses import dataclass, replace
from typing import Literal

import recsmith
from recsmith.clusters import load_cluster
from recsmith.prediction.formulas import MATRIX_FLOPS, history_parts
from recsmith.prediction.histories import HistoryWork
from recsmith.prediction.models import load_model
from recsmith.prediction.predictions import predict_model
from recsmith.problems.plain_reserve import plain_reserve
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.workload import IndexDedup

WIDTH, HEADS, EACH = 512, 4, 128  # columns of a position, heads, columns of a head in keys and in values
# (what, device, samples, positions of a sample, pairs that attention multiplies, layers, measured s, with backward)
LAYERS = (
    # meta-recsys/generative-recommenders issue 530: 32 samples, 1,024 events and 2,048 candidates, which see the events
    ("5 layers, forward", "h100", 32, 99e3 / 32, 1024**2 / 2 + 2048 * 1024, 5, 9.30e-3, False),
    # mlcommons/training pull request 903: 1,024 samples, 2.727 million positions; lengths are taken for equal
    ("1 layer, forward and backward", "mi350x", 1024, 2.727e6 / 1024, (2.727e6 / 1024) ** 2 / 2, 1, 160.31e-3, True),
)
# Events of a sample. The reference measured 2,663 where at most 1,362 of each of three kinds are read. Of its traced
# steps it says that 40 % of the operations of 4,096 positions were done. Where at most 679 are read, nobody said.
MEASURED, TRACED, SHORT = 2663, 2216, 1400


@dataclass(frozen=True)
class Step:
    """A published step of MLPerf's reference. fitted: whether constants of the formulas were fitted to it."""

    what: str
    cluster: str
    published_s: float
    samples: int = 1024
    events: int = MEASURED
    blocks: int = 3
    half: bool = True  # rows are sent in fp16, else in fp32
    dedup: IndexDedup = "on"
    fitted: Literal["no", "in part", "yes"] = "no"

    def workload(self) -> Workload:
        """The tables of dlrm-v4, read as this run read them."""
        known = load_workload("dlrm-v4")
        tables = tuple(
            replace(table, features=tuple(
                replace(each, pooling_factor=self.events if each.pooling_factor > 1 else 1) for each in table.features
            )) for table in known.tables
        )  # fmt: skip
        return replace(
            known, tables=tables, batch_size=self.samples, comm_dtype="fp16" if self.half else None,
            index_dedup=self.dedup,
        )  # fmt: skip

    def by_formulas(self) -> float:
        """Seconds of the default plan's step."""
        plan = recsmith.plan(self.workload(), self.cluster).plan
        return predict_model(replace(load_model("dlrm-v4"), blocks=self.blocks), plan=plan)[0][1].step_s


STEPS = (
    # chriscai-amd/training, branch jiawei/dlrmv4_opt at ad52cb1, recommendation/docs/perf_opt.md, 14 August 2026: five
    # traced steps of the same batches
    Step("traced", "b200:8", 558.1e-3, events=TRACED, fitted="yes"),
    Step("traced", "mi350x:8", 652.3e-3, events=TRACED, fitted="in part"),  # products and attention
    # mlcommons/training, recommendation/rcp_logs, July 2026: 20 runs each, medians of blocks after 20 million samples
    Step("reference runs", "mi350x:8", 741e-3),
    Step("reference runs", "mi350x:8x2", 763e-3),
    Step("reference runs", "mi350x:8x4", 811e-3),
    # the same at 06c7b5b, September 2026: neither how many devices nor what was done for candidates alone is told
    Step("reference runs, 8 devices assumed", "gb300:4x2", 506e-3),
    # comments of its recommendation/.../train/gin/yambda_5b.gin at a4f3e77
    Step("equal ids once", "mi350x:8", 805.7e-3),
    Step("equal ids each time", "mi350x:8", 941.6e-3, dedup="off"),
    Step("equal ids once", "mi350x:8x2", 818.0e-3),
    Step("equal ids each time", "mi350x:8x2", 1108.0e-3, dedup="off"),
    # recommendation_v4/docs of June 2026: multi_node_config.md at d7cb873, perf_opt.md at d489c7c, training_recipe.md
    # at 671e7e6; five layers and fp32, as their configurations of those days say
    Step("6.2 thousand samples/s", "mi350x:8", 8192 / 6.2e3, blocks=5, half=False, dedup="off"),
    Step("7.7 to 8.0 thousand samples/s", "mi350x:8x2", 16384 / 7.85e3, blocks=5, half=False, dedup="off"),
    Step("14,222 samples/s, 2,039 events", "mi350x:8", 8192 / 14222, events=SHORT, blocks=5, half=False, dedup="off"),
    Step("32 samples, 2,039 events", "mi350x:8", 52e-3, 32, SHORT, 5, half=False, dedup="off", fitted="yes"),
)
GIB = 2**30
# Memory of a device beside its tables, of jobs of 1,024 samples a device, three layers and equal ids once: (what,
# devices, events, GiB of the device that were in use at most, of which tables). Nothing was fitted to any.
MEMORY = (
    # yambda_5b.gin at a4f3e77: the hot rank at about 58 %, 120 GiB free; lengths and layers are not told. As another
    # place of the same comment says, sequences are of about 4,096 positions, the most that are read
    ("hot rank at 58 %, mean lengths", "mi350x:8x4", MEASURED, 168, 17.5),
    ("the same, longest lengths", "mi350x:8x4", 4086, 168, 17.5),
    # perf_opt.md, 14 August 2026: all of the device was there, and the jobs ended well
    ("ran within 183 GiB", "b200:8", TRACED, 183, 73.7),
    ("ran within 288 GiB", "mi350x:8", TRACED, 288, 95.9),
)
# MLPerf's DLRM-v2 as NVIDIA tuned it, of 65,536 samples: devices, published s (sources: docs/cost-models.md)
TUNED = (("h100:8", 3.529e-3), ("h100:8x8", 2.407e-3), ("h200:8", 3.256e-3), ("b200:8", 2.152e-3))


def layers() -> None:
    """Layers alone."""
    print("| what | device | by formulas | published | formulas / published | fitted to it |")
    print("|---|---|---|---|---|---|")
    for what, name, samples, positions, pairs, blocks, measured, whole in LAYERS:
        wide = HEADS * EACH
        products = ((positions, 4 * wide, WIDTH), (positions, WIDTH, 3 * wide)) * blocks
        work = HistoryWork(
            products=products, blocks=blocks, heads=HEADS, keys=EACH, values=EACH, positions=positions, pairs=2 * pairs,
            width=WIDTH,
        )  # fmt: skip
        device = load_cluster(f"{name}:8").device
        parts = [each for each in history_parts(work, samples, MATRIX_FLOPS[name], device) if "around" not in each.term]
        found = sum(each.forward_s + (each.backward_s if whole else 0.0) for each in parts)
        print(f"| {what} | {name} | {found * 1e3:.1f} ms | {measured * 1e3:.1f} ms | {found / measured:.2f} | "
              f"{'no' if whole else 'yes'} |")  # fmt: skip


def steps() -> None:
    """Whole steps, and how far those are off to which nothing was fitted."""
    print("\n| what | devices | layers | by formulas | published | formulas / published | fitted to it |")
    print("|---|---|---|---|---|---|---|")
    apart: list[float] = []
    for step in STEPS:
        found = step.by_formulas()
        apart += [found / step.published_s] if step.fitted == "no" else []
        print(f"| {step.what} | {step.cluster} | {step.blocks} | {found * 1e3:.0f} ms | "
              f"{step.published_s * 1e3:.0f} ms | {found / step.published_s:.2f} | {step.fitted} |",
              flush=True)  # fmt: skip
    print(f"\n{len(apart)} whole steps to which nothing was fitted: {min(apart):.2f} to {max(apart):.2f}")


def tuned() -> None:
    """Steps of DLRM-v2, whose layers take the shares that profiles of HSTU reached."""
    print("\n| devices | by formulas | published | formulas / published |\n|---|---|---|---|")
    for cluster, published in TUNED:
        samples = 65536 // load_cluster(cluster).world_size
        plan = recsmith.plan(replace(load_workload("dlrm-v2"), batch_size=samples), cluster).plan
        found = predict_model("dlrm-v2", plan=plan)[0][1].step_s
        print(f"| {cluster} | {found * 1e3:.2f} ms | {published * 1e3:.2f} ms | {found / published:.2f} |", flush=True)


def memory() -> None:
    """Memory beside tables."""
    print("\n| what | devices | events | by the formula | published | formula / published |")
    print("|---|---|---|---|---|---|")
    for what, cluster, events, whole, tables in MEMORY:
        step = Step(what, cluster, 0.0, events=events)
        found = plain_reserve(step.workload(), load_cluster(cluster))
        assert found is not None
        most, least = ("", "") if not what.startswith("ran ") else ("at most ", "at least ")
        print(f"| {what} | {cluster} | {events:,} | {found.needed / GIB:.0f} GiB | {most}{whole - tables:.0f} GiB | "
              f"{least}{found.needed / GIB / (whole - tables):.2f} |")  # fmt: skip


if __name__ == "__main__":
    layers()
    memory()
    steps()
    tuned()
