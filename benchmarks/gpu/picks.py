"""Which of the measured plans of a task cost models would pick, and how far they are off their ranks; needs no GPU.

    python benchmarks/gpu/picks.py h100
    python benchmarks/gpu/picks.py h200 analytic neural:h200 best

A pick is the plan with the shortest predicted step; it is judged by the measured ones (believed.py says how). The model
that ships for a GPU has learned from nine in ten of these ranks, so ranks of which training saw none stand apart: those
of the part of the samples that judges models, whose other ranks, and so whose plans, were learned. Takes a minute.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from believed import ALL, beliefs
from measured_plans import folder_of

from recsmith.bench.journal import RunStore, load_settings
from recsmith.clusters import Cluster
from recsmith.costs.neural.files import shipped_cards
from recsmith.learning.costs import Groups, read_groups
from recsmith.learning.costs.baselines import cluster_of, formula_seconds
from recsmith.learning.preparation import split
from recsmith.measuring.about import folders_in, locate

SAMPLES = {  # what the shipped models learned from, in order: their split follows from it
    "h100": ("h100", "h100-caches", "h100-plans", "h100-production"),
    "h200": ("h200", "h200-plans", "h200-production"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", choices=list(SAMPLES))
    parser.add_argument("models", nargs="*", help="cost models (default: analytic, neural:<gpu>, best)")
    words = parser.parse_args()
    warnings.simplefilter("ignore")  # of models beyond what they know
    print("\n".join(table(words.gpu, words.models or ("analytic", f"neural:{words.gpu}", "best"))))


def table(gpu: str, models: Sequence[str]) -> Iterator[str]:
    """A row for each model."""
    parts, cluster = parts_of_ranks(gpu)
    unseen = parts[-1]
    learned, chose, judged = (len(part) for part in parts)
    yield f"{learned:,} ranks of one kernel trained neural:{gpu}, {chose:,} chose its epochs, {judged:,} neither.\n"
    yield (
        "| cost model | its pick above the shortest plan, mean and most | predicted / measured steps "
        "| ranks off, median | ranks that training never saw, median |\n|---|---|---|---|---|"
    )
    with folder_of(Path(f"samples/{gpu}/plans.tar.gz")) as folder:
        settings, store = load_settings(folder), RunStore(folder)
        for model in models:
            found = beliefs(settings, store, model, None)
            lost = [over for over, _ in found.lost]
            steps = np.exp(np.mean([ratio for planner in settings.planners for ratio in found.ratios[ALL, planner]]))
            off = np.abs(formula_seconds(unseen, cluster, model).sum(axis=1) / unseen.total - 1)
            yield (
                f"| `{model}` | {np.mean(lost):.1%}, {np.max(lost):.1%} of {len(lost)} tasks | {steps:.2f} "
                f"| {np.median(found.ranks):.1%} of {len(found.ranks):,} | {np.median(off):.1%} of {len(off):,} |"
            )


def parts_of_ranks(gpu: str) -> tuple[list[Groups], Cluster]:
    """Ranks of the sharding tasks' plans in the parts that trained, that chose epochs, and that judged."""
    card = shipped_cards()[gpu]
    folders = [each for name in SAMPLES[gpu] for each in folders_in(locate(f"shipped:{name}"))]
    groups, _, origin = read_groups(folders)
    if groups.digest != card.data:
        raise SystemExit(f"neural:{gpu} learned from other samples than {', '.join(SAMPLES[gpu])}")
    ranks = read_groups([locate(f"shipped:{gpu}-plans")])[0].case
    own = np.isin(groups.case, ranks)
    cluster = cluster_of(origin)
    assert cluster is not None
    return [groups.take(part & own) for part in split(groups.case, card.seed)], cluster


if __name__ == "__main__":
    main()
