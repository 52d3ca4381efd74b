"""Two towers and several labels on MovieLens: recall of the movies that come next, and two labels beside one.

    python benchmarks/tasks.py towers --data ml-latest-small     # two towers, corrected and not, three seeds
    python benchmarks/tasks.py labels --data ml-latest-small     # mmoe of two labels, and of each alone, three seeds

Each user's first 80 % of ratings by time are trained on, the others are tested. `towers` learns from ratings of 4 stars
and more: who rated, and what that user liked before. It then ranks all movies that the user had not rated, and
recall@100 is the share of those liked later among the first 100, the mean of users. Popularity ranks by how often a
movie was liked in what is trained on. `labels` learns whether a rating has 4 stars and more (liked), and whether it is
above the mean of the user's earlier ratings (above), which a user's first one lacks. Intervals are of seeds (Student's
t, 95 %).

R ratings, U users, M movies
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsmith.data.movielens import read_ratings
from recsmith.scoring.scores import mean_within
from recsmith.training import (
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    RunTask,
    SparseOptimizer,
    load_model,
    train,
)

SHARE, LIKED, FIRST, BEFORE = 0.8, 4.0, 100, 50  # of a user's ratings; stars; places; movies of a history
Columns = dict[str, Any]


def read(folder: str, users: int | None) -> tuple[Columns, np.ndarray]:
    """(columns of all ratings by user and time, which of them are trained on (R,)). users: as many of them at most."""
    names, movies, stars, times = read_ratings(Path(folder) / "ratings.csv")
    kept = names <= (np.unique(names)[:users][-1] if users else names.max())
    names, movies, stars, times = (each[kept] for each in (names, movies, stars, times))
    order = np.lexsort((movies, times, names))
    user, movie = (np.unique(each[order], return_inverse=True)[1] for each in (names, movies))
    liked, trained = (stars[order] >= LIKED), np.zeros(len(user), np.bool_)
    above: list[float | None] = []
    earlier: list[list[int]] = []
    for rows in np.split(np.arange(len(user)), np.flatnonzero(np.diff(user)) + 1):
        trained[rows[: round(SHARE * len(rows))]] = True
        given = stars[order][rows]
        means = np.cumsum(given)[:-1] / np.arange(1, len(rows))
        above += [None, *(given[1:] > means).astype(float).tolist()]
        before: list[int] = []
        for row in rows.tolist():
            earlier.append(before[-BEFORE:])
            if liked[row]:
                before = [*before, int(movie[row])]
    columns = {"user": user, "movie": movie, "earlier": earlier, "liked": liked.astype(float), "above": above}
    return columns, trained


def write(path: Path, columns: Columns, rows: np.ndarray) -> None:
    pq.write_table(pa.table(columns).take(pa.array(np.flatnonzero(rows))), path, row_group_size=20_000)


def spec(path: Path, columns: Columns, features: tuple[str, ...], labels: tuple[str, ...]) -> Columns:
    rows = {name: int(columns["movie" if name == "earlier" else name].max()) + 1 for name in features}
    named = [{"name": name, "num_embeddings": size} for name, size in rows.items()]
    missing = [name for name in labels if name == "above"]
    return {"format": "parquet", "paths": [str(path)], "features": named, "labels": labels, "missing_labels": missing}


def trained_run(given: argparse.Namespace, output: Path, model: RunModel, data: RunData, seed: int) -> Columns:
    """What came of a run; of one that was trained before, what was kept."""
    kept = output / "result.json"
    if not kept.exists():
        run = Run(
            data=data, output=str(output), model=model, ranks=1, seed=seed, checkpoint=None,
            metrics=RunMetrics(every=10**6),
            optimizers=RunOptimizers(
                sparse=SparseOptimizer(name="adagrad", learning_rate=given.rate), dense=DenseOptimizer()
            ),
        )  # fmt: skip
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(train(run)))
    return json.loads(kept.read_text())


def recall(order: np.ndarray, later: list[set[int]]) -> float:
    """Recall@100, the mean of users who like something later. order: movies (U, 100) by their score."""
    found = [len(set(best.tolist()) & liked) / len(liked) for best, liked in zip(order, later, strict=True) if liked]
    return float(np.mean(found))


def towers(given: argparse.Namespace) -> None:
    columns, trained = read(given.data, given.users)
    liked, folder = columns["liked"] > 0, Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "liked.parquet", columns, trained & liked)
    user, movie = columns["user"], columns["movie"]
    count, movies = int(user.max()) + 1, int(movie.max()) + 1
    rated = np.zeros((count, movies), np.bool_)
    rated[user[trained], movie[trained]] = True
    later: list[set[int]] = [set(movie[(user == each) & ~trained & liked].tolist()) for each in range(count)]
    later = [each - set(np.flatnonzero(seen).tolist()) for each, seen in zip(later, rated, strict=True)]
    popular = np.bincount(movie[trained & liked], minlength=movies)
    scores = np.where(rated, -1, popular[None, :])
    print(f"popularity: recall@{FIRST} {recall(np.argsort(-scores, 1, 'stable')[:, :FIRST], later):.4f}")
    data = RunData(
        train=spec(folder / "liked.parquet", columns, ("user", "movie", "earlier"), ("liked",)),
        batch_size=given.batch, epochs=given.epochs,
    )  # fmt: skip
    histories = histories_of(columns, trained, count)
    for correct in (True, False):
        arguments = {"user": ["user", "earlier"], "item": ["movie"], "layers": [64, 32], "correct": correct}
        model = RunModel(name="two_tower", embedding_dim=32, loss="softmax", arguments=arguments)
        found: list[float] = []
        for seed in range(given.seeds):
            output = folder / f"towers-{'corrected' if correct else 'plain'}-{seed}"
            trained_run(given, output, model, data, seed)
            found.append(recall(best(output, histories, rated), later))
        told("with its correction" if correct else "without", f"recall@{FIRST}", found)


def histories_of(columns: Columns, trained: np.ndarray, count: int) -> list[list[int]]:
    """What each user liked last in what is trained on."""
    liked = trained & (columns["liked"] > 0)
    return [columns["movie"][liked & (columns["user"] == each)][-BEFORE:].tolist() for each in range(count)]


def best(output: Path, histories: list[list[int]], rated: np.ndarray) -> np.ndarray:
    """The movies (U, 100) that a trained model puts first, of those that a user had not rated."""
    import torch

    from recsmith.data import Batch, JaggedIds
    from recsmith.training.batches import as_tensors

    predictor = load_model(output / "model")
    model: Any = predictor.task.model

    def tensors(user: np.ndarray, movie: np.ndarray, earlier: list[list[int]]) -> Any:
        bags = [JaggedIds(values=each, lengths=np.ones(len(each), np.int32)) for each in (user, movie)]
        flat = np.array([row for bag in earlier for row in bag], np.int64)
        lengths = np.array([len(bag) for bag in earlier], np.int32)
        ids = dict(zip(("user", "movie"), bags, strict=True)) | {"earlier": JaggedIds(values=flat, lengths=lengths)}
        made = Batch(
            dense=np.zeros((len(user), 0), np.float32), ids=ids, labels=np.zeros((len(user), 1), np.float32),
            label_names=("liked",), sample_ids=np.arange(len(user)),
        )  # fmt: skip
        return as_tensors(made, predictor.features)

    users, movies = (np.arange(each) for each in rated.shape)
    with torch.no_grad():
        some = tensors(users, np.zeros_like(users), histories)
        vectors = model.users(some.dense_features, some.sparse_features)
        every = tensors(np.zeros_like(movies), movies, [[]] * len(movies))
        scores = (vectors @ model.items(every.sparse_features).T).masked_fill(torch.from_numpy(rated), float("-inf"))
    return scores.topk(min(FIRST, len(movies)), dim=1).indices.numpy()


def labels(given: argparse.Namespace) -> None:
    columns, trained = read(given.data, given.users)
    folder, both = Path(given.output), ("liked", "above")
    folder.mkdir(parents=True, exist_ok=True)
    known = np.array([each is not None for each in columns["above"]])
    found: dict[tuple[str, str], list[float]] = {}
    for names in (both, *((each,) for each in both)):
        model = RunModel(name="mmoe", embedding_dim=16, tasks=tuple(RunTask(label=each) for each in names))
        specs: dict[str, Any] = {}
        for part, rows in (("train", trained), ("test", ~trained)):
            path = folder / f"{'-'.join(names)}-{part}.parquet"
            write(path, columns, rows & known if names == ("above",) else rows)  # a sample has one label at least
            specs[part] = spec(path, columns, ("user", "movie"), names)
        data = RunData(**specs, batch_size=given.batch, epochs=given.epochs)
        for seed in range(given.seeds):
            scores = trained_run(given, folder / f"{'-'.join(names)}-{seed}", model, data, seed)["test"]
            for name in names:
                auc = (scores.get("labels") or {name: scores})[name]["auc"]
                found.setdefault((name, "of both" if len(names) > 1 else "alone"), []).append(auc)
    for (name, kind), values in sorted(found.items()):
        told(f"{name}, mmoe {kind}", "AUC", values)
    for name in both:
        gains = [one - alone for one, alone in zip(found[name, "of both"], found[name, "alone"], strict=True)]
        told(f"{name}, of both less alone, seed by seed", "AUC", gains)


def told(what: str, score: str, values: list[float]) -> None:
    mean, within = mean_within(values)
    print(f"{what}: {score} {mean:.4f}" + (f" +- {within:.4f}" if within is not None else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("towers", "labels"))
    parser.add_argument("--data", required=True, help="a MovieLens folder")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="default: 5 of towers, 2 of labels")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=0.05, help="of the tables")
    parser.add_argument("--users", type=int, help="the first ones alone")
    parser.add_argument("--output", "-o", default="tasks", help="folder of what is trained; a stopped command goes on")
    given = parser.parse_args()
    given.epochs = given.epochs or (5 if given.what == "towers" else 2)
    (towers if given.what == "towers" else labels)(given)


if __name__ == "__main__":
    main()
