"""What finding equal bags takes of reading, and giving their vectors to samples of a step: CPU time of a rank.

    python benchmarks/dedup_reading.py        # a minute of an idle core

Tables of docs/datasets.md, from which prediction/dedup.py has its figures: they price what data.deduplicate takes of a
step. Generated samples, six features of 20 ids; of a session each bag is that of the sample before with some
chance. Every rank of two reads all samples; a figure is the median of turns. Pooled vectors of distinct bags are given
to samples and joined as the model reads them, forward and backward.
"""

import argparse
import statistics
import time
from typing import Any

from recsmith.data.batches import BatchReader
from recsmith.prediction.dedup import giving_s
from recsmith.training import RunData
from recsmith.training.sources import open_data
from recsmith.training.sources.dataset import DatasetSource

BATCH, RANKS, STEPS, FEATURES, IDS = 1024, 2, 64, 6, 20.0
GIVEN = ((1024, 6, 64, 1.5), (1024, 6, 64, 4.0), (512, 6, 128, 3.3), (512, 6, 256, 2.1), (256, 6, 512, 1.8),
         (512, 26, 16, 2.0))  # samples, features, columns, samples for each distinct bag  # fmt: skip
CASES = ((1, 0.0), (2, 0.9), (4, 0.9), (8, 0.9), (16, 0.95))  # samples of a session, chance that a bag stays


def main() -> None:
    """Print microseconds of an id that is read, for each number of samples of a session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one turn of one case")
    chosen = parser.parse_args()
    print(
        "| samples of a session | bags for each distinct one | plain | distinct bags alone | difference |\n"
        + "|---" * 5
        + "|"
    )
    for size, chance in CASES[:1] if chosen.quick else CASES:
        took: dict[bool, list[float]] = {False: [], True: []}
        factor = 1.0
        for _ in range(1 if chosen.quick else chosen.turns):
            for distinct in took:
                seconds, ids, factor = read(size, chance, distinct=distinct)
                took[distinct].append(seconds / ids * 1e6)
        plain, alone = (statistics.median(took[kind]) for kind in (False, True))
        print(f"| {size} | {factor:.1f} | {plain:.3f} us | {alone:.3f} us | {alone - plain:+.3f} us |", flush=True)

    print("\n| samples | features | columns | bags for each distinct one | measured | predicted |\n" + "|---" * 6 + "|")
    for samples, features, columns, factor in GIVEN[:1] if chosen.quick else GIVEN:
        giving = given(samples, features, columns, factor, 3 if chosen.quick else 40)
        told = giving_s(samples, features, features * columns)
        print(f"| {samples} | {features} | {columns} | {factor} | {giving * 1e3:.2f} ms | {told * 1e3:.2f} ms |")


def given(samples: int, features: int, columns: int, factor: float, turns: int) -> float:
    """CPU seconds in which vectors of distinct bags are given to samples, forward and backward; a median."""
    import torch

    torch.set_num_threads(1)
    rows, spent = int(samples / factor), list[float]()
    gradient, pooled = torch.randn(samples, features * columns), torch.randn(rows, features * columns)
    places = [torch.randint(0, rows, (samples,)).sort()[0] for _ in range(features)]
    for _ in range(turns):
        pooled = pooled.detach().requires_grad_()
        begun = time.process_time()
        parts = pooled.split(columns, dim=1)
        found = torch.cat([each.index_select(0, place) for each, place in zip(parts, places, strict=True)], dim=1)
        found.backward(gradient)
        spent.append(time.process_time() - begun)
    return statistics.median(spent)


def read(size: int, chance: float, *, distinct: bool) -> tuple[float, float, float]:
    """CPU seconds of some steps, ids of the samples of all ranks in them, bags for each that a batch holds."""
    names = [f"f{number}" for number in range(FEATURES)]
    features = [{"name": name, "num_embeddings": 300_000, "pooling_factor": IDS} for name in names]
    train: dict[str, Any] = {
        "format": "generator",
        "seed": 5,
        "num_samples": 1_000_000,
        "dense": 13,
        "features": features,
    }
    if size > 1:
        train |= {"sessions": {"size": size, "duplication": chance}}
    data = RunData(train=train, batch_size=BATCH, window=16_384, keep_together=size)
    groups = tuple((name,) for name in names) if distinct else ()
    source = DatasetSource(open_data(train, "a benchmark"), data, seed=1, groups=groups)
    start = source.beginning(source.dataset, 0)
    order = source.dataset.order(start)
    reader = BatchReader(source.dataset.source, order, start, 0, RANKS, BATCH, groups)
    samples = bags = 0
    begun = time.process_time()
    for number, (batch, _, _) in enumerate(reader.steps(True), 1):
        samples, bags = samples + len(batch), bags + len(batch.ids[names[0]].lengths)
        if number == STEPS:
            break
    return time.process_time() - begun, RANKS * samples * FEATURES * IDS, samples / bags


if __name__ == "__main__":
    main()
