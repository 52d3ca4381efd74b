"""Id maps of a run's tables, made from its training data: orders by popularity, and learned hashes.

S ids of a table, d columns of the cheap embedding
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors import safe_open

from recsmith._types import Floats, Ints
from recsmith.data import Dataset
from recsmith.embeddings import IdMap, by_popularity, learn_hash
from recsmith.embeddings.hashing import KNOWN
from recsmith.errors import RecSmithError, UsageError
from recsmith.training.job.card import MODEL
from recsmith.training.launch.launching import train
from recsmith.training.run import Run, RunTable
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data

BATCH = 65_536  # samples that are counted at once
COLUMNS, FEW_COLUMNS = 8, 4  # of the training for learned hashes; trade-off: fewer columns learn less, also less noise
OFTEN = 20  # median occurrences of an id; below, vectors are mostly noise, and few columns do better
OnProgress = Callable[[str], object]


def popularity_maps(run: Run) -> dict[str, IdMap]:
    """The ids of each table in order of how often they occur in the training data.

    Raises what reading the data raises.
    """
    dataset = open_data(run.data.train, "data.train")
    tables = tables_of(run.model, dataset.schema)
    return {name: by_popularity(counts) for name, counts in id_counts(dataset, tables).items()}


def hash_maps(
    run: Run, factor: float, *, above_rows: int = 200, columns: int | None = None, private: float = 0.5,
    only: Sequence[str] | None = None, on_progress: OnProgress = lambda _: None,
) -> dict[str, IdMap]:  # fmt: skip
    """Learned hashes of all tables with more than above_rows rows, each with `factor` times fewer rows.

    The run is trained once with uncompressed tables of `columns` columns; None: chosen by `cheap_columns` from counts
    of ids. Then ids with similar vectors share rows, weighted by how often they occur. private: share of the rows that
    are reserved for the most frequent ids, one each.
    only: names of tables; None: all that are large enough.

    Raises:
        UsageError: no table is large enough, or what training and clustering raise.
    """
    from recsmith.training.job.export import WEIGHTS  # needs torch, which counting does not

    dataset = open_data(run.data.train, "data.train")
    tables = [
        table for table in tables_of(run.model, dataset.schema)
        if table.num_embeddings > above_rows and (only is None or table.name in only)
    ]  # fmt: skip
    if not tables:
        raise UsageError(f"no table of this run has more than {above_rows} rows; lower above_rows")
    counts = id_counts(dataset, tables)
    columns = columns or cheap_columns(list(counts.values()))
    with tempfile.TemporaryDirectory() as folder:
        on_progress(f"training with {columns} columns")
        named = tuple(replace(table, embedding_dim=columns) for table in run.model.tables)
        model = replace(run.model, embedding_dim=columns, tables=named, compression=())
        data = replace(run.data, test=None)
        if not train(replace(run, model=model, data=data, output=folder, checkpoint=None, plan="auto"))["complete"]:
            raise RecSmithError("a signal ended the training that ids are grouped by; the same command begins it again")
        vectors = _weights(Path(folder) / MODEL / WEIGHTS, [table.name for table in tables])
    made: dict[str, IdMap] = {}
    for table in tables:
        on_progress(f"clustering {table.num_embeddings:,} ids of '{table.name}'")
        rows = max(1, round(table.num_embeddings / factor))
        made[table.name] = learn_hash(vectors[table.name], counts[table.name], rows, private=private, seed=run.seed)
    return made


def cheap_columns(counts: Sequence[Ints]) -> int:
    """Columns of the cheap training: few if most ids occur rarely. counts: how often each id of a table occurs (S,)."""
    known = np.concatenate([each[each >= KNOWN] for each in counts])
    return COLUMNS if len(known) and np.median(known) >= OFTEN else FEW_COLUMNS


def id_counts(dataset: Dataset, tables: Sequence[RunTable]) -> dict[str, Ints]:
    """How often each id of each table occurs in a dataset (S,), by table name."""
    counts = {table.name: np.zeros(table.num_embeddings, dtype=np.int64) for table in tables}
    with dataset.batches(rank=0, world_size=1, batch_size=BATCH, seed=0, shuffle=False, drop_last=False) as batches:
        for batch in batches:
            for table in tables:
                for feature in table.features:
                    found = np.bincount(batch.ids[feature].values, minlength=table.num_embeddings)
                    counts[table.name] += found
    return counts


def _weights(file: Path, tables: list[str]) -> dict[str, Floats]:
    """The weights of tables (S, d), read from an exported model's file."""
    with safe_open(file, framework="np") as opened:
        names = {table: next(name for name in opened.keys() if f".{table}.weight" in name) for table in tables}  # noqa: SIM118
        return {table: opened.get_tensor(name).astype(np.float64) for table, name in names.items()}
