"""Tables of a user's jobs, on which policies learn instead of the shared pool.

    recsmith learn splits --tables jobs/ -o mine.safetensors

A folder may hold workloads (.yaml, .yml, .json, .csv), plans, whose tables are used, and folders of runs, whose
plan.json is used. As with tables of the pool, a task uses fp32 and SGD, and each table has one feature that stands for
all of its features.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from recsmith.errors import UsageError
from recsmith.files import dump_json, encode, in_order, parse, read_text, source_text
from recsmith.plans import load_plan
from recsmith.workloads import Feature, Table, load_workload
from recsmith.workloads.workload import Workload

SUFFIXES = (".yaml", ".yml", ".json", ".csv")
LEAST = 10  # tables: half of them train, and half judge
PLAN = "recsmith/plan/"
ANY_BATCH = 1  # batch size for a CSV file, which has none; tasks have batch sizes of their own


@lru_cache(maxsize=4)
def own_tables(source: str) -> tuple[Table, ...]:
    """The different tables of a file or a folder, in the order of files and of tables in them.

    Raises:
        UsageError: there is no file, or fewer than LEAST tables.
        CorruptFile: a file is neither a workload nor a plan.
    """
    found = dict[str, Table]()
    for file in _files(source):
        for table in _workload(file).tables:
            plain = _alone(table)
            found.setdefault(_key(plain), plain)
    if len(found) < LEAST:
        raise UsageError(
            f"'{source}' has {len(found)} different tables, and a policy needs {LEAST} or more, half of which judge "
            "it; name a folder of more workloads or plans, or leave --tables out, which takes those of the shared pool"
        )
    return tuple(found.values())


def digest_of(tables: tuple[Table, ...]) -> str:
    """Digest of tables, independent of the files that hold them."""
    return hashlib.sha256("\n".join(sorted(map(_key, tables))).encode()).hexdigest()[:16]


def _files(source: str) -> Iterator[str]:
    path = Path(source_text(source, "a folder"))
    if not path.is_dir():
        yield str(path)
        return
    inside = [each for each in path.iterdir() if each.suffix.lower() in SUFFIXES and each.is_file()]
    of_runs = [each / "plan.json" for each in path.iterdir() if (each / "plan.json").is_file()]
    if not inside and not of_runs:
        raise UsageError(
            f"'{source}' holds no workload or plan ({', '.join(SUFFIXES)}), and no folder of a run with a plan.json; "
            "name the folder that your tables are in"
        )
    yield from map(str, in_order([*inside, *of_runs]))


def _workload(file: str) -> Workload:
    if file.lower().endswith(".csv"):
        return load_workload(file, batch_size=ANY_BATCH)
    if file.endswith(".json") and str(parse(read_text(file), file).get("schema", "")).startswith(PLAN):
        return load_plan(file).workload
    return load_workload(file)


def _alone(table: Table) -> Table:
    """The table with one feature, which has the ids and bags of all of its features."""
    bags = sum(each.num_poolings for each in table.features)
    ids = sum(each.pooling_factor * each.num_poolings for each in table.features)
    feature = Feature(name=table.name, pooling_factor=ids / bags if bags else 0.0, num_poolings=bags)
    return Table(
        name=table.name, num_embeddings=table.num_embeddings, embedding_dim=table.embedding_dim, features=(feature,),
        access=table.access,
    )  # fmt: skip


def _key(table: Table) -> str:
    """A text that identifies a table by everything but its name."""
    [feature] = table.features
    return dump_json(encode(replace(table, name="t", features=(replace(feature, name="t"),))))
