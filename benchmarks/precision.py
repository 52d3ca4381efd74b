"""bf16 where fp32 was: which bits change, what it does to AUC, which bytes are read, and how long a step takes.

    python benchmarks/precision.py rounding    # all upper halves, and 20 million random patterns: half a minute
    python benchmarks/precision.py updates     # 1,000 steps beside torch in fp32, and beside FBGEMM: a minute
    python benchmarks/precision.py auc         # 20 forms of a job with five seeds, in this process: 8 CPU minutes
    python benchmarks/precision.py bytes       # what lookups read and jobs hold, and CPU seconds of a step
    python benchmarks/precision.py shapes      # CPU seconds of lookups and updates, of several tables and sizes
    python benchmarks/precision.py picture     # of what auc has kept: docs/pictures/precision-rates.svg
    python benchmarks/precision.py jobs        # one and two ranks, two plans, resumed: weights that differ

Tables of docs/precision.md.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from learning_pictures import PICTURES, Axis, Panel, picture

from recsmith.training.systems.halves.bfloat16 import join, nearest, split, stochastic

HERE = Path(__file__).parent
LOWERS = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
RATE, EPS = 0.05, 1e-8
LOW = (0.3, 0.1, 0.03)  # times the learning rates of the run: at low ones bf16 alone stands still
BF16 = ["model.precision=bf16"]
FORMS: dict[str, list[str]] = {
    "fp32": [],
    "activations": BF16,
    "tables in halves, nearest": ["rows={name: split, upper: nearest}"],
    "tables in halves, truncated": ["rows={name: split, upper: truncated}"],
    "all in halves": ["rows=split", *BF16, "optimizers.dense.name=split"],
    "all, master copies of dense layers": ["rows=split", *BF16, "optimizers.dense.name=master"],
    "tables in bf16 alone": ["rows={name: split, lower: false}"],
    "tables in bf16 alone, truncated": ["rows={name: split, upper: truncated, lower: false}"],
    "tables in bf16 alone, stochastic": ["rows={name: split, upper: stochastic, lower: false}"],
    "dense layers in bf16 alone": [
        *BF16, "optimizers.dense.name=split", "optimizers.dense.arguments={lower: false}",
    ],
    "all in bf16 alone": [
        "rows={name: split, lower: false}", *BF16, "optimizers.dense.name=split",
        "optimizers.dense.arguments={lower: false}",
    ],
}  # fmt: skip
AT_RATES = ", rates times "
AT_LOW = ("fp32", "all in halves", "all in bf16 alone")  # trained at lower rates too


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {
        "rounding": rounding,
        "updates": updates,
        "bytes": count_bytes,
        "shapes": time_shapes,
        "jobs": compare_jobs,
    }
    parser.add_argument("table", choices=[*tables, "auc", "picture"])
    parser.add_argument("--quick", action="store_true", help="little, to see that it runs")
    parser.add_argument("-o", "--output", default="bench/precision.json", help="what auc keeps, and goes on from")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.table == "auc":
        areas(arguments.quick, Path(arguments.output))
    elif arguments.table == "picture":
        draw(json.loads(Path(arguments.output).read_text()))
    else:
        tables[arguments.table](arguments.quick)
    return 0


def rounding(quick: bool) -> None:
    """Patterns whose bits are not PyTorch's, or whose halves do not join."""
    upper = torch.arange(1 << 16, dtype=torch.int64) << 16
    edges = (upper[:, None] + torch.tensor(LOWERS)).reshape(-1).to(torch.int32)
    draws = torch.Generator().manual_seed(0)
    drawn = torch.randint(-(2**31), 2**31, (200_000 if quick else 20_000_000,), generator=draws).to(torch.int32)
    print("| patterns | nearest even: not PyTorch's | halves, nearest: not joined | halves, truncated: not joined |")
    print("|---|---|---|---|")
    for bits in (edges, drawn):
        values = bits.view(torch.float32)
        odd = [_different(nearest(values).view(torch.int16), values.to(torch.bfloat16).view(torch.int16))]
        for to_nearest in (True, False):
            joined = join(*split(values, to_nearest=to_nearest), to_nearest=to_nearest)
            odd.append(_different(joined.view(torch.int32), bits))
        print(f"| {len(bits):,} | " + " | ".join(map(str, odd)) + " |", flush=True)
    values = torch.randn(200_000 if quick else 4_000_000)
    for name, form in (("nearest even", nearest), ("truncation", _upper), ("stochastic", stochastic)):
        left = (form(values).float() - values).double() / values.abs().double()
        mean = float((left * values.sign()).mean())
        print(f"{name}: mean {mean:+.2e} of the number, at most {float(left.abs().max()):.2e}")


def _upper(values: torch.Tensor) -> torch.Tensor:
    return split(values, to_nearest=False)[0]


def _different(found: torch.Tensor, expected: torch.Tensor) -> int:
    return int((found != expected).sum())


def updates(quick: bool) -> None:
    """Weights after many steps that are not those of torch in fp32, and how far FBGEMM's are."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )
    from torchrec.optim import RowWiseAdagrad

    from recsmith.training.systems.halves.rows import SplitTables

    rows, columns, samples, steps = 5000, 64, 256, 20 if quick else 1000
    print("| optimizer | upper half | steps | weights unlike torch's | most from FBGEMM's fused |")
    print("|---|---|---|---|---|")
    for name, kind in (("sgd", EmbOptimType.EXACT_SGD), ("rowwise_adagrad", EmbOptimType.EXACT_ROWWISE_ADAGRAD)):
        for upper in ("nearest", "truncated"):
            torch.manual_seed(0)
            plain = torch.nn.Parameter(torch.randn(rows, columns) * 0.1)
            other: Any = torch.optim.SGD([plain], RATE) if name == "sgd" else RowWiseAdagrad([plain], lr=RATE, eps=EPS)
            given: Any = {"optimizer": kind, "learning_rate": RATE, "eps": EPS, "device": torch.device("cpu")}
            halves = SplitTables(
                rows=[rows], columns=[columns], feature_table_map=[0], upper=upper, lower=True, **given
            )
            fused = SplitTableBatchedEmbeddingBagsCodegen(
                [(rows, columns, EmbeddingLocation.HOST, ComputeDevice.CPU)], **given
            )
            for each in (halves, fused):
                each.split_embedding_weights()[0].copy_(plain.detach())
            ends = torch.arange(0, 3 * samples + 1, 3)
            for _ in range(steps):
                ids = torch.randint(0, rows, (3 * samples,))
                gradient = torch.randn(samples, columns) * 0.01
                halves(ids, ends).backward(gradient)
                fused(ids, ends).backward(gradient)
                other.zero_grad()
                plain.grad = torch.zeros_like(plain).index_add_(0, ids, gradient.repeat_interleave(3, 0))
                other.step()
            found, far = halves.split_embedding_weights()[0], fused.split_embedding_weights()[0]
            assert torch.isfinite(found).all()
            odd, most = _different(found, plain), float((found - far).abs().max())
            print(f"| {name} | {upper} | {steps:,} | {odd} of {found.numel():,} | {most:.1e} |", flush=True)


@contextmanager
def one_rank() -> Iterator[None]:
    """This process as the only rank of jobs."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
        try:
            yield
        finally:
            dist.destroy_process_group()


def a_job(folder: str, settings: Sequence[str], *, quick: bool) -> Any:
    """A run of precision_run.yaml with some settings."""
    from recsmith.training import load_run

    few = ["data.train.num_samples=2048", "data.test.num_samples=1024"] if quick else []
    return load_run(str(HERE / "precision_run.yaml"), (f"output={folder}/out", *settings, *few))


def areas(quick: bool, output: Path) -> None:
    """AUC and log loss of every form and seed beside fp32; what the file holds is not trained again."""
    from recsmith.training import run_to_raw
    from recsmith.training.rank import train_on_rank

    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    rates = {"optimizers.sparse.learning_rate": 0.1, "optimizers.dense.learning_rate": 0.003}
    forms = dict(FORMS)
    for factor in LOW:
        low = [f"{name}={value * factor:g}" for name, value in rates.items()]
        forms |= {at_rates(name, factor): [*FORMS[name], *low] for name in AT_LOW}
    with one_rank():
        for seed in range(1 if quick else 5):
            for name, settings in forms.items():
                if f"{name}/{seed}" in found:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    begun = time.process_time()
                    done = train_on_rank(run_to_raw(a_job(folder, [f"seed={seed}", *settings], quick=quick)))
                found[f"{name}/{seed}"] = {**done["test"], "cpu_s": time.process_time() - begun}
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(json.dumps(found, indent=1))
    print("| what is bf16 | seeds | AUC | beside fp32, points | log loss | beside fp32 | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in forms:
        mine, theirs = _of(found, name), _of(found, f"fp32{name[name.find(AT_RATES) :] if AT_RATES in name else ''}")
        area = _beside([100 * (a["auc"] - b["auc"]) for a, b in zip(mine, theirs, strict=True)], 3)
        loss = _beside([a["logloss"] - b["logloss"] for a, b in zip(mine, theirs, strict=True)], 5)
        means = [statistics.mean(each[key] for each in mine) for key in ("auc", "logloss", "cpu_s")]
        print(f"| {name} | {len(mine)} | {means[0]:.5f} | {area} | {means[1]:.5f} | {loss} | {means[2]:.1f} |")


def at_rates(name: str, factor: float) -> str:
    """The name of a form at other learning rates."""
    return f"{name}{AT_RATES}{factor:g}"


def _of(found: dict[str, Any], name: str) -> list[Any]:
    return [found[key] for key in sorted(found) if key.rpartition("/")[0] == name]


def _beside(differences: list[float], digits: int) -> str:
    """Mean of paired differences, with an interval at 95 % by Student's t."""
    if not any(differences):
        return ""
    mean = statistics.mean(differences)
    if len(differences) < 2:
        return f"{mean:+.{digits}f}"
    student = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}[len(differences)]
    return f"{mean:+.{digits}f} ± {student * statistics.stdev(differences) / len(differences) ** 0.5:.{digits}f}"


def draw(found: dict[str, Any]) -> None:
    """AUC lost beside fp32 at each learning rate: means over seeds, and bands from the least to the most."""
    factors = (1.0, *LOW)
    lines, bands = {}, []
    for name in AT_LOW[1:]:
        lost = np.array([_lost(found, name, factor) for factor in factors])  # (rates, seeds)
        across = np.array(factors)
        lines[name] = np.stack([across, lost.mean(axis=1)], axis=1)
        bands.append(np.stack([across, lost.min(axis=1), lost.max(axis=1)], axis=1))
    least = float(np.floor(min(each[:, 1].min() for each in bands)))
    up = Axis(
        least, -0.4 * least, {0.0: "0", **{least * i / 4: f"{least * i / 4:.1f}" for i in range(1, 5)}}, log=False
    )
    across = Axis(min(factors), 1.0, {each: f"{each:g}" for each in factors})
    made = Panel("Points of AUC beside fp32, by learning rates", across, up, np.zeros((0, 2)), lines, bands)
    (PICTURES / "precision-rates.svg").write_text(picture([made]), "utf-8")


def _lost(found: dict[str, Any], name: str, factor: float) -> list[float]:
    """Points of AUC beside fp32 at the same rates, by seed."""
    mine, theirs = (_of(found, each if factor == 1 else at_rates(each, factor)) for each in (name, AT_LOW[0]))
    return [100 * (a["auc"] - b["auc"]) for a, b in zip(mine, theirs, strict=True)]


def count_bytes(quick: bool) -> None:
    """Bytes that lookups read and tables hold, and CPU seconds of a step, beside FBGEMM's fused tables in fp32."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    from recsmith.training.systems.halves.rows import SplitTables

    rows, samples, ids, rounds = (10_000, 64, 5, 2) if quick else (1_000_000, 1024, 20, 9)
    print("| columns | rows read | fp32 bytes of them | read | weights and state, fp32 | in halves "
          "| forward, fp32 | in halves | backward, fp32 | in halves |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for columns in (16, 64, 128):
        given: Any = {
            "optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": RATE, "eps": EPS,
            "device": torch.device("cpu"),
        }  # fmt: skip
        fused = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, columns, EmbeddingLocation.HOST, ComputeDevice.CPU)], **given
        )
        halves = SplitTables(
            rows=[rows], columns=[columns], feature_table_map=[0], upper="nearest", lower=True, **given
        )
        for each in (fused, halves):
            each.split_embedding_weights()[0].uniform_(-0.1, 0.1)
        draws, ends = np.random.default_rng(0), torch.arange(0, samples * ids + 1, ids)
        times: dict[str, list[float]] = {"fused": [], "halves": [], "fused back": [], "halves back": []}
        read = distinct = 0
        for turn in range(rounds):
            chosen = torch.from_numpy(draws.zipf(1.05, samples * ids).astype(np.int64) * 7919 % rows)
            gradient = torch.randn(samples, columns)
            distinct += len(chosen)
            for name, each in (("fused", fused), ("halves", halves))[:: -1 if turn % 2 else 1]:
                before, begun = halves.read_bytes, time.process_time()
                out = each(chosen, ends)
                between = time.process_time()
                out.backward(gradient)
                if turn:  # the first turn splits the table, and touches memory
                    times[name].append(between - begun)
                    times[f"{name} back"].append(time.process_time() - between)
                read += halves.read_bytes - before
        assert read == 2 * columns * samples * ids * rounds
        print(f"| {columns} | {distinct:,} | {4 * columns * distinct:,} | {read:,} "
              f"| {_held(fused):,} | {_held(halves):,} "
              + "".join(f"| {1e3 * statistics.median(times[name]):.1f} ms " for name in
                        ("fused", "halves", "fused back", "halves back")) + "|", flush=True)  # fmt: skip


SHAPES = (  # tables, rows of each, columns, ids of a bag, bags, exponent of a Zipf law (0: even ids)
    (1, 300_000, 64, 20, 2048, 0.0), (1, 300_000, 64, 20, 2048, 1.05), (3, 300_000, 64, 20, 2048, 0.0),
    (12, 100_000, 16, 20, 1024, 0.0), (24, 100_000, 16, 20, 1024, 0.0), (1, 100_000, 16, 20, 1024, 0.0),
    (20, 20_000, 32, 2, 1024, 0.0), (3, 300_000, 128, 20, 2048, 0.0),
)  # fmt: skip


def time_shapes(quick: bool) -> None:
    """CPU seconds of a lookup and its update of tables in halves, beside FBGEMM's fused tables in fp32."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    from recsmith.training.systems.halves.rows import SplitTables

    given: Any = {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": RATE, "eps": EPS,
                  "device": torch.device("cpu")}  # fmt: skip
    print("| tables | rows | columns | ids a bag | ids | forward, in halves / fp32 | backward | both |")
    print("|---|---|---|---|---|---|---|---|")
    draws, ratios = np.random.default_rng(0), list[float]()
    for tables, rows, columns, ids, samples, zipf in SHAPES[: 2 if quick else None]:
        size = (rows, columns, EmbeddingLocation.HOST, ComputeDevice.CPU)
        fused = SplitTableBatchedEmbeddingBagsCodegen([size] * tables, **given)
        halves = SplitTables(rows=[rows] * tables, columns=[columns] * tables, feature_table_map=list(range(tables)),
                             upper="nearest", lower=True, **given)  # fmt: skip
        for weights in (*fused.split_embedding_weights(), *halves.split_embedding_weights()):
            weights.uniform_(-0.1, 0.1)
        count, times = tables * samples * ids, {(name, way): list[float]() for name in "fh" for way in "fb"}
        ends = torch.arange(0, count + 1, ids)
        for turn in range(3 if quick else 9):
            drawn = draws.zipf(zipf, count) * 7919 % rows if zipf else draws.integers(0, rows, count)
            chosen, gradient = torch.from_numpy(drawn.astype(np.int64)), torch.randn(samples, columns * tables)
            for name, each in (("f", fused), ("h", halves))[:: -1 if turn % 2 else 1]:
                begun = time.process_time()
                out = each(chosen, ends)
                between = time.process_time()
                out.backward(gradient)
                if turn:  # the first turn splits the tables, and touches memory
                    times[name, "f"].append(between - begun)
                    times[name, "b"].append(time.process_time() - between)
        took = {key: statistics.median(some) for key, some in times.items()}
        forward, backward = (took["h", way] / took["f", way] for way in "fb")
        ratios.append((took["h", "f"] + took["h", "b"]) / (took["f", "f"] + took["f", "b"]))
        law = f"Zipf {zipf}" if zipf else "even"
        told = f"{forward:.2f} | {backward:.2f} | {ratios[-1]:.2f}"
        print(f"| {tables} | {rows:,} | {columns} | {ids} | {law} | {told} |", flush=True)
    print(f"| median | | | | | | | {statistics.median(ratios):.2f} |")


def _held(tables: Any) -> int:
    """Bytes of all that a module of tables holds, but for what is too small to matter."""
    held = {each.data_ptr(): each.nbytes for each in (*tables.parameters(), *tables.buffers()) if each.nbytes > 1024}
    return sum(held.values())


def compare_jobs(quick: bool) -> None:
    """Jobs in halves whose weights must have the same bits, on one rank and on two: weights that differ."""
    from recsmith.training import load_model, train

    steps = 4 if quick else 40
    print("| ranks | beside a table-wise job | weights that differ |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2):
            plans = {kind: _planned(Path(folder, f"{ranks}{kind}.json"), kind, ranks) for kind in KINDS}

            def trained(name: str, *stops: tuple[int, str], ranks: int = ranks, plans: Any = plans) -> dict[str, Any]:
                output = f"{folder}/{ranks}{name}"
                for stop, kind in stops:
                    train(_small_job(output, plans[kind], ranks, stop))
                return load_model(Path(output) / "model").task.state_dict()

            expected = trained("base", (steps, "table_wise"))
            others = {
                "row-wise": trained("rows", (steps, "row_wise")),
                "stopped and resumed": trained("resumed", (steps // 2, "table_wise"), (steps, "table_wise")),
                "resumed row-wise": trained("resharded", (steps // 2, "table_wise"), (steps, "row_wise")),
            }
            for name, found in others.items():
                assert all(each.isfinite().all() for each in found.values())
                odd = sum(_different(found[key], expected[key]) for key in expected)
                print(f"| {ranks} | {name} | {odd} of {sum(each.numel() for each in found.values()):,} |", flush=True)


KINDS = ("table_wise", "row_wise")
ROWS = {"a": 3000, "b": 2000}


def _planned(file: Path, kind: str, ranks: int) -> str:
    """The file of a plan of two tables."""
    from recsmith.clusters import load_cluster
    from recsmith.planning.simulate import price
    from recsmith.plans import Placement, save_plan
    from recsmith.workloads import Feature, Table, Workload

    tables = tuple(
        Table(name=name, num_embeddings=rows, embedding_dim=8, features=(Feature(name=name, pooling_factor=1.0),))
        for name, rows in ROWS.items()
    )
    placed = [
        Placement(table=name, sharding_type=kind, compute_kernel="fused",
                  ranks=tuple(range(ranks)) if kind == "row_wise" else (index % ranks,))
        for index, name in enumerate(ROWS)
    ]  # fmt: skip
    work = Workload(batch_size=64 // ranks, optimizer="rowwise_adagrad", tables=tables)
    save_plan(price(work, load_cluster(f"cpu:{ranks}"), placed), file)
    return str(file)


def _small_job(output: str, plan: str, ranks: int, steps: int) -> Any:
    from recsmith.training import DenseOptimizer, Run, RunData, RunModel, RunOptimizers, SparseOptimizer

    features = [{"name": name, "num_embeddings": rows} for name, rows in ROWS.items()]
    data = {"format": "generator", "num_samples": 64 * 1000, "dense": 2, "features": features}
    return Run(
        data=RunData(train=data, global_batch_size=64), output=output, plan=plan,
        ranks=ranks, steps=steps, rows="split",
        model=RunModel(embedding_dim=8, bottom=(8,), top=(8,), precision="bf16"),
        optimizers=RunOptimizers(sparse=SparseOptimizer(learning_rate=0.5), dense=DenseOptimizer(name="split")),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
