"""What tables in fp16 and int8 cost a model of MovieLens: AUC, scores and bytes of an export beside that in fp32.

    python benchmarks/served_tables.py --data ml-latest-small -o served_tables.jsonl

Trains the model of examples/movielens.yaml on one rank, with tables of 8 and of 32 columns, exports it
in each form, and scores the test ratings by `load_model` of each export.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from recsmith.data import open_dataset, spec_from_raw
from recsmith.scoring.predictions import exact_auc
from recsmith.training import (
    DenseOptimizer,
    Run,
    RunData,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    load_model,
    train,
)
from recsmith.training.results.quantised_tables import write_quantised
from recsmith.training.tables.protocol import table_of

FORMS = ("fp32", "fp16", "int8")
BATCH = 4096


def trained(data: str, output: Path, columns: int, epochs: int) -> Path:
    """The folder of a model."""
    rows = {"format": "movielens", "path": data, "max_user_id": 671}
    run = Run(
        data=RunData(train={**rows, "split": "train"}, test={**rows, "split": "test"}, batch_size=512, epochs=epochs),
        model=RunModel(name="dlrm", embedding_dim=columns, bottom=(64,), top=(64, 32)),
        optimizers=RunOptimizers(
            sparse=SparseOptimizer(name="adagrad", learning_rate=0.03), dense=DenseOptimizer(learning_rate=0.001)
        ),
        output=str(output), ranks=1, checkpoint=None,
    )  # fmt: skip
    train(run)
    return output / "model"


def stored(model: Path, folder: Path, form: str) -> Path:
    """The model in a form. The data has ids alone, for which `recsmith export` has no raw rows."""
    if form == "fp32":
        return model
    folder.mkdir()
    write_quantised(model, folder, form)  # type: ignore[arg-type]
    card = json.loads((model / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "tables": form}))
    return folder


def scored(model: Path, data: str) -> tuple[np.ndarray, np.ndarray]:
    """(scores, labels) of the test ratings."""
    spec = spec_from_raw({"format": "movielens", "path": data, "max_user_id": 671, "split": "test"}, "data")
    predictor, said, labels = load_model(model), list[np.ndarray](), list[np.ndarray]()
    for batch in open_dataset(spec).batches(
        rank=0, world_size=1, batch_size=BATCH, seed=0, shuffle=False, drop_last=False
    ):
        said.append(predictor.predict(batch)[:, 0])
        labels.append(batch.labels[:, 0])
    return np.concatenate(said), np.concatenate(labels)


def table_bytes(model: Path) -> int:
    """Bytes of the tables of a model."""
    with safe_open(model / "weights.safetensors", framework="pt") as opened:
        return sum(opened.get_tensor(name).nbytes for name in opened.keys() if table_of(name))  # noqa: SIM118


def main() -> None:
    """Train, export and score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-latest-small")
    parser.add_argument("--columns", default="8,32")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for columns in map(int, options.columns.split(",")):
            model, first = trained(options.data, Path(folder) / str(columns), columns, options.epochs), None
            for form in FORMS:
                there = stored(model, Path(folder) / f"{columns}-{form}", form)
                scores, labels = scored(there, options.data)
                auc = exact_auc(torch.from_numpy(scores), torch.from_numpy(labels))
                first = first or (scores, auc)
                row = {
                    "columns": columns, "tables": form, "bytes": table_bytes(there), "samples": len(scores), "auc": auc,
                    "auc_difference": None if auc is None or first[1] is None else auc - first[1],
                    "largest_difference": float(np.abs(scores - first[0]).max()),
                }  # fmt: skip
                lines.append(json.dumps(row))
                print(lines[-1])
    if options.output:
        Path(options.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
