"""Cost model `analytic` beside published measurements whose full shape is known.

    python benchmarks/analytic_figures.py

Whole training steps (dense model included) are upper bounds of the embedding part: a ratio below 1 would refute the
model. Single kernels and collectives should be met: a ratio far from 1 says where the model is off.
"""

from dataclasses import replace

import recsmith
from recsmith.clusters import load_cluster
from recsmith.costs.collectives import latency, seconds_per_byte
from recsmith.problems import Constraints, Space
from recsmith.sharding import Collective
from recsmith.workloads import AccessProfile, Feature, Table, Workload, load_workload
from recsmith.workloads.data_types import DataType, Pooling
from recsmith.workloads.optimizers import OptimizerName

MERLIN = "NVIDIA-Merlin/distributed-embeddings, examples/benchmarks/synthetic_models/README.md"
GLOBAL_BATCH = 65_536
MERLIN_ZIPF = 1.05  # alpha of main.py's power law
MERLIN_MS = {  # DGX A100, Adagrad, ms an iteration by number of devices
    "tiny": {1: 24.433, 8: 5.537, 16: 4.867},
    "small": {1: 67.355, 8: 17.203, 16: 12.461, 32: 11.839},
    "medium": {8: 63.393, 16: 46.636, 32: 37.732, 128: 27.329},
    "large": {32: 67.57, 128: 37.934},
    "jumbo": {128: 124.3},
}
DCN_ROWS = (40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4,
            976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36)  # fmt: skip
DCN_HOTNESS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
MLPERF_MS = (  # devices, card, global batch, ms a step, round and folder of training_results
    (8, "h100", 55_296, 3.647, "v3.1, ASUSTeK/results/ESC-N8-E11/dlrm_dcnv2/result_1.txt (HugeCTR)"),
    (8, "h100", 55_296, 3.5294, "v4.0, NVIDIA/results/eos_ngc24.04_merlin_hugectr"),
    (64, "h100", 135_168, 2.965, "v3.0, NVIDIA/results/dgxh100_n8_ngc23.04_merlin_hugectr"),
    (64, "h100", 135_168, 2.4068, "v4.0, NVIDIA/results/eos_n8_ngc24.04_merlin_hugectr (batch assumed)"),
    (128, "h100", 135_168, 1.8246, "v4.0, NVIDIA/results/eos_n16_ngc24.04_merlin_hugectr"),
    (8, "h200", 55_296, 3.2565, "v4.0, NVIDIA/results/h200_ngc24.04_merlin_hugectr"),
    (8, "b200", 55_296, 2.1519, "v5.0, nyx_n1_ngc25.03_hugectr (a fork's log, batch assumed)"),
)
CRITEO_ROWS = (45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176, 345138, 10, 2209, 11267, 128,
               4, 974, 14, 48937457, 11316796, 40094537, 452104, 12606, 104, 35)  # fmt: skip


def main() -> None:
    """Print all rows."""
    print("| published | measured | analytic | measured / analytic | |\n|---|---|---|---|---|")
    for row in (*_steps(), *_collectives()):
        print(row)


def _steps() -> list[str]:
    rows = [
        _row(f"NVIDIA {name}, {count} x A100: whole step", ms / 1e3, _merlin(name, count), MERLIN, bound=True)
        for name, times in MERLIN_MS.items()
        for count, ms in times.items()
    ]
    for count, card, batch, ms, source in MLPERF_MS:
        dcn = _criteo(DCN_ROWS, DCN_HOTNESS, batch // count, comm_dtype="fp16")
        hosts = f"{card}:8" + (f"x{count // 8}" if count > 8 else "")
        name = f"MLPerf DLRM-DCNv2, {count} x {card.upper()}: whole step"
        rows.append(_row(name, ms / 1e3, _cost(dcn, hosts), f"mlcommons/training_results_{source}", bound=True))
    dlrm = _criteo(DCN_ROWS, (1,) * 26, 55_296 // 8, comm_dtype="fp16", optimizer="sgd")
    source = "mlcommons/training_results_v2.0, NVIDIA/results/dgxa100_ngc22.04_merlin_hugectr"
    rows.append(_row("MLPerf DLRM, 8 x A100: whole step", 1.3551e-3, _cost(dlrm, "a100-80:8"), source, bound=True))
    sequences = _criteo(CRITEO_ROWS, (10,) * 26, 8192, pooling="none", optimizer="adam", zipf=0.0)
    source = "NVIDIA/recsys-examples, corelib/dynamicemb/benchmark/README.md (defaults of its script assumed)"
    cost = _cost(sequences, "h100:8", constraints=_row_wise(sequences, 8))
    rows.append(_row("26 sequences of 10, row_wise, 8 x H100, TorchRec without deduplication", 23.99e-3, cost, source))
    return rows


def _merlin(name: str, count: int) -> float:
    workload = load_workload(f"nvidia-{name}").with_batch_size(GLOBAL_BATCH // count)
    tables = tuple(replace(table, access=AccessProfile(zipf=MERLIN_ZIPF)) for table in workload.tables)
    cluster = f"a100-80:{min(count, 8)}" + (f"x{count // 8}" if count > 8 else "")
    return _cost(replace(workload, tables=tables), cluster, types=("table_wise", "column_wise"))


def _criteo(
    rows: tuple[int, ...], hotness: tuple[int, ...], batch: int, *, pooling: Pooling = "sum",
    optimizer: OptimizerName = "adagrad", zipf: float | None = None, comm_dtype: DataType | None = None,
) -> Workload:  # fmt: skip
    access = None if zipf is None else AccessProfile(zipf=zipf)
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=count, embedding_dim=128, pooling=pooling, access=access,
              features=(Feature(name=f"t{i}", pooling_factor=hot),))
        for i, (count, hot) in enumerate(zip(rows, hotness, strict=True))
    )  # fmt: skip
    return Workload(batch_size=batch, optimizer=optimizer, tables=tables, comm_dtype=comm_dtype)


def _cost(
    workload: Workload, cluster: str, types: tuple[str, ...] = Space().types, constraints: Constraints | None = None
) -> float:
    """Seconds of the best plan found; devices are as large as need be, since the runs' own placement is not known."""
    machines = load_cluster(cluster).with_memory(2**40)
    words = {"cost_model": "analytic", "iterations": 40, "space": Space(types=types), "constraints": constraints}
    return recsmith.plan(workload, machines, **words).plan.cost.total_s


def _row_wise(workload: Workload, ranks: int) -> Constraints:
    """row_wise for every table that has rows for all ranks."""
    tall = [t.name for t in workload.tables if -(-t.num_embeddings // ranks) * (ranks - 1) < t.num_embeddings]
    return Constraints(rules=tuple(recsmith.TableRule(tables=name, sharding_types=("row_wise",)) for name in tall))


def _collectives() -> list[str]:
    exchange, reduce_ = Collective("all_to_all", "world"), Collective("all_reduce", "world")
    scatter, gather = Collective("reduce_scatter", "world"), Collective("all_gather", "world")
    gib = 2.0**30
    cases = (
        ("all-to-all of 500 MiB, 4 x H100", exchange, "h100:4", 524_288_000, 1174.1e-6, "NVIDIA/nccl#2169"),
        ("send and receive of 1 GiB, 8 x A100", exchange, "a100-40:8", gib * 8 / 7, 5503e-6, "li-plus/playground"),
        ("all-reduce of 8 GiB, 8 x H100 (479.7 GB/s)", reduce_, "h100:8", 8 * gib, 2 * 7 / 8 * 8 * gib / 479.7e9,
         "NVLink SHARP, NVIDIA/nccl-tests#290"),
        ("reduce-scatter, 8 x H100 (360 GB/s)", scatter, "h100:8", gib, 7 / 8 * gib / 360e9, "NVIDIA/nccl#1281"),
        ("all-gather, 8 x H100 (350 GB/s)", gather, "h100:8", gib, 7 / 8 * gib / 350e9, "NVIDIA/nccl#1281"),
        ("all-reduce, 32 x H100 (330.9 GB/s)", reduce_, "h100:8x4", gib, 2 * 31 / 32 * gib / 330.9e9,
         "vpbenchmarking"),
        ("all-to-all of 8 MiB, 64 x H800 (as h100)", exchange, "h100:8x8", 2.0**23, 337.8e-6, "NVIDIA/nccl#1531"),
        ("all-to-all of 1 KiB, 8 x H20 (as h100)", exchange, "h100:8", 1024, 10.8e-6, "deepseek-ai/DeepEP#303"),
    )  # fmt: skip
    rows: list[str] = []
    for name, call, cluster, size, measured, source in cases:
        machines = load_cluster(cluster)
        rows.append(_row(name, measured, latency(call, machines) + size * seconds_per_byte(call, machines), source))
    return rows


def _row(name: str, measured: float, ours: float, source: str, *, bound: bool = False) -> str:
    if bound and measured < ours:
        raise SystemExit(
            f"{name}: the embedding part, {ours * 1e3:.4g} ms, exceeds the whole step; the model is refuted"
        )
    note = "upper bound; " if bound else ""
    return f"| {name} | {measured * 1e3:.4g} ms | {ours * 1e3:.4g} ms | {measured / ours:.2f} | {note}{source} |"


if __name__ == "__main__":
    main()
