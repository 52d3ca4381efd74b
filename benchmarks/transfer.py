"""What a learned cost model is worth on another processor: the table of docs/learning.md.

    recsmith measure compute --hardware cpu --budget 30m -o here
    python benchmarks/transfer.py --data here --start cpu

Judged on a tenth of the cases, which no row trains on: the model as it is, times the one factor that fits the samples
best; a model trained on so many samples alone; and one whose training starts from the given model. Medians of three
splits.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural.files import CELLS, find_model, load_model, load_tensors, weights_of
from recsmith.learning.costs import Groups, noise_floor, read_groups
from recsmith.learning.costs.learn import predict
from recsmith.learning.costs.training import CostRecipe, train
from recsmith.learning.preparation import held_out, split
from recsmith.measuring.about import locate

SEEDS = (0, 1, 2)
COUNTS = (100, 400)


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge a learned cost model on another processor.")
    parser.add_argument("--data", required=True, help="folder of measurements")
    parser.add_argument("--start", required=True, help="model, by name or file")
    parser.add_argument("--epochs", type=int, default=250)
    options = parser.parse_args()
    groups, left_out, origin = read_groups([locate(options.data)])
    apart = noise_floor(groups)
    print(f"{origin.device}; {len(groups):,} groups, {left_out:,} left out; noise floor {np.median(apart):.1%} median, "
          f"{apart.mean():.1%} mean of {len(apart)} pairs\n")  # fmt: skip
    print("| samples | model | median | mean | tau |")
    print("|---|---|---|---|---|")
    for count in (*(each for each in COUNTS if each < 0.8 * len(groups)), len(groups)):
        scores = np.array([list(_scores(groups, count, seed, options)) for seed in SEEDS])  # (seeds, models, 3)
        used = min(count, int(split(groups.case, 0)[0].sum()))
        for name, (median, mean, tau) in zip(_MODELS, np.median(scores, axis=0).tolist(), strict=True):
            print(f"| {used:,} | {name} | {median:.1%} | {mean:.1%} | {tau:.3f} |", flush=True)


_MODELS = ("as it is, times one factor", "trained on these alone", "started from it")


def _scores(groups: Groups, count: int, seed: int, options: argparse.Namespace) -> Iterator[tuple[float, float, float]]:
    learning, choosing, judging = (groups.take(kept) for kept in split(groups.case, seed))
    some = learning.take(np.random.default_rng(seed).permutation(len(learning)) < count)
    path = find_model(options.start)
    weights, card = load_model(path)
    factor = float(np.median(some.total / predict(weights, some).sum(axis=1)))
    yield _score(factor * predict(weights, judging), judging)
    given = {name: tensor for name, tensor in load_tensors(path)[0].items() if name != CELLS}
    for start in (None, given):
        recipe = CostRecipe(variant=card.variant, seed=seed, epochs=options.epochs, start=start)
        tensors = train(recipe, some, choosing)[0].tensors()
        yield _score(predict(weights_of(tensors, card.variant, ""), judging), judging)


def _score(predicted: Floats, judging: Groups) -> tuple[float, float, float]:
    score = held_out(predicted, judging.seconds)
    return score.median, score.mean, score.tau


if __name__ == "__main__":
    main()
