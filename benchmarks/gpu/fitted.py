"""Fits the prices of cost model `fitted` to one half of an H100's samples; judges by the other half and by an H200.

    python benchmarks/gpu/fitted.py fit                # prices, as costs/fitted_kernels.py has them
    python benchmarks/gpu/fitted.py judge              # how far formulas are off; --write: into the cards of the GPUs

Learned are random groups of every other case, ranks of the sharding tasks 0, 2 and 4 of each row, and what
held_apart.py does not keep of production size. Nothing was fitted to the H200, which tells how prices scale; its cases
judge that judge on the H100, of sharding tasks 1 and 3. Groups of fewer than 300 ids do little but launch, and are left
out. Of relative errors the fit finds the least sum, not of squares, with prices of 0 or more; ranks of plans count as
much as random groups. Needs no GPU, and a few minutes.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from held_apart import split
from measured_plans import folder_of
from plan_samples import convert

from recsmith._types import Bools, Floats
from recsmith.clusters import Cluster
from recsmith.costs import cost_model
from recsmith.costs.analytic import LAUNCH_S
from recsmith.costs.fitted_kernels import BACKWARD, FORWARD, MEMORY, UPDATES, FittedKernels, Price
from recsmith.costs.neural.files import find_model, load_model, load_tensors, save_model
from recsmith.learning.costs import Groups, groups_of, read_groups
from recsmith.learning.costs.baselines import beside, cluster_of, problems_of
from recsmith.learning.preparation import non_negative_fit
from recsmith.measuring.about import load_about
from recsmith.measuring.samples import read_samples

TASKS = {"learn": (0, 2, 4), "judge": (1, 3)}  # of every row
CASES = Path("samples/h100-production")  # whose cases were measured on both GPUs
LEAST_IDS = 300.0  # of a group
ROUNDS, CLOSE = 20, 0.02  # of the fit; errors below count by their squares
DIGITS = 2  # of a price
UNIT = 1e-6  # seconds: it only brings prices and figures near each other
OPTIMIZERS = tuple(UPDATES)
MODELS = ("fitted", "analytic")
TERMS = 7  # of these models
HEADER = "| samples | groups | model | predicted / measured, median | off by, 90th percentile | forward | backward |"


@dataclass(frozen=True)
class Samples:
    """Groups of a GPU, by name of what they are; learned (N,): whether prices may be fitted to them."""

    name: str
    groups: Groups
    learned: Bools


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "judge"))
    parser.add_argument("--write", action="store_true", help="judge: put the errors into the cards of the GPUs")
    words = parser.parse_args()
    with TemporaryDirectory() as name:
        print("\n".join(fit(Path(name)) if words.what == "fit" else judge(Path(name), words.write)))


def samples(gpu: str, work: Path) -> Iterator[Samples]:
    """What was measured of a GPU; plans' ranks by their tasks, all else by its cases."""
    for name in (f"{gpu}", f"{gpu}-caches") if gpu == "h100" else (gpu,):
        groups = read(Path("samples") / name)
        yield Samples("random groups", groups, groups.case % 2 == 0)
    with folder_of(Path(f"samples/{gpu}/plans.tar.gz")) as folder:
        for part, tasks in TASKS.items():
            convert(folder, work / f"{gpu}-{part}", tasks)
            groups = read(work / f"{gpu}-{part}")
            yield Samples("ranks of sharding tasks", groups, np.full(len(groups), part == "learn"))
    home = Path(f"samples/{gpu}-production")
    split(home, work / gpu, CASES)
    for about in sorted(home.glob("*/about.json")):
        kind = "ranks of production jobs" if about.parent.name.startswith("planned") else "random, production size"
        if about.parent.name != "memory":
            groups = read(about.parent)
            yield Samples(kind, groups, np.isin(groups.case, read(work / gpu / about.parent.name).case))


def read(folder: Path) -> Groups:
    """The groups of one folder that do more than launch."""
    found, about = read_samples(folder), load_about(folder)
    groups = groups_of(found, about.seed, about.scale, about.planned)
    return groups.take(groups.summed(groups.ids) >= LEAST_IDS)


def device_of(gpu: str) -> Cluster:
    cluster = cluster_of(read_groups([Path(f"samples/{gpu}")])[2])
    assert cluster is not None
    return cluster


# --- the fit ---------------------------------------------------------------------------------------------------------


def fit(work: Path) -> Iterator[str]:
    """Prices of an H100, forward and backward."""
    chosen = list(samples("h100", work))
    cluster = device_of("h100")
    found: tuple[list[Floats], ...] = ([], [])
    seconds, ranks = list[Floats](), list[Bools]()
    for each in chosen:
        groups = each.groups.take(each.learned)
        for figures, of_groups in zip(found, figures_of(groups, cluster), strict=True):
            figures.append(of_groups)
        seconds.append(groups.seconds)
        ranks.append(np.full(len(groups), each.name.startswith("ranks")))
    of_ranks = np.concatenate(ranks)
    weight = np.where(of_ranks, (~of_ranks).sum() / of_ranks.sum(), 1.0)
    measured = np.concatenate(seconds)
    names = [Price(f"{word} of {name}", 0.0, MEMORY) for name in OPTIMIZERS for word in ("different row", "its byte")]
    for part, prices in enumerate((FORWARD, (*BACKWARD, *names))):
        launch, *fitted = robust_fit(np.concatenate(found[part]), measured[:, part], weight)
        yield f"launches {launch / LAUNCH_S:.1f}"
        yield from (f"{price.figure}: {seconds:.{DIGITS}g}" for price, seconds in zip(prices, fitted, strict=True))


def figures_of(groups: Groups, cluster: Cluster) -> tuple[Floats, Floats]:
    """Figures (N, 1 + f) of groups, one of launches first; the update's in columns of the group's optimizer."""
    forward = np.zeros((len(groups.owner), len(FORWARD)))
    backward = np.zeros((len(groups.owner), len(BACKWARD) + 2 * len(OPTIMIZERS)))
    for some, problem in problems_of(groups, cluster):
        modes, widths = np.arange(len(some)), problem.demand.dim[problem.modes.table]
        first, second = FittedKernels.of(problem).figures(modes, widths)
        forward[some], backward[some, : len(BACKWARD)] = first, second[:, :-2]
        place = len(BACKWARD) + 2 * OPTIMIZERS.index(problem.workload.optimizer)
        backward[some, place : place + 2] = second[:, -2:]
    ones = np.ones((len(groups), 1))
    return np.hstack([ones, groups.summed(forward)]), np.hstack([ones, groups.summed(backward)])


def robust_fit(figures: Floats, seconds: Floats, weight: Floats) -> Floats:
    """Prices of 0 or more whose relative errors have the least weighted sum."""
    relative = figures / seconds[:, None]
    scale = UNIT / np.maximum(np.median(relative, axis=0) + relative.mean(axis=0), 1e-300)
    scaled, counts = relative * scale / UNIT, np.sqrt(weight)
    for _ in range(ROUNDS):
        prices = non_negative_fit(scaled * counts[:, None], counts)
        counts = np.sqrt(weight / np.maximum(np.abs(scaled @ prices - 1), CLOSE))
    return prices * scale / UNIT


# --- the judgement ---------------------------------------------------------------------------------------------------


def judge(work: Path, write: bool) -> Iterator[str]:
    """A row for each kind of samples, and GPU, and model."""
    yield HEADER + "\n|" + "---|" * HEADER.count(" |")
    for gpu in ("h100", "h200"):
        cluster = device_of(gpu)
        parts = [(each.name, each.groups.take(~each.learned)) for each in samples(gpu, work) if not each.learned.all()]
        kinds = list(dict.fromkeys(name for name, _ in parts))
        said = {model: [seconds_of(model, some, cluster) for _, some in parts] for model in MODELS}
        for kind in (*kinds, "ranks"):
            for model, seconds in said.items():
                places = [i for i, (name, _) in enumerate(parts) if name.startswith(kind)]
                measured = np.concatenate([parts[i][1].seconds for i in places])
                yield row(f"{gpu.upper()}: {kind}", model, measured, np.concatenate([seconds[i] for i in places]))
        if write:
            measured = np.concatenate([some.seconds for _, some in parts])
            path = find_model(gpu)
            card = load_model(path)[1]
            found = card.beside | {"fitted": beside(measured, np.concatenate(said["fitted"]))}
            save_model(str(path), load_tensors(path)[0], replace(card, beside=found))


def seconds_of(name: str, groups: Groups, cluster: Cluster) -> Floats:
    """Seconds (N, 2) of groups by a cost model of formulas."""
    terms, evaluator = np.zeros((len(groups.owner), TERMS)), None
    for some, problem in problems_of(groups, cluster):
        evaluator = cost_model(name).compile(problem)
        terms[some] = evaluator.terms(np.arange(len(some)), problem.demand.dim[problem.modes.table])
    assert evaluator is not None
    return evaluator.head(groups.summed(terms))[:, :2]  # of all evaluators of a model on a device alike


def row(name: str, model: str, measured: Floats, predicted: Floats) -> str:
    ratios = predicted.sum(axis=1) / measured.sum(axis=1)
    middle, high = np.percentile(np.abs(ratios - 1), (50, 90))
    forward, backward = np.median(np.abs(predicted / measured - 1), axis=0)
    return (
        f"| {name} | {len(ratios):,} | {model} | {np.median(ratios):.2f} | {middle:.1%}, {high:.0%} "
        f"| {forward:.1%} | {backward:.1%} |"
    )


if __name__ == "__main__":
    main()
