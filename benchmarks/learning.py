"""Learned cost models beside what they must beat, on cases that no training saw: the table of docs/learning.md.

    python benchmarks/learning.py --data measurements/cpu

median, mean: |predicted / measured - 1| of forward and backward together. tau: Kendall's, over all pairs, and over
those of equal total work (within 5 %; measuring/compute/cases.py counts work). 1.5x tables: trained on groups of up to
2/3 of the most tables, judged on those of more. 1.5x batch: trained on the nine tenths of smaller batches, judged on
batches up to 1.5 times as large. The noise floor is what two samples of one case differ by.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.neural.files import weights_of
from recsmith.learning.costs import Groups, Origin, noise_floor, read_groups, work_of_case
from recsmith.learning.costs.baselines import Affine, beside, cluster_of, formula_seconds
from recsmith.learning.costs.learn import predict
from recsmith.learning.costs.training import CostRecipe, train
from recsmith.learning.preparation import bands, errors, held_out, split
from recsmith.measuring.about import locate
from recsmith.measuring.statistics import kendall_tau

Predict = Callable[[Groups], Floats]
Learn = Callable[[Groups, Groups], Predict]  # from training and validation
FACTOR = 1.5
NO_WORK = 1e-9  # stands for groups that read nothing, in logarithms
TREES = {"objective": "regression", "learning_rate": 0.03, "num_leaves": 63, "num_threads": 1, "verbose": -1}


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge learned cost models on held-out cases.")
    parser.add_argument("--data", required=True, help="folders of measurements, with commas between")
    parser.add_argument("--epochs", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", help="only these, with commas between")
    options = parser.parse_args()
    groups, left_out, origin = read_groups([locate(word) for word in options.data.split(",")])
    print(f"{origin.hardware}, {origin.device}; {len(groups):,} groups, {left_out:,} left out")
    apart = noise_floor(groups)
    print(f"noise floor: {np.median(apart):.1%} median, {apart.mean():.1%} mean of {len(apart)} pairs\n")
    print("| model | median | mean | tau | tau, equal work | 1.5x tables, mean | 1.5x batch, mean | trained in |")
    print("|---|---|---|---|---|---|---|---|")
    models = models_of(options.epochs, options.seed, origin)
    for name in options.models.split(",") if options.models else models:
        print(row(name, models[name], groups, options.seed), flush=True)


def models_of(epochs: int, seed: int, origin: Origin) -> dict[str, Learn]:
    def learned(**words: object) -> Learn:
        recipe = CostRecipe(epochs=epochs, seed=seed, **words)  # pyright: ignore[reportArgumentType]

        def learn(training: Groups, choosing: Groups) -> Predict:
            weights = weights_of(train(recipe, training, choosing)[0].tensors(), recipe.variant, "")
            return lambda groups: predict(weights, groups)

        return learn

    def analytic(training: Groups, _: Groups) -> Predict:
        cluster = cluster_of(origin)
        assert cluster is not None, "the catalogue lacks the device"
        some = training.take(np.arange(len(training)) % max(1, len(training) // 300) == 0)
        factor = beside(some.seconds, formula_seconds(some, cluster)).factor
        return lambda groups: factor * formula_seconds(groups, cluster)

    models: dict[str, Learn] = {"analytic x factor": analytic} if cluster_of(origin) else {}
    models |= {"affine": lambda training, _: Affine(training).predict}
    models |= {"trees": trees} if find_spec("lightgbm") else {}
    return models | {
        "linear": learned(variant="linear"), "convex": learned(variant="convex"), "free": learned(variant="free")
    }  # fmt: skip


def trees(training: Groups, choosing: Groups) -> Predict:
    """LightGBM on figures summed over the group, and their means."""
    import lightgbm  # pyright: ignore[reportMissingImports]

    def pooled(groups: Groups) -> Floats:
        figures: Floats = np.hstack([groups.work, groups.inputs])
        words = (groups.optimizer, groups.data_type, groups.tables, groups.batch)
        kind = np.stack(words, axis=1).astype(np.float64)
        work = np.log(np.maximum(groups.summed(groups.work), NO_WORK))
        return np.hstack([work, groups.summed(figures) / groups.tables[:, None], kind])

    found = []
    for part in (0, 1):
        known, chosen_by = (
            lightgbm.Dataset(pooled(groups), np.log(groups.seconds[:, part])) for groups in (training, choosing)
        )
        stop = lightgbm.early_stopping(50, verbose=False)
        found.append(lightgbm.train(TREES, known, 2000, valid_sets=[chosen_by], callbacks=[stop]))
    return lambda groups: np.exp(np.stack([model.predict(pooled(groups)) for model in found], axis=1))


def row(name: str, learn: Learn, groups: Groups, seed: int) -> str:
    begun = time.process_time()
    learning, choosing, judging = (groups.take(kept) for kept in split(groups.case, seed))
    model = learn(learning, choosing)
    took = time.process_time() - begun
    predicted = model(judging)
    score = held_out(predicted, judging.seconds)
    equal = kendall_tau(predicted.sum(axis=1), judging.total, bands(work_of_case(judging)))
    cut = groups.tables.max() / FACTOR
    tables = extrapolate(learn, groups, seed, groups.tables <= cut, groups.tables > cut)
    cut = np.quantile(groups.batch, 0.9)
    batch = extrapolate(learn, groups, seed, groups.batch <= cut, (groups.batch > cut) & (groups.batch <= FACTOR * cut))
    return (
        f"| {name} | {score.median:.1%} | {score.mean:.1%} | {score.tau:.3f} | {equal:.3f} | {tables} | {batch} "
        f"| {took:.0f} s |"
    )


def extrapolate(learn: Learn, groups: Groups, seed: int, below: Bools, beyond: Bools) -> str:
    """The mean error on groups beyond what training saw."""
    inside = groups.take(below)
    learning, choosing, _ = (inside.take(kept) for kept in split(inside.case, seed))
    judging = groups.take(beyond)
    off = errors(learn(learning, choosing)(judging).sum(axis=1), judging.total)
    return f"{off.mean():.1%} of {len(off)}"


if __name__ == "__main__":
    main()
