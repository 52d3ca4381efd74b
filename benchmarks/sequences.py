"""HSTU, SASRec, DIN and DLRM on MovieLens by time: how often the movie that came next is among the first ten.

    python benchmarks/sequences.py --data ml-latest-small                      # all models, three seeds
    python benchmarks/sequences.py --data ml-latest-small --models sasrec --seeds 1 --epochs 1 --targets 200

Every model trains on the same targets: `format: sequences`, the first 80 % of the ratings by time. hstu and sasrec
learn by a softmax over each target and 64 movies that its user never rated, din and dlrm, which score one at a time, by
binary cross entropy of it and four of these. Then each ranks targets of the last 10 %, each among 100 movies that its
user never rated, drawn once for all models; hstu and sasrec also rank them among all movies. Scores are means over
targets; an interval is of seeds (Student's t, 95 %). Results are kept in --folder, where a stopped command goes on.

B samples, D columns
"""

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsmith.data import Batch, JaggedIds, open_dataset, spec_from_raw
from recsmith.training import Run, RunData, RunMetrics, RunModel, RunOptimizers, RunTable, SparseOptimizer, train
from recsmith.training.batches import as_tensors
from recsmith.training.results.serving import Predictor, load_model

LONGEST, DIM, FIRST, OTHERS, RATE = 30, 32, 10, 100, 0.1
CANDIDATES, NEGATIVES = 64, 4  # beside a target: in a softmax, or as samples of their own
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # Student's t of so many seeds
MODELS: dict[str, dict[str, Any]] = {
    "hstu": {"score": "dot", "times": "times", "target_time": "target_time", "longest": LONGEST},
    "sasrec": {"longest": LONGEST},
    "din": {"longest": LONGEST},
    "dlrm": {},
}


def spec(data: str, **words: Any) -> dict[str, Any]:
    return {
        "format": "sequences", "movielens": {"path": str(Path(data).resolve()), "max_user_id": 671},
        "longest": LONGEST, **words,
    }  # fmt: skip


def a_run(name: str, given: argparse.Namespace, seed: int, output: Path) -> Run:
    by_softmax = name in ("hstu", "sasrec")
    words = {"candidates": CANDIDATES} if by_softmax else {"negatives": NEGATIVES}
    data = spec(given.data, split="train", **words)
    sizes = {each.name: each.num_embeddings for each in open_dataset(spec_from_raw(data, "data")).schema.features}
    tables = [RunTable(name=each, num_embeddings=sizes[each] or 1) for each in ("user", "history", "target")]
    loss = "softmax" if by_softmax else "binary"
    model = RunModel(name=name, embedding_dim=DIM, arguments=MODELS[name], loss=loss) if name != "dlrm" else RunModel(
        name="dlrm", embedding_dim=DIM, bottom=(32,), top=(64, 32), tables=tuple(tables))  # fmt: skip
    return Run(
        data=RunData(train=data, batch_size=128 if by_softmax else 640, epochs=given.epochs),
        output=str(output), model=model, ranks=1, seed=seed,
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=RATE)),
        metrics=RunMetrics(every=200), checkpoint=None,
    )  # fmt: skip


def asked(data: str, count: int) -> tuple[Batch, np.ndarray]:
    """Evenly spread targets of the test split, and the movies each is ranked among (B, 1 + OTHERS), it first."""
    source: Any = open_dataset(spec_from_raw(spec(data, split="test", negatives=OTHERS), "data")).source
    blocks = [source.read(block).samples for block in range(len(source.sizes()))]
    kept = [block.take(np.arange(0, len(block), 1 + OTHERS)) for block in blocks]
    movies = np.concatenate([block.ids["target"].values.reshape(-1, 1 + OTHERS) for block in blocks])
    from recsmith.data.batch import concatenated

    wanted = np.linspace(0, len(movies) - 1, min(count, len(movies))).astype(np.int64)
    return concatenated(kept).take(wanted), movies[wanted]


def gains(places: np.ndarray) -> dict[str, float]:
    """Hit rate and NDCG at ten of targets whose places these are, from 0 on."""
    hit = places < FIRST
    return {"hr": float(hit.mean()), "ndcg": float(np.where(hit, 1 / np.log2(places + 2), 0).mean())}


def placed(scores: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The place of each target among others (B,): equal scores stand half before it, half behind."""
    above, equal = (scores > own[:, None]).sum(1), (scores == own[:, None]).sum(1)
    return above + equal / 2


def ranked(model: Predictor, samples: Batch, movies: np.ndarray) -> dict[str, Any]:
    body: Any = model.task.model
    found: dict[str, Any] = {}
    if hasattr(body, "encode"):
        with torch.no_grad():
            features = as_tensors(samples, model.features).sparse_features
            scores = body.encode(features).numpy() @ model.table("target").T
        rows = np.arange(len(scores))
        for history, at in zip(np.split(samples.ids["history"].values, np.cumsum(samples.ids["history"].lengths)[:-1]),
                               rows, strict=True):  # fmt: skip
            scores[at, history] = -np.inf  # a movie that was rated is not rated again
        own = scores[rows, movies[:, 0]]
        scores[rows, movies[:, 0]] = -np.inf
        found["all"] = gains(placed(scores, own))
        found["sampled"] = gains(placed(scores[rows[:, None], movies[:, 1:]], own))
        return found
    columns: list[np.ndarray] = []
    ones = np.ones(len(samples), np.int32)
    for at in range(movies.shape[1]):
        ids = {**samples.ids, "target": JaggedIds(values=movies[:, at], lengths=ones)}
        asked_now = Batch(dense=samples.dense, ids=ids, labels=samples.labels, label_names=samples.label_names,
                          sample_ids=samples.sample_ids)  # fmt: skip
        columns.append(model.predict(asked_now)[:, 0])
    scores = np.stack(columns, axis=1)
    return {"sampled": gains(placed(scores[:, 1:], scores[:, 0]))}


def popular(data: str, movies: np.ndarray) -> dict[str, float]:
    """What the numbers of ratings before the test split alone reach."""
    source: Any = open_dataset(spec_from_raw(spec(data, split="train"), "data")).source
    targets = [source.read(block).samples.ids["target"].values for block in range(len(source.sizes()))]
    counts = np.bincount(np.concatenate(targets), minlength=int(movies.max()) + 1).astype(float)
    return gains(placed(counts[movies[:, 1:]], counts[movies[:, 0]]))


def shown(values: list[float]) -> str:
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {T95.get(len(values), 2.6) * float(np.std(values, ddof=1)) / math.sqrt(len(values)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder of MovieLens")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--targets", type=int, default=2000)
    parser.add_argument("--folder", default=tempfile.gettempdir() + "/recsmith-sequences")
    given = parser.parse_args()
    samples, movies = asked(given.data, given.targets)
    alone = popular(given.data, movies)
    print(f"{len(samples):,} targets; by numbers of ratings alone: {alone}", flush=True)
    names = given.models.split(",")
    for seed in range(given.seeds):
        for name in names:
            if not kept(given, name, seed).exists():
                scored(given, name, seed, samples, movies)
                print(f"seed {seed}: {name}", flush=True)
    print("| model | HR@10 of 101 | NDCG@10 of 101 | HR@10 of all | NDCG@10 of all | targets/s |")
    print("|---|---|---|---|---|---|")
    for name in names:
        results = [json.loads(kept(given, name, seed).read_text("utf-8")) for seed in range(given.seeds)]
        cells = [
            shown([each[kind][score] for each in results]) if kind in results[0] else "-"
            for kind in ("sampled", "all") for score in ("hr", "ndcg")
        ]  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} | {np.median([each['rate'] for each in results]):,.0f} |")


def kept(given: argparse.Namespace, name: str, seed: int) -> Path:
    """Where the scores of a model of a seed are."""
    return Path(given.folder) / f"{name}-{seed}-{given.epochs}-{given.targets}.json"


def scored(given: argparse.Namespace, name: str, seed: int, samples: Batch, movies: np.ndarray) -> None:
    """Train a model, and keep its scores."""
    output = Path(given.folder) / f"{name}-{seed}-{given.epochs}"
    train(a_run(name, given, seed, output))
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text("utf-8").splitlines()]
    rates = [each["samples_per_s"] for each in lines if each["event"] == "train" and "samples_per_s" in each]
    copies = 1 if name in ("hstu", "sasrec") else 1 + NEGATIVES
    made = {**ranked(load_model(output / "model"), samples, movies), "rate": float(np.median(rates or [0])) / copies}
    kept(given, name, seed).write_text(json.dumps(made), "utf-8")


if __name__ == "__main__":
    main()
