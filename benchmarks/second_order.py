"""DANCE and progressive L-BFGS: passes over a logistic problem and a DLRM's dense layers, and refits under drift.

    python benchmarks/second_order.py logistic   # 65,536 x 100 in float64: DANCE beside Newton-CG, L-BFGS beside SGD
    python benchmarks/second_order.py ranks      # the same iterates on 1, 2 and 4 ranks
    python benchmarks/second_order.py tune       # how logistic's first sample and beta were chosen: another seed
    python benchmarks/second_order.py layers     # dense layers of a DLRM: passes to Adam's loss, five seeds, goes on
    python benchmarks/second_order.py refit      # a frozen model under drift: NE of the next period, goes on
    python benchmarks/second_order.py refit_dense    # the same of all dense layers: minutes
    python benchmarks/second_order.py curve      # NE by damping, and of the one that is picked: a minute, goes on
    python benchmarks/second_order.py steps      # passes of steps of a run, and seconds of a pass beside a plain one

Tables of docs/optimizers.md.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from second_order_jobs import curve, dense_refitted, layers, refitted, steps

from recsmith.jobs.launch import launch
from recsmith.training.systems.second_order.dance import DanceSettings, dance
from recsmith.training.systems.second_order.flat import DampedLoss, FlatLayers
from recsmith.training.systems.second_order.progressive_lbfgs import ProgressiveLbfgs

SAMPLES, COLUMNS, PART = 65_536, 100, 4096
TUNED_ON, SEEDS = 0, (1, 2, 3)
GAMMAS = (0.5, 0.75)
FIRST, BETA, GROWTH = 4096, 0.4, 4.0  # of DANCE, by `tune`
BETA_DOUBLED = 0.6  # of DANCE whose samples double, as in the paper, by `tune`
BETA_ALL = {0.5: 0.8, 0.75: 0.6}  # of Newton-CG on all data, by `tune`
C, L2 = 0.1, 1e-4
SGD_RATES, SGD_BATCH = (1.0, 2.0, 4.0), 256
Part = tuple[torch.Tensor, torch.Tensor]


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "table", choices=["logistic", "ranks", "tune", "layers", "refit", "refit_dense", "curve", "steps"]
    )
    parser.add_argument("--quick", action="store_true", help="little, to see that it runs")
    parser.add_argument("-o", "--output", help="what logistic, layers and refit keep, and go on from")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kept = {"logistic": logistic, "layers": layers, "refit": refitted, "refit_dense": dense_refitted, "curve": curve}
    if arguments.table in kept:
        output = Path(arguments.output or f"bench/second_order_{arguments.table}.json")
        kept[arguments.table](arguments.quick, output)
        return 0
    {"ranks": ranks, "tune": tune, "steps": steps}[arguments.table](arguments.quick)
    return 0


def problem(seed: int, samples: int = SAMPLES) -> list[Part]:
    """Columns whose scales fall as 1 / sqrt(j), labels drawn from a linear teacher; in parts."""
    draws = torch.Generator().manual_seed(seed)
    scales = torch.arange(1, COLUMNS + 1, dtype=torch.float64) ** -0.5
    inputs = torch.randn(samples, COLUMNS, generator=draws, dtype=torch.float64) * scales
    teacher = torch.randn(COLUMNS, generator=draws, dtype=torch.float64) * 1.5
    labels = (torch.rand(samples, generator=draws, dtype=torch.float64) < torch.sigmoid(inputs @ teacher)).double()
    return list(zip(inputs.split(PART), labels.split(PART), strict=True))


def logistic_losses(parameters: Any, part: Part) -> torch.Tensor:
    """A loss for each sample."""
    inputs, labels = part
    return torch.nn.functional.binary_cross_entropy_with_logits(inputs @ parameters["w"], labels, reduction="none")


class Watched(FlatLayers):
    """Layers of a logistic model that remember where they were put, and after how many samples."""

    def __init__(self) -> None:
        super().__init__({"w": torch.nn.Parameter(torch.zeros(COLUMNS, dtype=torch.float64))}, logistic_losses)
        self.seen: list[tuple[float, torch.Tensor]] = []

    def put(self, weights: torch.Tensor) -> None:
        """Remember them."""
        super().put(weights)
        self.seen.append((self.visited, weights.clone()))

    def passes(self, damped: DampedLoss, bar: float, samples: int) -> float:
        """Passes over so many samples until a loss was at most `bar`; infinite where it never was."""
        kept = self.visited
        found = next((visited for visited, at in self.seen if damped.value(at) <= bar), float("inf"))
        self.visited = kept
        return found / samples


def solved(parts: list[Part], damping: float) -> float:
    """The least damped loss, by Newton steps with the whole Hessian, to a gradient of 1e-9."""
    inputs, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    weights, norm = torch.zeros(COLUMNS, dtype=torch.float64), float("inf")
    for _ in range(30):
        chances = torch.sigmoid(inputs @ weights)
        slope = inputs.T @ (chances - labels) / len(labels) + damping * weights
        norm = float(slope.norm())
        if norm < 1e-9:
            break
        bent = (inputs * (chances * (1 - chances))[:, None]).T @ inputs / len(labels)
        weights -= torch.linalg.solve(bent + damping * torch.eye(COLUMNS, dtype=torch.float64), slope)
    assert norm < 1e-9, norm
    return DampedLoss(_at(weights), parts, damping).value(weights)


def _at(weights: torch.Tensor) -> FlatLayers:
    return FlatLayers({"w": torch.nn.Parameter(weights.clone())}, logistic_losses)


def dance_passes(parts: list[Part], gamma: float, first: int, beta: float, best: float, growth: float = 2.0) -> float:
    """Passes until the loss of all samples, damped by c V_N, is within V_N of its least."""
    settings = DanceSettings(gamma=gamma, beta=beta, c=C, newton=40, inner=100, growth=growth)
    layers, samples = Watched(), sum(len(part[1]) for part in parts)
    known = settings.known_to(samples)
    dance(layers, parts, [len(part[1]) for part in parts], first=first, settings=settings)
    return layers.passes(DampedLoss(layers, parts, C * known), best + known, samples)


def tune(quick: bool) -> None:
    """Passes of a grid on a seed that is not reported."""
    parts = problem(TUNED_ON, 8192 if quick else SAMPLES)
    samples = sum(len(part[1]) for part in parts)
    for gamma in GAMMAS[:2]:
        best = solved(parts, C * samples**-gamma)
        for first, growth in ((PART, 2.0), (PART, 4.0), (samples, 2.0)):
            found = [dance_passes(parts, gamma, first, beta, best, growth) for beta in (0.2, 0.4, 0.6, 0.8)]
            print(gamma, first, growth, " ".join(f"{each:.2f}" for each in found), flush=True)


def logistic(quick: bool, output: Path) -> None:
    """Both comparisons, seed by seed; what the file holds is not redone."""
    found: dict[str, dict[str, float]] = json.loads(output.read_text()) if output.exists() else {}
    for seed in SEEDS[: 1 if quick else None]:
        row = found.setdefault(str(seed), {})
        for _ in _filled(row, problem(seed, 8192 if quick else SAMPLES)) if len(row) < 8 + len(SGD_RATES) else ():
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(found, indent=1))
    print("| passes until | " + " | ".join(f"seed {seed}" for seed in found) + " | mean |")
    print("|---|" + "---|" * (len(found) + 1))
    rows = list(found.values())
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(f"| {name} | " + " | ".join(f"{each:,.2f}" for each in values) + f" | {statistics.mean(values):,.2f} |")


def _filled(row: dict[str, float], parts: list[Part]) -> Iterator[None]:
    """Passes of every method on a problem, where the row has none yet; a pause after each."""
    samples = sum(len(part[1]) for part in parts)
    best = solved(parts, L2)
    if "progressive L-BFGS" not in row:
        row["progressive L-BFGS"], sizes = lbfgs_passes(parts, best)
        row["its last sample"] = sizes[-1]
        yield
    for rate in SGD_RATES:
        if f"SGD, rate {rate:g}" not in row:
            row[f"SGD, rate {rate:g}"] = sgd_passes(parts, best, rate)
            yield
    for gamma in GAMMAS:
        ways = {
            f"DANCE, gamma {gamma:g}": (FIRST, BETA, GROWTH),
            f"DANCE, doubling, gamma {gamma:g}": (FIRST, BETA_DOUBLED, 2.0),
            f"Newton-CG, gamma {gamma:g}": (samples, BETA_ALL[gamma], 2.0),
        }
        missing = {name: way for name, way in ways.items() if name not in row}
        best = solved(parts, C * samples**-gamma) if missing else 0.0
        for name, (first, beta, growth) in missing.items():
            row[name] = dance_passes(parts, gamma, first, beta, best, growth)
            yield


def lbfgs_passes(parts: list[Part], best: float, first: int = 512) -> tuple[float, list[int]]:
    """(passes to 1e-3 of the least loss, the sizes of samples): each sample is drawn anew."""
    inputs, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    layers, method, wanted, sizes = Watched(), ProgressiveLbfgs(), first, list[int]()
    draws, samples = torch.Generator().manual_seed(0), len(labels)
    whole = DampedLoss(layers, parts, L2)
    while layers.visited < 20 * samples:
        wanted = min(wanted, samples)
        picked = torch.randperm(samples, generator=draws)[:wanted]
        part = (inputs[picked], labels[picked])
        tested = (part[0][:512], part[1][:512])
        sizes.append(wanted)
        wanted = method.step(DampedLoss(layers, [part], L2), wanted, [tested], samples).wanted
        if layers.passes(whole, best + 1e-3, samples) < float("inf"):
            break
        layers.seen.clear()
    return layers.visited / samples, sizes


def sgd_passes(parts: list[Part], best: float, rate: float, most: float = 40.0) -> float:
    """Passes to 1e-3 of the least loss of SGD at a constant rate, looked at each half pass."""
    inputs, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    layers, draws, samples = Watched(), torch.Generator().manual_seed(0), len(labels)
    whole, weights, steps = DampedLoss(layers, parts, L2), torch.zeros(COLUMNS, dtype=torch.float64), 0
    while steps * SGD_BATCH < most * samples:
        for picked in torch.randperm(samples, generator=draws).split(SGD_BATCH):
            slope = inputs[picked].T @ (torch.sigmoid(inputs[picked] @ weights) - labels[picked]) / len(picked)
            weights, steps = weights - rate * (slope + L2 * weights), steps + 1
            if steps % (samples // SGD_BATCH // 2) == 0 and whole.value(weights) <= best + 1e-3:
                return steps * SGD_BATCH / samples
    return float("inf")


def on_rank(samples: int) -> dict[str, Any]:
    """Weights of both methods on this rank's share of each part."""
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    return iterates(problem(SEEDS[0], samples), rank, world)


def iterates(parts: list[Part], rank: int, world: int) -> dict[str, Any]:
    """Weights after DANCE and after ten steps of L-BFGS, where a rank has each world-th sample of every part."""
    mine = [(inputs[rank::world], labels[rank::world]) for inputs, labels in parts]
    layers = Watched()
    dance(layers, mine, [len(part[1]) for part in parts], first=2 * PART, settings=DanceSettings(gamma=0.75))
    other, method = Watched(), ProgressiveLbfgs()
    taken = 1
    for _ in range(10):
        size = sum(len(part[1]) for part in parts[:taken])
        wanted = method.step(DampedLoss(other, mine[:taken], L2), size, mine[:1]).wanted
        taken = max(taken, min(-(-wanted // PART), len(parts)))
    return {"dance": layers.weights().tolist(), "lbfgs": other.weights().tolist()}


def ranks(quick: bool) -> None:
    """The most that a weight differs from that of one rank."""
    torch.set_num_threads(1)
    samples = 4096 if quick else 16_384
    alone = iterates(problem(SEEDS[0], samples), 0, 1)
    print("| ranks | DANCE | progressive L-BFGS |")
    print("|---|---|---|")
    for count in (2,) if quick else (2, 4):
        found = launch("second_order:on_rank", {"samples": samples}, ranks=count)
        far = [max(abs(a - b) for each in found for a, b in zip(each[name], alone[name], strict=True))
               for name in ("dance", "lbfgs")]  # fmt: skip
        print(f"| {count} | {far[0]:.1e} | {far[1]:.1e} |", flush=True)
    assert json.dumps(alone)


if __name__ == "__main__":
    raise SystemExit(main())
