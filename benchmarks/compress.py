"""What storing a table smaller costs in quality: AUC against size, on MovieLens' small set.

    python benchmarks/compress.py ML_LATEST_SMALL -o measured [--seeds 5] [--split test]

The movie table is compressed, all others stay whole. Every training of a method, a factor and a seed is written to
measured/results.jsonl as soon as it is done, and not done again. Settings (train_movielens.yaml and the constants here)
were chosen on split valid. `--table` prints the table of what is there. `--plain` trains in this process, in plain
PyTorch on one thread, whose losses are those of the job to 1e-6: seconds a training in place of a job's start.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsmith.data import area_under_curve
from recsmith.embeddings import CompressionRule, IdMap, learn_hash, save_maps
from recsmith.embeddings.compression import method_of
from recsmith.reports.compressions import curve_picture
from recsmith.training import Run, load_run, train
from recsmith.training.batches import as_tensors, training_batches
from recsmith.training.job.models import build_task
from recsmith.training.job.sharded import draw_weights
from recsmith.training.optimizers.building import sparse_arguments, table_class
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data, open_source
from recsmith.training.stores.device import DeviceRows
from recsmith.training.systems.stored.curve import TrainedSmaller, points
from recsmith.training.systems.stored.id_maps import cheap_columns, hash_maps, id_counts, popularity_maps
from recsmith.training.tables.plain import features_of, initial_weights_of

warnings.filterwarnings("ignore", module="torch")

FACTORS = (2, 4, 8, 16, 32, 64)
ABOVE_ROWS = 700  # so that of MovieLens only the movies are stored smaller
MOVIES = 9066  # ids of the movie table
SHARES = (0.02, 0.08, 0.2, 0.7)  # of movies by falling popularity
WIDTHS = {6: (16, 8, 4, 1), 2: (16, 16, 8, 4), 4: (16, 8, 4, 2), 8: (12, 4, 2, 1), 16: (4, 2, 1, 1)}
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t at 95 %, by number of values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--split", default="test", choices=["valid", "test"])
    parser.add_argument("--methods", default="full,hash,quotient_remainder,path_based,learned_hash,mixed_dimension")
    parser.add_argument("--factors", default=",".join(map(str, FACTORS)))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--picture", type=Path, help="Draw the curve of what is there into this SVG.")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    if not asked.table:
        for seed in range(asked.seeds):
            measure(asked, seed)
    found = rows(asked.output / f"{asked.split}.jsonl")
    factors = {1, *map(int, asked.factors.split(","))}
    shown = [row for row in found if row["method"] in asked.methods.split(",") and row["factor"] in factors]
    show(shown)
    if asked.picture:
        asked.picture.write_text(curve_picture(points([smaller(row) for row in shown])))


def measure(asked: Any, seed: int) -> None:
    """Train all methods and factors that are not there yet, for one seed."""
    file = asked.output / f"{asked.split}.jsonl"
    done = {(row["method"], row["factor"], row["seed"]) for row in rows(file)}
    for method in asked.methods.split(","):
        for factor in [1] if method == "full" else sorted({*map(int, asked.factors.split(","))}):
            if (method, factor, seed) in done or (method == "mixed_dimension" and factor not in WIDTHS):
                continue
            row = {"method": method, "factor": factor, "seed": seed, **trained(asked, method, factor, seed)}
            with file.open("a") as opened:
                opened.write(json.dumps(row) + "\n")
            print(json.dumps(row), file=sys.stderr, flush=True)


def trained(asked: Any, method: str, factor: int, seed: int) -> dict[str, float]:
    """AUC on the split, and parameters of the movie table, of one training."""
    folder = asked.output / "run"
    shutil.rmtree(folder, ignore_errors=True)
    run = run_of(asked, seed, folder)
    if method != "full":
        run = replace(run, model=replace(run.model, compression=(rule(asked, run, method, factor),)))
    if asked.plain:
        return trained_plainly(run)
    result = train(run)
    return {"auc": result["test"]["auc"], "parameters": movie_parameters(folder / "model" / "weights.safetensors")}


def run_of(asked: Any, seed: int, folder: Path) -> Run:
    path = str(asked.data)
    settings = (
        f"data.train.path={path}", f"data.test.path={path}", f"data.test.split={asked.split}", f"seed={seed}",
        f"output={folder}", "model.embedding_dim=16",
    )  # fmt: skip
    return load_run(Path(__file__).with_name("train_movielens.yaml"), settings)


def rule(asked: Any, run: Run, method: str, factor: int) -> CompressionRule:
    maps = asked.output / f"maps-{method}-{factor}-{run.seed}.safetensors"
    fields: dict[str, Any] = {"method": method, "above_rows": ABOVE_ROWS}
    if "factor" in method_of(method).reads:
        fields["factor"] = float(factor)
    if method == "learned_hash":
        if not maps.exists():
            save_maps(learned_maps(asked, run, factor), maps)
        fields["maps"] = str(maps)
    if method == "mixed_dimension":
        if not maps.exists():
            save_maps(popularity_maps(run), maps)
        fields |= {"maps": str(maps), "shares": SHARES, "widths": WIDTHS[factor]}
    return CompressionRule(**fields)


def learned_maps(asked: Any, run: Run, factor: int) -> dict[str, IdMap]:
    """A learned hash of the movies, whose cheap vectors come from a job or, plainly, from this process."""
    if not asked.plain:
        return hash_maps(run, factor, above_rows=ABOVE_ROWS)
    dataset = open_data(run.data.train, "data.train")
    movies = [table for table in tables_of(run.model, dataset.schema) if table.name == "movie"]
    counts = id_counts(dataset, movies)["movie"]
    cheap = replace(run, model=replace(run.model, embedding_dim=cheap_columns([counts]), compression=()))
    if (kept := asked.output / f"cheap-{run.seed}.npy").exists():
        vectors = np.load(kept)
    else:
        vectors = plain_task(cheap).model.sparse_arch.embedding_bag_collection.embedding_bags["movie"].weight
        np.save(kept, vectors := vectors.detach().double().numpy())
    return {"movie": learn_hash(vectors, counts, round(len(counts) / factor), seed=run.seed)}


def plain_task(run: Run) -> Any:
    """The trained model of a run whose dense optimizer is Adam."""
    torch.set_num_threads(1)
    source = open_source(run)
    task = build_task(run.model, source.schema, run.seed, tables_on="cpu")
    draw_weights(DeviceRows(task), initial_weights_of(task), run.seed)
    tables = [each for name, each in task.named_parameters() if "embedding_bags" in name]
    dense = [each for name, each in task.named_parameters() if "embedding_bags" not in name]
    sparse = run.optimizers.sparse
    optimizers = [
        table_class(sparse.name)(tables, **sparse_arguments(sparse)),
        torch.optim.Adam(dense, lr=run.optimizers.dense.learning_rate),
    ]
    for batch in training_batches(source, run.data.batch_sizes(1), features_of(task), rank=0, ranks=1):
        loss, _ = task(batch)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return task


def trained_plainly(run: Run) -> dict[str, float]:
    task = plain_task(run).eval()
    test = open_data(run.data.test, "data.test")
    words: Any = {"rank": 0, "world_size": 1, "batch_size": 65_536, "seed": 0, "shuffle": False, "drop_last": False}
    with test.batches(**words) as batches, torch.no_grad():
        found = [task(as_tensors(batch, features_of(task)))[1] for batch in batches]
    logits = torch.cat([each[1].flatten() for each in found]).numpy()
    labels = torch.cat([each[2].flatten() for each in found]).numpy()
    counted = [each.numel() for name, each in task.named_parameters() if ".movie" in name or ".combine." in name]
    return {"auc": float(area_under_curve(logits.astype(np.float64), labels)), "parameters": sum(counted)}


def movie_parameters(file: Path) -> int:
    """Parameters of the physical tables of the movies, and of what puts them together."""
    from safetensors import safe_open

    with safe_open(file, framework="np") as opened:
        shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
    counted = [shape for name, shape in shapes.items() if ".movie" in name or ".combine." in name]
    return sum(math.prod(shape) for shape in counted)


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def smaller(row: dict[str, Any]) -> TrainedSmaller:
    """A row with the bytes of the movie table, the map included where the method needs one."""
    maps = 4 * MOVIES if row["method"] in ("learned_hash", "mixed_dimension") else 0
    words = {name: row[name] for name in ("method", "factor", "seed", "auc")}
    return TrainedSmaller(**words, weight_bytes=4 * row["parameters"], map_bytes=maps)


def show(found: list[dict[str, Any]]) -> None:
    """A line for each method and factor: mean AUC, half its 95 % interval, and how much smaller the table became."""
    full = next((row["parameters"] for row in found if row["method"] == "full"), None)
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["method"], row["factor"]), []).append(row)
    print("| method | smaller by | AUC | 95 % interval | seeds |\n|---|---|---|---|---|")
    for (method, _), members in sorted(groups.items()):
        aucs = [row["auc"] for row in members]
        within = (
            STUDENT[min(5, len(aucs))] * statistics.stdev(aucs) / len(aucs) ** 0.5 if len(aucs) > 1 else float("nan")
        )
        smaller = (full or float("nan")) / members[0]["parameters"]
        print(f"| {method} | {smaller:.2f}x | {statistics.fmean(aucs):.4f} | ± {within:.4f} | {len(aucs)} |")


if __name__ == "__main__":
    main()
