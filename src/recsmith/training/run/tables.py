"""The embedding tables of a run: the tables it names, or one table for each feature of its data; without torch."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recsmith.data import DataSchema
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.models import POOLING, WIDE, WideDeepSettings, model_settings, sequence_settings, sequence_tables
from recsmith.training.run import RunModel, RunTable
from recsmith.training.seams import systems


def tables_of(model: RunModel, schema: DataSchema) -> tuple[RunTable, ...]:
    """The run's tables, with every field filled in.

    Raises:
        UsageError: a table names a feature that the data lacks, or names a feature twice; a table has fewer rows than
            the
            feature has ids; or the data does not say how many ids a feature has.
    """
    sizes: Mapping[str, int | None] = {feature.name: feature.num_embeddings for feature in schema.features}
    for system in systems():
        sizes = system.sizes(model, sizes)
    if model.tables:
        made = tuple(
            replace(
                each, features=each.features or (each.name,), embedding_dim=each.embedding_dim or model.embedding_dim
            )
            for each in model.tables
        )
    elif (settings := sequence_settings(model.name, model.arguments)) is not None:
        made = tuple(
            RunTable(name=name, num_embeddings=rows, embedding_dim=model.embedding_dim, features=of, pooling=pooling)
            for name, of, rows, pooling in sequence_tables(settings, sizes, pools=model.name in POOLING)
        )
    else:
        made = tuple(_table_of(name, rows, model) for name, rows in sizes.items())
        if isinstance(own := model_settings(model.name, model.arguments), WideDeepSettings):
            made += tuple(_wide_table(table, own) for table in made)
    _check_names(made)
    if model.tables:
        _check_features(made, sizes)
    return made


def _check_names(tables: tuple[RunTable, ...]) -> None:
    """UsageError if a table's name cannot be the name of a submodule in PyTorch, is empty, or occurs twice."""
    twin = next((name for name, count in Counter(table.name for table in tables).items() if count > 1), None)
    if twin is not None:
        raise UsageError(f"two tables would be named '{twin}'; name the tables of the model (model.tables)")
    for table in tables:
        if not table.name:
            raise UsageError("a table of the model has an empty name; give it one")
        if "." in table.name:
            raise UsageError(name_refused(table))


def name_refused(table: RunTable) -> str:
    """The error text for a table name that PyTorch cannot use, with a name that works."""
    other = f"table_{re.sub(r'[^a-zA-Z0-9]', '_', table.name)}"
    return (
        f"'{table.name}' cannot be the name of a table that is trained: PyTorch holds tables as attributes, which "
        "have no dots in their names, and has methods of some names; keep the feature and name its table "
        f"otherwise, such as model.tables: [{{name: {other}, features: [{', '.join(table.features or (table.name,))}], "
        f"num_embeddings: {table.num_embeddings}}}, ...]"
    )


def _table_of(feature: str, num_embeddings: int | None, model: RunModel) -> RunTable:
    if num_embeddings is None:
        raise UsageError(
            f"the data does not say how many ids feature '{feature}' has; name the tables of the model "
            f"(model.tables: [{{name: {feature}, num_embeddings: ...}}])"
        )
    return RunTable(name=feature, num_embeddings=num_embeddings, embedding_dim=model.embedding_dim, features=(feature,))


def _wide_table(table: RunTable, settings: WideDeepSettings) -> RunTable:
    """The table of wide weights that belongs to a table of vectors, for the same feature."""
    return replace(table, name=f"{table.name}{WIDE}", embedding_dim=settings.wide_columns)


def shared_features(tables: Sequence[RunTable]) -> list[str]:
    """Features that several tables look up, whose vectors TorchRec names 'feature@table'."""
    counts = Counter(feature for table in tables for feature in table.features or (table.name,))
    return [feature for feature, count in counts.items() if count > 1]


def _check_features(tables: tuple[RunTable, ...], sizes: Mapping[str, int | None]) -> None:
    for table in tables:
        for feature in table.features:
            if feature not in sizes:
                raise UsageError(
                    f"table '{table.name}' looks up feature '{feature}', which the data does not have"
                    f"{did_you_mean(feature, list(sizes))}"
                )
            if table.features.count(feature) > 1:
                raise UsageError(f"table '{table.name}' names feature '{feature}' twice; name it once")
            if (sizes[feature] or 0) > table.num_embeddings:
                raise UsageError(
                    f"table '{table.name}' has {table.num_embeddings:,} rows, and ids of feature '{feature}' go up to "
                    f"{(sizes[feature] or 0) - 1:,}; give it as many rows"
                )
