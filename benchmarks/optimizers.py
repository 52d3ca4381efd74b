"""Second order for dense layers: what Shampoo costs and brings beside Adagrad and Adam.

    python benchmarks/optimizers.py rates       # operations a second of layers, products and roots: seconds
    python benchmarks/optimizers.py overhead    # CPU seconds of a step beside Adagrad and Adam, in pairs: minutes
    python benchmarks/optimizers.py state       # what each rank keeps on 1, 2 and 4 ranks
    python benchmarks/optimizers.py losses      # loss at equal steps, five seeds, four rates each: minutes, goes on

Tables of docs/optimizers.md.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from optimizer_jobs import CLICKS, Clicks, beside, mean_of

from recsmith.training import DenseOptimizer
from recsmith.training.optimizers.dense import dense_optimizer
from recsmith.training.systems.shampoo.blocks import ShampooSettings, blocks_of, owners

BATCH = 2048
BOTTOM, TOP = (13, 512, 256, 64, 16), (367, 512, 256, 1)
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
ADAGRAD_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
STEPS, SEEDS = 390, 5


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["rates", "overhead", "state", "losses"])
    parser.add_argument("--quick", action="store_true", help="little, to see that it runs")
    parser.add_argument("-o", "--output", default="bench/optimizers.json", help="what losses keeps, and goes on from")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.table == "losses":
        losses(arguments.quick, Path(arguments.output))
    else:
        {"rates": rates, "overhead": overhead, "state": state}[arguments.table](arguments.quick)
    return 0


def layers(*sizes: int) -> torch.nn.Sequential:
    """Linear layers with ReLUs between them, and none behind a last layer of one output."""
    made: list[torch.nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        made += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*(made[:-1] if sizes[-1] == 1 else made))


def networks() -> tuple[torch.nn.Module, torch.nn.Module]:
    """Bottom and top, the same each time."""
    torch.manual_seed(0)
    return layers(*BOTTOM), layers(*TOP)


def rates(quick: bool) -> None:
    """GFLOP/s on one core, and what a block costs beside its products."""
    bottom, top = networks()
    dense, joined = torch.randn(BATCH, BOTTOM[0]), torch.randn(BATCH, TOP[0])
    weights = sum(each.numel() for part in (bottom, top) for each in part.parameters() if each.dim() > 1)

    def passes() -> None:
        (bottom(dense).sum() + top(joined).sum()).backward()

    rounds = 1 if quick else 10
    print("| what | size | seconds | GFLOP/s |")
    print("|---|---|---|---|")
    _row("forward and backward", f"batch {BATCH:,}", seconds(passes, rounds), 6 * weights * BATCH)
    for m, n in ((512, 256), (512, 367)):
        _products(m, n, 4 * rounds)
    for size in (512, 256):
        factor = torch.randn(size, 2 * size)
        spent = seconds(partial(torch.linalg.eigh, factor @ factor.T), rounds)
        _row("root (20 d³ operations)", f"{size}", spent, 20 * size**3)
    small = [torch.nn.Parameter(torch.randn(8, 8)) for _ in range(20)]
    made = dense_optimizer(small, DenseOptimizer(name="shampoo"))
    for each in small:
        each.grad = torch.randn(8, 8)
    print(f"a block of 8 by 8: {seconds(made.step, 20 * rounds) / len(small) * 1e6:.0f} µs a step")


def _products(m: int, n: int, rounds: int) -> None:
    """A direction, and a gradient that statistics see."""
    gradient, left, right = torch.randn(m, n), torch.randn(m, m), torch.randn(n, n)

    def add() -> None:
        left.addmm_(gradient, gradient.T)
        right.addmm_(gradient.T, gradient)

    flops = 2 * m * n * (m + n)
    _row("direction", f"{m} x {n}", seconds(lambda: left @ gradient @ right, rounds), flops)
    _row("statistics", f"{m} x {n}", seconds(add, rounds), flops)


def _row(what: str, size: str, spent: float, flops: float) -> None:
    print(f"| {what} | {size} | {spent:.5f} | {flops / spent / 1e9:.0f} |", flush=True)


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """CPU seconds of one call, after one that is not counted."""
    work()
    begun = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - begun) / rounds


def overhead(quick: bool) -> None:
    """CPU seconds of fifty steps, with one computation of roots among them, in turns; how much more than Adagrad."""
    arms: dict[str, DenseOptimizer] = {
        "adagrad": DenseOptimizer(name="adagrad", learning_rate=0.01), "adam": DenseOptimizer(name="adam"),
        **{f"shampoo, blocks of {size}, {grafting}": DenseOptimizer(
            name="shampoo", arguments={"max_preconditioner_dim": size, "grafting": grafting})
           for size, grafting in ((512, "adagrad"), (512, "adam"), (256, "adagrad"), (256, "adam"), (128, "adagrad"))},
        "shampoo, blocks of 512, adagrad, statistics each step": DenseOptimizer(
            name="shampoo", arguments={"statistics_frequency": 1, "grafting": "adagrad"}),
    }  # fmt: skip
    turns = {name: Trained(optimizer) for name, optimizer in arms.items()}
    rounds, count = (1, 2) if quick else (6, 50)
    spent: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, trained in turns.items():
            took = trained.steps(count)
            if number:  # the first round has no roots in its steps before the last one
                spent[name].append(took)
    print("| optimizer | ms a step | more than adagrad | more than adam |")
    print("|---|---|---|---|")
    for name, mine in spent.items():
        more = [100 * (statistics.mean(a / b for a, b in zip(mine, spent[other], strict=True)) - 1)
                for other in ("adagrad", "adam")]  # fmt: skip
        print(f"| {name} | {1e3 * statistics.mean(mine):.1f} | {more[0]:+.1f} % | {more[1]:+.1f} % |")


class Trained:
    """The two networks on random samples, by an optimizer."""

    def __init__(self, optimizer: DenseOptimizer) -> None:
        self.bottom, self.top = networks()
        self.optimizer = dense_optimizer([*self.bottom.parameters(), *self.top.parameters()], optimizer)
        draws = torch.Generator().manual_seed(1)
        self.dense = torch.randn(BATCH, BOTTOM[0], generator=draws)
        self.pooled = torch.randn(BATCH, TOP[0] - BOTTOM[-1], generator=draws)
        self.labels = (torch.rand(BATCH, generator=draws) < 0.3).float()

    def steps(self, count: int) -> float:
        """CPU seconds of a step, the mean of so many."""
        begun = time.process_time()
        for _ in range(count):
            self.optimizer.zero_grad()
            logits = self.top(torch.cat([self.bottom(self.dense), self.pooled], 1))[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(logits, self.labels).backward()
            self.optimizer.step()
        return (time.process_time() - begun) / count


def state(quick: bool) -> None:
    """Bytes of state of the rank that keeps most, and that of one rank alone."""
    del quick
    shapes = [tuple(each.shape) for part in networks() for each in part.parameters()]
    print("| grafted from | ranks | most bytes of a rank | of one rank's | most work of a rank, of one rank's |")
    print("|---|---|---|---|---|")
    for grafting in ("adagrad", "adam"):
        settings = ShampooSettings(grafting=grafting)
        blocks = blocks_of(shapes, settings.max_preconditioner_dim)
        kept, work = [each.state_bytes(grafting) for each in blocks], [each.step_flops(settings) for each in blocks]
        for ranks in (1, 2, 4):
            owned = owners(blocks, ranks, settings)
            most = [max(sum(size for size, owner in zip(sizes, owned, strict=True) if owner == rank)
                        for rank in range(ranks)) for sizes in (kept, work)]  # fmt: skip
            print(f"| {grafting} | {ranks} | {most[0]:,} | {most[0] / sum(kept):.3f} | {most[1] / sum(work):.3f} |")


def losses(quick: bool, output: Path) -> None:
    """Log loss on other clicks after as many steps, and of the last tenth of training; what is kept is not redone."""
    found: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    arms = [("adagrad", rate, None) for rate in ADAGRAD_RATES] + [("adam", rate, None) for rate in RATES]
    arms += [("shampoo", rate, {"grafting": "adam"}) for rate in RATES]
    arms += [("shampoo", rate, {"grafting": "adagrad"}) for rate in ADAGRAD_RATES]
    for seed in range(1 if quick else SEEDS):
        clicks = None
        for name, rate, arguments in arms:
            key = f"{name}{'' if arguments is None else ' ' + arguments['grafting']}, {rate:g}/{seed}"
            if key in found:
                continue
            clicks = clicks or Clicks(CLICKS, seed, 4 if quick else STEPS, quick=quick)
            optimizer = DenseOptimizer(name=name, learning_rate=rate, arguments=arguments)
            begun = time.process_time()
            trained, test = clicks.train(optimizer)
            found[key] = {"train": trained, "test": test, "cpu_s": time.process_time() - begun}
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(found, indent=1))
    names = dict.fromkeys(key.rpartition("/")[0] for key in found)
    best = {kind: min((name for name in names if name.startswith(kind)), key=lambda name: mean_of(found, name, "test"))
            for kind in ("adagrad", "adam")}  # fmt: skip
    print("| optimizer, rate | seeds | loss, training | loss, test | beside best Adagrad | beside best Adam | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        less = [beside(found, name, best[kind], "test") for kind in ("adagrad", "adam")]
        means = [mean_of(found, name, key) for key in ("train", "test", "cpu_s")]
        seeds = sum(key.rpartition("/")[0] == name for key in found)
        print(f"| {name} | {seeds} | {means[0]:.5f} | {means[1]:.5f} | {less[0]} | {less[1]} | {means[2]:.1f} |")


if __name__ == "__main__":
    raise SystemExit(main())
