"""RecSmith's SASRec beside a public one on the same ratings: each user's last movie, among 100 others.

    git clone https://github.com/pmixer/SASRec.pytorch; git -C SASRec.pytorch checkout fde8a9c
    python benchmarks/sasrec_reference.py --reference SASRec.pytorch/python --data ml-latest-small

The public code runs as it is, on CPU, in a scratch folder; nothing of it is copied. Both train on all of a user's
ratings but the last two, with 48 columns, two layers and histories of at most 50; both rank the last one among 100
movies that the user has not rated before. It learns by one other movie an event and Adam; ours by a softmax over 64
other movies and Adagrad for its table. Means over --seeds, with intervals by Student's t (95 %).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sequences import FIRST, OTHERS, shown

from recsmith.data import open_dataset, spec_from_raw
from recsmith.training import Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer, train

COLUMNS, LONGEST, DROPOUT, CANDIDATES, RATE = 48, 50, 0.2, 64, 0.1
TOLD = re.compile(r"epoch:(\d+), .*test \(NDCG@10: ([\d.]+), HR@10: ([\d.]+)\)")


def spec(data: str, **words: Any) -> dict[str, Any]:
    """All ratings by user and time; the last of each user for tests."""
    return {
        "format": "sequences", "movielens": {"path": str(Path(data).resolve()), "max_user_id": 671},
        "longest": LONGEST, "split_by": "last", **words,
    }  # fmt: skip


def as_text(data: str, path: Path) -> None:
    """Ratings in the form that the public code reads: user and movie from 1 on, one a line, in order of time."""
    ratings = np.loadtxt(Path(data) / "ratings.csv", delimiter=",", skiprows=1)
    ratings = ratings[np.lexsort((ratings[:, 3], ratings[:, 0]))]
    _, users = np.unique(ratings[:, 0], return_inverse=True)
    _, movies = np.unique(ratings[:, 1], return_inverse=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, np.stack([users + 1, movies + 1], axis=1), fmt="%d")


def public(given: argparse.Namespace, seed: int, scratch: Path) -> dict[int, dict[str, float]]:
    """Scores of the public code by epoch; it draws anew in each run."""
    as_text(given.data, scratch / "data" / "ml.txt")
    command = [
        sys.executable, str(Path(given.reference).resolve() / "main.py"), "--dataset=ml", f"--train_dir={seed}",
        f"--maxlen={LONGEST}", f"--hidden_units={COLUMNS}", f"--dropout_rate={DROPOUT}", "--device=cpu",
        f"--num_epochs={given.public_epochs}",
    ]  # fmt: skip
    said = subprocess.run(command, cwd=scratch, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
                          text=True, check=True).stdout  # fmt: skip
    return {int(epoch): {"ndcg": float(ndcg), "hr": float(hr)} for epoch, ndcg, hr in TOLD.findall(said)}


def ours(given: argparse.Namespace, seed: int, scratch: Path) -> dict[int, dict[str, float]]:
    """Scores of RecSmith's model by epoch."""
    data = spec(given.data, split="train", candidates=CANDIDATES)
    targets = sum(open_dataset(spec_from_raw(data, "data")).source.sizes())
    output = scratch / f"ours-{seed}"
    batch = 128
    train(Run(
        data=RunData(train=data, test=spec(given.data, split="test", negatives=OTHERS), batch_size=batch,
                     epochs=given.epochs),
        output=str(output), ranks=1, seed=seed, checkpoint=None,
        model=RunModel(name="sasrec", embedding_dim=COLUMNS, loss="softmax",
                       arguments={"longest": LONGEST, "dropout": DROPOUT}),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=RATE)),
        metrics=RunMetrics(every=targets // batch, evaluate_every=targets // batch, at=(FIRST,)),
    ))  # fmt: skip
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text("utf-8").splitlines()]
    told = {each["step"]: each["ranking"]["at"][str(FIRST)] for each in lines if each["event"] == "test"}
    return {epoch: {"hr": each["hit_rate"], "ndcg": each["ndcg"]} for epoch, each in enumerate(told.values(), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", required=True, help="the folder of the public code's main.py")
    parser.add_argument("--data", required=True, help="the folder of MovieLens")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--public-epochs", type=int, default=200)
    parser.add_argument("--folder", default=tempfile.gettempdir() + "/recsmith-sasrec")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"public code": [], "recsmith": []}
    for seed in range(given.seeds):
        for name, run in (("public code", public), ("recsmith", ours)):
            file = Path(given.folder) / f"{name.replace(' ', '-')}-{seed}.json"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(run(given, seed, file.parent)), "utf-8")
                print(f"seed {seed}: {name}", flush=True)
            found[name].append(json.loads(file.read_text("utf-8")))
    print("| code | epochs | HR@10 of 101 | NDCG@10 of 101 |\n|---|---|---|---|")
    for name, runs in found.items():
        for epoch in runs[0]:
            scores = [shown([each[epoch][score] for each in runs]) for score in ("hr", "ndcg")]
            print(f"| {name} | {epoch} | {' | '.join(scores)} |")


if __name__ == "__main__":
    main()
