"""Cost models beside measured samples of any optimizer: predicted over measured seconds of each folder.

python benchmarks/gpu/predicted.py samples/h200-production --cluster h200 --models neural:h200,analytic,torchrec
python benchmarks/gpu/predicted.py FOLDER --models neural:mine.safetensors --most 300       # of each folder at most

FOLDER is one of samples, or holds several. Each sample is priced as one kernel on one device of the cluster, forward
and backward together. The error is |predicted / measured - 1|. Kernels that hold blocks of rows are left out, for their
ids are those of a block and no workload says so. What a model refuses is said beside its row. Learned models warn of
each table that is larger than those they learned from; that is not shown.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.costs.protocol import CostModel
from recsmith.errors import RecSmithError
from recsmith.workloads import AccessProfile, Feature, Table, Workload

HEADER = "| samples | optimizer | groups | model | predicted / measured, median | off by, median | 90th percentile |"
BLOCKS = "blocks"  # in names of folders with kernels of row blocks
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cluster", default="h200")
    parser.add_argument("--models", default="neural:h200,analytic,torchrec")
    parser.add_argument("--most", type=int, default=100_000)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*extrapolates beyond")
    device = one_device(load_cluster(options.cluster))
    for line in table(options.folder, options.models.split(","), device, options.most):
        print(line, flush=True)


def table(folder: Path, names: list[str], device: Cluster, most: int) -> Iterator[str]:
    """The table's lines: each folder, all of it and by optimizer, under each model."""
    yield HEADER + "\n|" + "---|" * HEADER.count(" |")
    models = {name: cost_model(name) for name in names}
    for home in homes(folder):
        rows = samples_of(home)
        rows = rows[:: -(-len(rows) // most)]
        for name, model in models.items():
            found = [ratio(model, row, device) for row in rows]
            kinds = sorted({row["optimizer"] for row in rows})
            for kind in kinds if len(kinds) == 1 else ["all", *kinds]:
                chosen = [each for each, row in zip(found, rows, strict=True) if kind in ("all", row["optimizer"])]
                yield f"| {home.name} | {kind} | {len(chosen):,} | {name} | {cells(chosen)} |"


def homes(folder: Path) -> list[Path]:
    if (folder / "about.json").exists():
        return [folder]
    return [path.parent for path in sorted(folder.glob("*/about.json")) if BLOCKS not in path.parent.name]


def samples_of(home: Path) -> list[Row]:
    import pyarrow.parquet as pq

    rows = [row for part in sorted(home.glob("*.parquet")) for row in pq.read_table(part).to_pylist()]
    return [row for row in rows if row["status"] == "ok" and row["visit"] == 0]


def ratio(model: CostModel, row: Row, device: Cluster) -> float | str:
    """Predicted over measured seconds, or in which words the model refuses."""
    try:
        predicted = float(group_seconds(model, workload_of(row), device).sum())
    except RecSmithError as error:
        return str(error).splitlines()[0]
    return predicted / (row["forward_s"] + row["backward_s"])


def workload_of(row: Row) -> Workload:
    each = zip(row["rows"], row["dim"], row["pooling_factor"], row["zipf"], strict=True)
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, data_type=row["data_type"],
              features=(Feature(name=f"t{i}", pooling_factor=pooling),), access=AccessProfile(zipf=zipf))
        for i, (rows, dim, pooling, zipf) in enumerate(each)
    )  # fmt: skip
    return Workload(batch_size=row["batch_size"], optimizer=row["optimizer"], tables=tables)


def cells(found: list[float | str]) -> str:
    ratios = np.array([each for each in found if not isinstance(each, str)])
    refused = [each for each in found if isinstance(each, str)]
    if not ratios.size:
        return f"refused: {refused[0]} | |"
    median, (middle, high) = np.median(ratios), np.percentile(np.abs(ratios - 1), (50, 90))
    return f"{median:.2f} | {middle:.1%} | {high:.1%}" + (f" ({len(refused):,} refused)" if refused else "")


if __name__ == "__main__":
    try:
        main()
    except RecSmithError as error:
        raise SystemExit(str(error)) from None
