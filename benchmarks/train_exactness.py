"""Sharding changes nothing: losses of 100 steps of every sharding type beside those of the unsharded model.

python benchmarks/train_exactness.py                     # 1, 2 and 4 ranks; and four as two hosts of two
python benchmarks/train_exactness.py --jobs 2 4 2x2net   # some of them
python benchmarks/train_exactness.py --quick             # 10 steps

2x2net: two hosts of two ranks, each host in a network namespace of its own, joined by veth devices (root only), started
by torchrun with --nnodes 2. 2x2: the same on one network. Types that mean something on several hosts alone (HOSTS) are
left out elsewhere. Where namespaces are not allowed, that job is skipped with the reason. The unsharded model trains in
one process with torch.optim, on the same global batches.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from two_networks import INTERFACE, two_networks, why_not

import recsmith
from recsmith.jobs.launch import launch
from recsmith.training import (
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    run_from_raw,
    run_to_raw,
)

STEPS, BATCH = 100, 240  # of all ranks: divisible by 1 to 6
TYPES = ("table_wise", "column_wise", "row_wise", "data_parallel", "table_row_wise", "table_column_wise", "grid_shard")
HOSTS = ("table_row_wise", "table_column_wise", "grid_shard")  # types that mean something on several hosts
SPLIT = ("column_wise", "table_column_wise", "grid_shard")  # types of column pieces
PORT, TIMEOUT_S = 29_500, 1200.0  # of the first host of two, in a network of its own; seconds of a job
FEATURES = [
    {"name": "a", "num_embeddings": 1000},
    {"name": "b", "num_embeddings": 5003, "pooling_factor": 3, "lengths": "poisson"},
    {"name": "c", "num_embeddings": 211},
]
DATA = {"format": "generator", "seed": 7, "num_samples": 200_000, "dense": 4, "features": FEATURES}
DIM = 32


def a_run(output: Path, ranks: int, plan: str = "auto", *, steps: int = STEPS) -> Run:
    return Run(
        data=RunData(train=DATA, global_batch_size=BATCH),
        model=RunModel(embedding_dim=DIM),
        output=str(output),
        plan=plan,
        ranks=ranks,
        steps=steps,
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        checkpoint=None,
        metrics=RunMetrics(every=1),
    )


def losses_of(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def unsharded(run: dict[str, Any]) -> list[float]:
    """Losses of the model with plain tables and torch.optim in one process."""
    import torch

    from recsmith.scoring.predictions import ScoredLabels, Window
    from recsmith.training.batches import training_batches
    from recsmith.training.job.models import build_task
    from recsmith.training.job.sharded import draw_weights
    from recsmith.training.optimizers.building import sparse_arguments, table_class
    from recsmith.training.sources import open_source
    from recsmith.training.stores.device import DeviceRows
    from recsmith.training.tables.plain import features_of, initial_weights_of

    made = run_from_raw(run, "run")
    source = open_source(made)
    task = build_task(made.model, source.schema, made.seed, tables_on="cpu")
    draw_weights(DeviceRows(task), initial_weights_of(task), made.seed)
    tables = [parameter for name, parameter in task.named_parameters() if "embedding_bags" in name]
    dense = [parameter for name, parameter in task.named_parameters() if "embedding_bags" not in name]
    sparse = made.optimizers.sparse
    optimizers = [
        table_class(sparse.name)(tables, **sparse_arguments(sparse)),
        torch.optim.Adam(dense, lr=made.optimizers.dense.learning_rate),
    ]
    batches = training_batches(source, made.data.batch_sizes(1), features_of(task), rank=0, ranks=1)
    losses: list[float] = []
    for _ in range(made.steps or 0):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss, (_, logits, labels, _) = task(next(batches))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        window = Window(logits.device, ScoredLabels(("label",)))
        window.add(logits, labels)
        losses.append(window.scores().logloss or 0.0)
    return losses


def plan_of(kind: str, ranks: int, hosts: int, folder: Path) -> str:
    tables = [
        {"name": each["name"], "num_embeddings": each["num_embeddings"], "embedding_dim": DIM,
         "pooling_factor": each.get("pooling_factor", 1)}
        for each in FEATURES
    ]  # fmt: skip
    workload, rules = folder / "tables.json", folder / "rules.json"
    head = {"schema": "recsmith/workload/1", "batch_size": BATCH // ranks, "optimizer": "adagrad"}
    workload.write_text(json.dumps({**head, "tables": tables}))
    rule: dict[str, Any] = {"tables": "*", "sharding_types": [kind]}
    if kind in SPLIT:
        rule["widths"] = [DIM // 2]  # or a plan has tables of one piece, which are sharded as table_wise ones are
    rules.write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": [rule]}))
    plan = recsmith.plan(workload, f"cpu:{ranks // hosts}x{hosts}", constraints=rules).plan
    recsmith.save_plan(plan, folder / "plan.json")
    return str(folder / "plan.json")


@dataclass(frozen=True)
class Job:
    """How many ranks train, on how many hosts, and whether each host has a network of its own."""

    ranks: int
    hosts: int = 1
    networks: bool = False

    @classmethod
    def of(cls, word: str) -> "Job":
        """The job of a word: '4' ranks; '2x2', ranks per host and hosts; '2x2net', each on its own network."""
        each, _, hosts = word.removesuffix("net").partition("x")
        return cls(int(each) * int(hosts or 1), int(hosts or 1), word.endswith("net"))

    def __str__(self) -> str:
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        return f"{self.ranks} ranks{hosts}{', each with its network' if self.networks else ''}"


def train_all(runs: list[dict[str, Any]]) -> list[str | None]:
    """Train runs one after another on this rank of a job; what refused each of them, in words."""
    from recsmith.training.rank import train_on_rank

    said: list[str | None] = []
    for run in runs:
        try:
            train_on_rank(run)
            said.append(None)
        except recsmith.RecSmithError as error:
            said.append(str(error).splitlines()[-1])
    return said


def as_rank(runs: Path) -> None:
    """A rank under torchrun: trains the runs of a file."""
    from recsmith.jobs.worker import join, leave

    join()
    said = train_all(json.loads(runs.read_text()))
    if os.environ["RANK"] == "0":
        runs.with_name("said.json").write_text(json.dumps(said))
    leave()


def on_two_networks(runs: list[dict[str, Any]], ranks_per_host: int, folder: Path) -> list[str | None]:
    """Start torchrun once in each of two network namespaces, and wait for both."""
    (folder / "runs.json").write_text(json.dumps(runs))
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": INTERFACE, "TP_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}
    with two_networks() as hosts:
        agents = [
            subprocess.Popen(
                [*host.enter, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2",
                 "--node-rank", str(number), "--nproc-per-node", str(ranks_per_host),
                 "--master-addr", hosts[0].address, "--master-port", str(PORT),
                 __file__, "--as-rank", str(folder / "runs.json")],
                env=environment, stdout=(folder / f"host-{number}.txt").open("wb"), stderr=subprocess.STDOUT,
            )
            for number, host in enumerate(hosts)
        ]  # fmt: skip
        try:
            failed = [number for number, agent in enumerate(agents) if agent.wait(TIMEOUT_S)]
        finally:
            for agent in agents:
                agent.terminate()
                agent.wait()
    if failed:
        sys.exit((folder / f"host-{failed[0]}.txt").read_text()[-3000:])
    return json.loads((folder / "said.json").read_text())


def compare(job: Job, types: list[str], reference: list[float], folder: Path) -> None:
    """Train every type in one job, and print how far its losses are from those of the unsharded model."""
    reason = why_not() if job.networks else None
    if reason is not None:
        print(f"{job}: skipped, {reason}", flush=True)
        return
    kinds = [kind for kind in types if job.hosts > 1 or kind not in HOSTS]
    outputs = [folder / kind for kind in kinds]
    for output in outputs:
        output.mkdir(parents=True)
    runs = [
        run_to_raw(a_run(output, job.ranks, plan_of(kind, job.ranks, job.hosts, output), steps=len(reference)))
        for kind, output in zip(kinds, outputs, strict=True)
    ]
    if job.networks:
        said = on_two_networks(runs, job.ranks // job.hosts, folder)
    else:
        said = launch(
            "train_exactness:train_all", {"runs": runs}, ranks=job.ranks, hosts=job.hosts, timeout_s=TIMEOUT_S
        )[0]
    for kind, output, problem in zip(kinds, outputs, said, strict=True):
        if problem:
            print(f"{kind:18} {job}: {problem[:150]}", flush=True)
            continue
        found = losses_of(output)
        apart = max(abs(one / other - 1) for one, other in zip(found, reference, strict=True))
        print(f"{kind:18} {job}: {len(found)} steps, largest relative difference {apart:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", default=["1", "2", "4", "2x2", "2x2net"])
    parser.add_argument("--types", nargs="*", default=list(TYPES))
    parser.add_argument("--quick", action="store_true", help="10 steps")
    parser.add_argument("--as-rank", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.as_rank:
        as_rank(words.as_rank)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = 10 if words.quick else STEPS
        made = run_to_raw(a_run(folder, 1, steps=steps))
        reference = launch("train_exactness:unsharded", {"run": made}, ranks=1)[0]
        print(f"unsharded: loss {reference[0]:.6f} at step 1, {reference[-1]:.6f} at step {steps}", flush=True)
        for word in words.jobs:
            compare(Job.of(word), words.types, reference, folder / word)


if __name__ == "__main__":
    main()
