"""Propose a run with compressed tables for a run or a dataset: rules, id maps of its data, and its file."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recsmith._components import load
from recsmith._types import Ints, noun
from recsmith.data import DataSchema
from recsmith.embeddings import CompressionRule, IdMap, by_popularity, save_maps
from recsmith.embeddings.compression import method_of
from recsmith.embeddings.mixed_dimension import MixedDimensions, kernel_width, power_rule
from recsmith.embeddings.workloads import Compressed, compress, compress_to, mildest, workload_tables
from recsmith.errors import UsageError
from recsmith.files import parse, read_text, source_text
from recsmith.training.run import SCHEMA, Run, RunModel, RunTable, load_run
from recsmith.training.run.data import RunData
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data
from recsmith.training.systems.stored.id_maps import OnProgress, hash_maps, id_counts
from recsmith.workloads import Feature, Table, Workload

SHARES = (0.02, 0.08, 0.2, 0.7)  # of a table's ids in blocks, by popularity; more blocks fit better, but cost lookups


@noun
class Proposal:
    """A run with compressed tables, and the tables it has. maps: of ids, which its rules name."""

    run: Run
    compressed: Compressed
    maps: dict[str, IdMap]


def data_run(data: str, workload: Workload | None) -> Run:
    """The run in a run's file; for a dataset, a default run that trains the tables of a workload on it.

    Raises what reading it raises.
    """
    text = source_text(data, "a run or a dataset")
    path = Path(text)
    if path.is_file() and path.suffix in (".yaml", ".yml", ".json"):
        raw = parse(read_text(text), text)
        if isinstance(raw, dict) and raw.get("schema") == SCHEMA:
            return load_run(text)
    run = Run(data=RunData(train=text), output=f"runs/{path.stem}")
    return run if workload is None else replace(run, model=_model_of(workload))


def _model_of(workload: Workload) -> RunModel:
    """The tables of a workload as a run's model."""
    widths = {table.embedding_dim for table in workload.tables}
    if len(widths) != 1:
        raise UsageError(
            f"the tables are {', '.join(map(str, sorted(widths)))} columns wide and the built-in models want one "
            "width; give --data a run with a model of your own"
        )
    tables = tuple(
        RunTable(
            name=table.name,
            num_embeddings=table.num_embeddings,
            features=tuple(feature.name for feature in table.features),
            pooling=table.pooling,
            data_type=table.data_type,
        )
        for table in workload.tables
    )
    return RunModel(embedding_dim=widths.pop(), tables=tables)


def run_workload(run: Run) -> Workload:
    """The tables of a run as a workload for the planner, with mean ids per sample from the data's schema."""
    schema = open_data(run.data.train, "data.train").schema
    means = {feature.name: feature.pooling_factor or 1.0 for feature in schema.features}
    tables = tuple(
        Table(
            name=table.name,
            num_embeddings=table.num_embeddings,
            embedding_dim=table.embedding_dim or run.model.embedding_dim,
            features=tuple(Feature(name=name, pooling_factor=means[name]) for name in table.features),
            pooling=table.pooling,
            data_type=table.data_type,
            optimizer=run.optimizers.sparse.of(table.name).name,
        )
        for table in tables_of(run.model, schema)
    )
    sparse: Any = run.optimizers.sparse.name
    return Workload(batch_size=run.data.largest_batch, optimizer=sparse, tables=tables)


def propose(
    run: Run, workload: Workload, target: float, method: str, maps: str, on_progress: OnProgress = lambda _: None,
    **fields: Any,
) -> Proposal:  # fmt: skip
    """Propose a run whose tables have `target` times fewer parameters, and write its maps to the file `maps`.

    learned_hash trains a cheap model for its maps. mixed_dimension cuts every table into blocks by how often ids occur
    in the training data, and the power rule gives each block its width. fields: of rules, such as tables and
    above_rows; `operation` is dropped if the method does not use it.

    Raises:
        UsageError: the target cannot be reached, or the run's tables are not the workload's.
    """
    kind = method_of(method)
    fields = {name: value for name, value in fields.items() if name != "operation" or name in kind.reads}
    _check_same(workload, run, open_data(run.data.train, "data.train").schema)
    from_data = FROM_DATA.get(method) or (load(kind.from_data) if kind.from_data else None)
    if from_data is not None:
        made, rules = from_data(Wanted(run, workload, target, maps, fields, on_progress))
    else:
        made, rules = {}, compress_to(workload, target, method, **fields).rules
    compressed = compress(workload, rules)
    small = replace(run, model=replace(run.model, compression=tuple(rules)), plan="auto", output=f"{run.output}-small")
    return Proposal(run=small, compressed=compressed, maps=dict(made))


class Wanted(NamedTuple):
    """The input of a method that makes rules from data. maps: the file to which it writes its maps of ids."""

    run: Run
    workload: Workload
    target: float
    maps: str
    fields: dict[str, Any]
    on_progress: OnProgress


MapsAndRules = tuple[dict[str, IdMap], tuple[CompressionRule, ...]]


def hash_rules(wanted: Wanted) -> MapsAndRules:
    """Learned hashes, by the factor with which a fixed hash would reach the target."""
    fields = wanted.fields
    factor = compress_to(wanted.workload, wanted.target, "hash", **fields).rules[0].factor
    wanted.on_progress(f"learning hashes {factor:.3g} times smaller")
    above = {name: value for name, value in fields.items() if name == "above_rows"}
    made = hash_maps(wanted.run, factor, **above, on_progress=wanted.on_progress)
    save_maps(made, wanted.maps)
    return made, (CompressionRule(method="learned_hash", factor=factor, maps=wanted.maps, **fields),)


def block_rules(wanted: Wanted) -> MapsAndRules:
    """The largest widths of blocks that reach the target, with a rule for each table, since widths differ."""
    wanted.on_progress("counting ids")
    rule = CompressionRule(method="mixed_dimension", **wanted.fields)
    mine = [table for table in workload_tables(wanted.workload) if rule.fits(table)]
    dataset = open_data(wanted.run.data.train, "data.train")
    names = {table.name for table in mine}
    tables = [table for table in tables_of(wanted.run.model, dataset.schema) if table.name in names]
    if not tables:
        raise UsageError(f"no table has more than {rule.above_rows:,} rows; lower above_rows")
    counts = id_counts(dataset, tables)
    made = {name: by_popularity(each) for name, each in counts.items()}
    save_maps(made, wanted.maps)

    def found(temperature: float) -> Compressed:
        rules = [
            replace(rule, tables=each.name, maps=wanted.maps, shares=SHARES, temperature=temperature,
                    widths=block_widths(counts[each.name], each.embedding_dim, temperature))
            for each in mine
        ]  # fmt: skip
        return compress(wanted.workload, rules)

    return made, mildest(MixedDimensions.dial, wanted.target, found, rule.method).rules


def block_widths(counts: Ints, embedding_dim: int, temperature: float) -> tuple[int, ...]:
    """Columns of each block (SHARES) of a table's ids, by the power rule. counts: how often each id occurs."""
    falling = np.sort(counts)[::-1]
    ends = [round(len(falling) * sum(SHARES[: k + 1])) for k in range(len(SHARES))]
    blocks = [falling[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    rows = [max(1, len(block)) for block in blocks]
    queries = [float(block.sum()) + 1.0 for block in blocks]  # plus one, so that ids that never occur have a width too
    widths = power_rule(rows, temperature=temperature, base_dim=embedding_dim, queries=queries)
    return tuple(min(embedding_dim, kernel_width(width)) for width in widths.tolist())


def _check_same(workload: Workload, run: Run, schema: DataSchema) -> None:
    """Raise UsageError if a run's tables differ from those of a workload."""
    mine = {table.name: table.num_embeddings for table in tables_of(run.model, schema)}
    asked = {table.name: table.num_embeddings for table in workload.tables}
    odd = next((name for name in sorted({*mine, *asked}) if mine.get(name) != asked.get(name)), None)
    if odd is not None:
        raise UsageError(
            f"table '{odd}' has {asked.get(odd, 'no')} rows in the workload and {mine.get(odd, 'none')} in the run of "
            "--data; leave the workload out, and the run's own tables are taken"
        )


FROM_DATA = {"learned_hash": hash_rules, "mixed_dimension": block_rules}  # make rules of built-in methods from data
