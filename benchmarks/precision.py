"""bf16 where fp32 was: which bits change, what it does to AUC, which bytes are read, and how long a step takes.

    python benchmarks/precision.py rounding    # all upper halves, and 20 million random patterns: half a minute
    python benchmarks/precision.py updates     # 1,000 steps beside torch in fp32, and beside FBGEMM: a minute
    python benchmarks/precision.py auc         # 12 forms of a job with five seeds, in this process: minutes
    python benchmarks/precision.py bytes       # what lookups read and jobs hold, and CPU seconds of a step
    python benchmarks/precision.py jobs        # one and two ranks, two plans, resumed, resharded: which bits are the same

Tables of docs/benchmarks/precision.md.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from recsmith.training.bfloat16 import join, nearest, split, stochastic

HERE = Path(__file__).parent
LOWERS = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
RATE, EPS, LOW = 0.05, 1e-8, 0.1  # LOW: times the learning rates at which pure bf16 is shown to stand still
DENSE = {"optimizer": "adam"}
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
AT_LOW = ("fp32", "all in halves", "all in bf16 alone")  # trained at lower rates too


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"rounding": rounding, "updates": updates, "auc": areas, "bytes": count_bytes, "jobs": compare_jobs}
    parser.add_argument("table", choices=list(tables))
    parser.add_argument("--quick", action="store_true", help="little, to see that it runs")
    parser.add_argument("-o", "--output", default="bench/precision.json", help="what auc keeps, and goes on from")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.table == "auc":
        areas(arguments.quick, Path(arguments.output))
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
        print(
            f"{name}: mean {float((left * values.sign()).mean()):+.2e} of the number, at most {float(left.abs().max()):.2e}"
        )


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

    from recsmith.training.stores.split import SplitTables

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
                looked: Any = torch.nn.functional.embedding_bag(ids, plain, ends, mode="sum", include_last_offset=True)
                looked.backward(gradient)
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
    from recsmith.training.loop import train_on_rank

    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    rates = {"optimizers.sparse.learning_rate": 0.1, "optimizers.dense.learning_rate": 0.003}
    low = [f"{name}={value * LOW:g}" for name, value in rates.items()]
    forms = {**FORMS, **{f"{name}, a tenth of the rates": [*FORMS[name], *low] for name in AT_LOW}}
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
        base = "fp32, a tenth of the rates" if name.endswith("of the rates") else "fp32"
        mine, theirs = _of(found, name), _of(found, base)
        area = _beside([100 * (a["auc"] - b["auc"]) for a, b in zip(mine, theirs, strict=True)], 3)
        loss = _beside([a["logloss"] - b["logloss"] for a, b in zip(mine, theirs, strict=True)], 5)
        means = [statistics.mean(each[key] for each in mine) for key in ("auc", "logloss", "cpu_s")]
        print(f"| {name} | {len(mine)} | {means[0]:.5f} | {area} | {means[1]:.5f} | {loss} | {means[2]:.1f} |")


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


if __name__ == "__main__":
    sys.exit(main())
