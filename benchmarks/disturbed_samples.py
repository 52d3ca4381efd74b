"""How strictly samples of a disturbed machine are set aside: the table of docs/decisions/0007-measurements.md.

    python benchmarks/disturbed_samples.py --data shipped:cpu --thresholds 1.5,1.25 --epochs 100

Trains on the samples whose fastest probe is within so many times the usual best, for each threshold, and judges on
unseen cases: those within 1.5 times, and the least disturbed of them, within 1.1.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.neural.files import weights_of
from recsmith.learning.costs import Groups, groups_of, mapped, noise_floor
from recsmith.learning.costs.learn import predict
from recsmith.learning.costs.training import CostRecipe, train
from recsmith.learning.preparation import errors, split
from recsmith.measuring import samples
from recsmith.measuring.about import locate
from recsmith.measuring.folder import read_columns
from recsmith.measuring.samples import read_samples

JUDGED = (1.5, 1.1)


def read(folder: str) -> tuple[Groups, Floats]:
    """(all samples whose visits agree, their fastest probes over the usual best): none is set aside."""
    samples.SLOW_PROBE = np.inf
    path = locate(folder)
    found, columns = read_samples(path), read_columns(path, samples.VISIT_COLUMNS)
    probes = sorted(probe for probe in columns["probe_s"] if probe is not None)
    fastest = {each.sample: each.probe_s for each in samples.schedule_of(columns, "cpu")}
    over = np.array([fastest[sample] for sample in found.sample.tolist()], dtype=np.float64)
    groups = groups_of(found)
    return groups.take(~mapped(groups)), (over / probes[int(samples.USUAL_SHARE * len(probes))])[~mapped(groups)]


def row(threshold: float, groups: Groups, over: Floats, parts: Sequence[Bools], epochs: int) -> str:
    kept = over <= threshold
    network, _ = train(CostRecipe(epochs=epochs), groups.take(kept & parts[0]), groups.take(kept & parts[1]))
    weights, words = weights_of(network.tensors(), "convex", ""), list[str]()
    for limit in JUDGED:
        judging = groups.take((over <= limit) & parts[2])
        words.append(_words(errors(predict(weights, judging).sum(axis=1), judging.total)))
    return f"| {threshold:g} | {kept.sum():,} | {_words(noise_floor(groups.take(kept)))} | {' | '.join(words)} |"


def _words(off: Floats) -> str:
    return f"{np.median(off):.1%}, {off.mean():.1%} of {len(off):,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder of measurements")
    parser.add_argument("--thresholds", default="1.5,1.25", help="with commas between")
    parser.add_argument("--epochs", type=int, default=100)
    words = parser.parse_args()
    groups, over = read(words.data)
    parts = split(groups.case, 0)
    print("| within | samples | noise floor | error within 1.5 | within 1.1 |\n|---|---|---|---|---|")
    for threshold in map(float, words.thresholds.split(",")):
        print(row(threshold, groups, over, parts, words.epochs), flush=True)


if __name__ == "__main__":
    main()
