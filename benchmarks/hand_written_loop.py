"""A TorchRec training loop written by hand, the yardstick of `recsmith train`: nothing but what training needs.

python benchmarks/hand_written_loop.py                      # pairs of both on 2 ranks, same model, plan and data
python benchmarks/hand_written_loop.py --pairs 5 --ranks 1

Each pair runs both loops in one job on the same ranks, in turn (ours first in every other pair), over the same batches,
which lie in memory. Printed: samples/s of each and their ratio, whose median is the answer; and the same by seconds of
rank 0's processors, which other programs disturb less, but which leave out what is waited for. On GPUs, where each rank
has one, both run TorchRec's SparseDist pipeline, and on CPU its base one.
"""

import argparse
import json
import statistics
import time
from typing import Any

from recsmith.jobs.launch import launch

FEATURES = [{"name": f"f{i}", "num_embeddings": rows} for i, rows in enumerate([100_000, 50_000, 20_000, 10_000] * 4)]
DATA = {"format": "generator", "seed": 7, "num_samples": 10_000_000, "dense": 13, "features": FEATURES}
RUN = {
    "schema": "recsmith/run/1", "output": "none", "data": {"train": DATA, "batch_size": 1024},
    "model": {"embedding_dim": 32, "bottom": [128, 64], "top": [128, 64]}, "checkpoint": None,
    "metrics": {"every": 50},
}  # fmt: skip


Spent = tuple[float, float]  # seconds by the clock, and of this process's processors


def by_hand(job: Any, batches: list[Any], steps: int) -> Spent:
    """Seconds of steps of TorchRec's pipeline, without anything else."""
    import itertools

    from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist

    kind: Any = TrainPipelineSparseDist if job.device.type == "cuda" else TrainPipelineBase
    pipeline = kind(job.model, job.optimizer, job.device)
    source = itertools.islice(itertools.cycle(batches), steps)
    begun, busy = time.perf_counter(), time.process_time()
    for _ in range(steps):
        pipeline.progress(source)
    settled(job)
    spent = time.perf_counter() - begun, time.process_time() - busy
    if kind is TrainPipelineSparseDist:
        pipeline.detach()
    return spent


def settled(job: Any) -> None:
    """Wait until a GPU has done what was queued."""
    import torch

    if job.device.type == "cuda":
        torch.cuda.synchronize()


def ours(job: Any, batches: list[Any], steps: int, run: Any, folder: str) -> Spent:
    """Seconds of steps of recsmith's loop: metrics, log, agreement of ranks and all."""
    import itertools
    from dataclasses import replace
    from pathlib import Path

    import torch.distributed as dist

    from recsmith.training.job.agreement import Agreement, Ending
    from recsmith.training.job.checkpoints import Checkpoints
    from recsmith.training.job.job import Progress, TrainingJob
    from recsmith.training.job.log import RunLog, StepTimes
    from recsmith.training.loop import train_steps
    from recsmith.training.rank import OneModel
    from recsmith.training.run import Checkpointing
    from recsmith.training.sources import open_source
    from recsmith.training.tables.features import Features
    from recsmith.training.watchers import Watchers

    made = replace(run, steps=steps, output=folder)
    agreement = Agreement()
    checkpoints = Checkpoints(Path(folder) / "checkpoints", Checkpointing(), agreement)
    log = RunLog(Path(folder), dist.get_rank(), tensorboard=False, step=0)
    source = open_source(run)
    # sent_bytes: the first step of a run counts what it sends, which costs as much as a few steps, once
    training = TrainingJob(
        made, job.plan, source, Features((), {}), job.job, agreement, checkpoints, log, Progress(sent_bytes=1)
    )
    begun, busy = time.perf_counter(), time.process_time()
    with Watchers(made.watched) as watchers:
        watchers.begin({})
        train_steps(OneModel(training), itertools.cycle(batches), watchers, Ending(), StepTimes())
    settled(job.job)
    return time.perf_counter() - begun, time.process_time() - busy


def pairs(run: dict[str, Any], count: int, steps: int, folder: str) -> list[tuple[Spent, Spent]]:
    """Seconds (by hand, ours) of each pair, on every rank."""
    import itertools
    from types import SimpleNamespace

    import torch.distributed as dist

    from recsmith.training.batches import pinned, training_batches
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.plan import agreed_plan
    from recsmith.training.job.sharded import draw_weights, rank_device, shard
    from recsmith.training.run import run_from_raw

    made, ranks = run_from_raw(run, "run"), dist.get_world_size()
    parts = unsharded(made)
    plan = agreed_plan(parts, None, ranks)
    job = shard(made, plan, parts.task, rank_device())
    draw_weights(job.rows, job.initial, made.seed)
    sizes = made.data.batch_sizes(ranks)
    read = training_batches(parts.source, sizes, parts.features, rank=dist.get_rank(), ranks=ranks)
    batches = list(itertools.islice(pinned(read, job.device), 20))
    both = SimpleNamespace(plan=plan, job=job)
    by_hand(job, batches, 20)
    found: list[tuple[Spent, Spent]] = []
    for number in range(count):
        seconds: dict[str, Spent] = {}
        for name in ("hand", "ours") if number % 2 else ("ours", "hand"):
            dist.barrier()
            seconds[name] = by_hand(job, batches, steps) if name == "hand" else ours(both, batches, steps, made, folder)
        found.append((seconds["hand"], seconds["ours"]))
    return found


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = launch(
            "hand_written_loop:pairs",
            {"run": json.loads(json.dumps(RUN)), "count": words.pairs, "steps": words.steps, "folder": folder},
            ranks=words.ranks, timeout_s=3600,
        )[0]  # fmt: skip
    samples = 1024 * words.ranks * words.steps
    for (hand, hand_cpu), (mine, mine_cpu) in found:
        print(f"by hand {samples / hand:10,.0f} samples/s, recsmith {samples / mine:10,.0f}: {hand / mine:.3f}; "
              f"by seconds of processors {hand_cpu / mine_cpu:.3f}")  # fmt: skip
    for word, part in (("samples/s", 0), ("samples per second of processors", 1)):
        ratios = sorted(hand[part] / mine[part] for hand, mine in found)
        middle = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(f"recsmith / by hand, {word}: median {statistics.median(ratios):.3f}, middle half {middle[0]:.3f} to "
              f"{middle[1]:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
