"""Fewer numbers on the wire: bytes counted on links, and seconds of a step on links of a known rate.

    python benchmarks/thresholding.py bytes     # a plain PyTorch model: bytes of a rank, and the law that they follow
    python benchmarks/thresholding.py steps     # a whole job on two hosts, at 100, 200 and 400 Mbit/s
    python benchmarks/thresholding.py cost      # what measuring and applying thresholds takes
    python benchmarks/thresholding.py boundary  # a model whose layers are split between ranks, in one process
    python benchmarks/thresholding.py auc       # of `recsmith bench train benchmarks/thresholding.yaml -o FOLDER`
    python benchmarks/thresholding.py warm_up   # of thresholding_warm_up.yaml, likewise

Tables of docs/thresholding.md. The first two need what two_networks.py needs, and say so where it is
missing. The last three keep what was trained in --folder and go on from there.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from thresholding_scores import show_progress, show_scores, show_warm_up
from torch import nn
from two_networks import INTERFACE, run_ranks, sent_bytes, two_networks, why_not

from recsmith.training.job.models import unsharded
from recsmith.training.job.plan import plan_here
from recsmith.training.job.sharded import numbers_across
from recsmith.training.results.variants import TrainBench, bench_train, load_bench
from recsmith.training.run import load_run
from recsmith.training.systems.thresholds.deciding import decided

HERE = Path(__file__).parent
SHARES = (0.02, 0.005, 0.001)
WARM, COUNTED, BATCH = 300, 200, 64  # steps before bytes are counted, and while they are; samples of a rank
LAYERS = (256, 2048, 384, 1)  # of the plain model: 1.3 million weights
SEEDS, SPLIT_STEPS = (0, 1, 2), 700  # of models with split layers
RATES = ("100mbit", "200mbit", "400mbit")
STEPS = 16  # of a job whose steps are timed; the first line of its log is left out
WIDE = "model.top=[2048,512]"
HALVES = "{name: 'thresholding_parts:Halves'}"
FEW = "name: thresholded, dense: 0.005, values: bf16"
JOBS = {  # the first three are what the others are compared with
    "fp32": [],
    "fp16 codecs": ["comms.forward=fp16", "comms.backward=fp16"],
    "fp16 codecs, fp16 gradients": [f"comms={HALVES}"],
    "0.5 % of gradients": [f"comms={{{FEW}}}"],
    "0.5 %, fp16 codecs": [f"comms={{{FEW}, forward: fp16, backward: fp16}}"],
    "0.5 %, pooled 2x": [f"comms={{{FEW}, pooled: 0.667}}"],
}


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["bytes", "steps", "cost", "boundary", "auc", "warm_up", "rank"])
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help="of trainings that are compared (bench/thresholding, bench/warm-up)")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    arguments = parser.parse_args()
    if arguments.table == "rank":
        as_rank(json.loads(arguments.settings))
        return 0
    if arguments.table in ("bytes", "steps") and (reason := why_not("1mbit")) is not None:
        print(f"two networks cannot be made here: {reason}")
        return 1
    if arguments.table == "boundary":
        compare_boundary(Path(arguments.folder or "bench/boundary"), arguments.quick)
    elif arguments.table == "auc":
        bench = load_bench(HERE / "thresholding.yaml")
        folder = Path(arguments.folder or "bench/thresholding")
        show_scores(list(bench.variants), bench.seeds, folder, Path(bench.run))
        show_progress(list(bench.variants), bench.seeds, folder)
    elif arguments.table == "warm_up":
        show_warm_up(load_bench(HERE / "thresholding_warm_up.yaml"), Path(arguments.folder or "bench/warm-up"))
    else:
        {"bytes": count_bytes, "steps": time_steps, "cost": time_thresholds}[arguments.table](arguments.quick)
    return 0


def count_bytes(quick: bool) -> None:
    """Bytes that a rank sends in a step of data parallelism, of every share, on two hosts and on one of four ranks."""
    warm, counted = (20, 20) if quick else (WARM, COUNTED)
    print("| ranks | share wanted | values | share sent | bytes a step and rank | times fewer | law | off |")
    print("|---|---|---|---|---|---|---|---|")
    with two_networks() as hosts:
        for ranks, ranks_per_host, place in ((2, 1, hosts), (4, 4, hosts[:1])):
            plain = 0.0
            for share, values in ((None, "fp32"), *((each, kind) for each in SHARES for kind in ("fp32", "bf16"))):
                settings = {"share": share, "values": values, "warm": warm, "counted": counted, "ranks": ranks,
                            "interface": INTERFACE if ranks_per_host == 1 else "lo"}  # fmt: skip
                said = said_by_rank_0(place, settings, ranks_per_host)
                if share is None:
                    plain = said["bytes"]
                    print(f"| {ranks} | all | fp32 | 100 % | {plain:,.0f} | 1 | | |", flush=True)
                    continue
                fewer, entry = plain / said["bytes"], {"fp32": 6, "bf16": 4}[values]
                law = 8 / entry / (said["sent"] * ranks)
                print(
                    f"| {ranks} | {share:.1%} | {values} | {said['sent']:.2%} | {said['bytes']:,.0f} | {fewer:.0f} "
                    f"| {law:.0f} | {fewer / law - 1:+.0%} |",
                    flush=True,
                )


def said_by_rank_0(hosts: Sequence[Any], settings: dict[str, Any], ranks_per_host: int) -> dict[str, Any]:
    """Run this script as every rank of a job; what its first rank wrote down."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said.json"
        command = [sys.executable, __file__, "rank", "--settings", json.dumps({**settings, "file": str(file)})]
        interface = {"GLOO_SOCKET_IFNAME": settings["interface"]}
        if settings["interface"] == "lo":
            interface |= {"MASTER_ADDR": "127.0.0.1"}
        if run_ranks(hosts, command, ranks_per_host, environment=interface):
            sys.exit("a rank failed")
        return json.loads(file.read_text())


def as_rank(settings: dict[str, Any]) -> None:
    """Train a plain model by DistributedDataParallel, and count the bytes that leave this host meanwhile."""
    from recsmith.training.systems.thresholds.dense import DenseThresholds
    from recsmith.training.systems.thresholds.settings import Thresholded

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wide = [nn.Sequential(nn.Linear(*sizes), nn.ReLU()) for sizes in pairwise(LAYERS[:-1])]
    model = nn.Sequential(*wide, nn.Linear(*LAYERS[-2:]))
    planted = torch.randn(LAYERS[0])
    whole, hook = nn.parallel.DistributedDataParallel(model), None
    if settings["share"] is not None:
        hook = DenseThresholds(Thresholded(dense=settings["share"], values=settings["values"]), model)
        whole.register_comm_hook(*hook.hook())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    numbers = torch.Generator().manual_seed(dist.get_rank())

    def train(steps: int) -> None:
        for _ in range(steps):
            columns = torch.randn(BATCH, LAYERS[0], generator=numbers)
            wanted = (columns @ planted > 0).float()[:, None]
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(whole(columns), wanted).backward()
            optimizer.step()

    train(settings["warm"])
    before, sent = left_host(settings["interface"]), numbers_sent(hook)
    train(settings["counted"])
    dist.barrier()
    if dist.get_rank() == 0:
        here = settings["ranks"] if settings["interface"] == "lo" else 1  # ranks whose bytes leave by it
        size = sum(each.numel() for each in model.parameters())
        said = {
            "bytes": (left_host(settings["interface"]) - before) / settings["counted"] / here,
            "sent": (numbers_sent(hook) - sent) / settings["counted"] / size,
        }
        Path(settings["file"]).write_text(json.dumps(said))


def numbers_sent(hook: Any) -> float:
    """Numbers that a hook has sent so far."""
    if hook is None:
        return 0.0
    return sum(each.sent * max(1.0, hook.settings.dense * each.left.numel()) for each in hook.of.values())


def left_host(interface: str) -> int:
    """Bytes that this network namespace has sent by an interface."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith(interface))
    return int(line.partition(":")[2].split()[8])


def time_steps(quick: bool) -> None:
    """Seconds and bytes of a step of a whole job on two hosts, of every form of messages, in turn."""
    steps, rounds = (6, 1) if quick else (STEPS, 2)
    show_predicted(RATES)
    print("\n| link | what crosses | a step | of two jobs | bytes a step and host | shorter than "
          + " | than ".join(list(JOBS)[:3]) + " |\n|" + "---|" * 8)  # fmt: skip
    for rate in RATES[: 1 if quick else None]:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in JOBS}
        for number in range(rounds):
            for name in list(JOBS)[:: -1 if number % 2 else 1]:
                found[name].append(a_step(JOBS[name], rate, steps))
        middle = {name: statistics.fmean(seconds for seconds, _ in each) for name, each in found.items()}
        for name, each in found.items():
            both = " to ".join(f"{seconds * 1e3:.0f}" for seconds in sorted(seconds for seconds, _ in each))
            shorter = [f"{1 - middle[name] / middle[other]:.0%}" for other in list(JOBS)[:3]]
            sent = f"{statistics.fmean(sent for _, sent in each):,.0f}"
            print(f"| {rate} | {name} | {middle[name] * 1e3:.0f} ms | {both} | {sent} | {' | '.join(shorter)} |",
                  flush=True)  # fmt: skip


def show_predicted(rates: Sequence[str]) -> None:
    """What `dense: auto` says beforehand, where it is told the rate of the link."""
    run = load_run(str(HERE / "thresholding_run.yaml"), ("ranks=2", WIDE))
    parts = unsharded(run)
    plan = plan_here(parts, 2, 1)
    numbers, comms = numbers_across(parts.task, plan), {"name": "thresholded", "dense": "auto", "values": "bf16"}
    for rate in rates:
        links = replace(plan.cluster.links, inter_host_bandwidth=float(rate.removesuffix("mbit")) * 1e6 / 8)
        slow = replace(plan, cluster=replace(plan.cluster, links=links))
        print(f"{rate}: {decided(comms, slow, numbers)[1][0]}")


def a_step(settings: list[str], rate: str, steps: int) -> tuple[float, float]:
    """(seconds, bytes) of a job's steps: the median of its lines, and what the second host sent; in its own folder.

    Bytes are those of the whole job, its start too, divided by its steps. The first host also sends weights at the
    start, so it is not the one that is looked at.
    """
    with tempfile.TemporaryDirectory() as folder, two_networks(rate) as hosts:
        words = ["ranks=null", f"output={folder}/out", f"steps={steps}", "metrics.every=2", "data.test=null",
                 WIDE, *settings]  # fmt: skip
        sets = [word for each in words for word in ("--set", each)]
        run = [str(HERE / "thresholding_run.yaml"), *sets]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        before = sent_bytes(hosts)[1]
        command = [sys.executable, "-W", "ignore", "-m", "recsmith", "train", *run]
        if run_ranks(hosts, command, environment={"PYTHONPATH": path}):
            sys.exit(f"a job failed: {settings}")
        sent = (sent_bytes(hosts)[1] - before) / steps
        events = [json.loads(line) for line in Path(folder, "out", "log.jsonl").read_text().splitlines()]
    return statistics.median([event["step_s"] for event in events if event["event"] == "train"][1:]), sent


def time_thresholds(quick: bool) -> None:
    """CPU seconds of one thread for the numbers of a large layer: choosing them, and measuring their threshold."""
    from recsmith.training.systems.thresholds.dense import DenseThresholds, decoded, encoded, threshold_of
    from recsmith.training.systems.thresholds.settings import Thresholded

    torch.set_num_threads(1)
    hook, rounds = DenseThresholds(Thresholded(), nn.Linear(2, 2)), 3 if quick else 50
    print("| numbers | choosing, a number | message and sum, a number | a threshold | a step's, renewed each 512 |")
    print("|---|---|---|---|---|")
    for size in (100_000, 1_000_000, 8_000_000):
        gradient = torch.randn(size, generator=torch.Generator().manual_seed(0))

        def whole(at: torch.Tensor, values: torch.Tensor, size: int = size) -> None:
            places, numbers = decoded(encoded(at, values, size), torch.float32, size)
            torch.zeros(size).index_add_(0, places, numbers).div_(2)

        at = torch.arange(0, size, 200)
        choosing = seconds(lambda g=gradient: hook.chosen(str(len(g)), g), rounds)
        rest = seconds(lambda at=at, g=gradient: whole(at, g[at]), rounds)
        one = seconds(lambda g=gradient: threshold_of(g, 0.005), rounds)
        print(f"| {size:,} | {choosing / size * 1e9:.1f} ns | {rest / size * 1e9:.1f} ns | {one * 1e3:.1f} ms "
              f"| {one / 512 * 1e6:.0f} µs |", flush=True)  # fmt: skip


def seconds(work: Callable[[], object], rounds: int) -> float:
    """CPU seconds of a call: the median of many."""
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return statistics.median(found)


def compare_boundary(folder: Path, quick: bool) -> None:
    """AUC of a model whose dense layers are split between two ranks, by the share of activations that crosses."""
    from thresholding_parts import SHARES_OF_ACTIVATIONS

    bench = TrainBench(
        run=str(HERE / "thresholding_run.yaml"),
        variants={
            f"{share:.3g} of activations": (
                f"model.arguments={{share: {share}}}", "model.name=thresholding_parts:split_layers", "ranks=1",
                *(("steps=40", "metrics.every=20") if quick else (f"steps={SPLIT_STEPS}", "metrics.every=100")),
            )
            for share in SHARES_OF_ACTIVATIONS
        },
        seeds=SEEDS[: 1 if quick else None],
    )  # fmt: skip
    bench_train(bench, folder, on_progress=lambda line: print(line, file=sys.stderr))
    show_scores(list(bench.variants), bench.seeds, folder, HERE / "thresholding_run.yaml")


if __name__ == "__main__":
    sys.exit(main())
