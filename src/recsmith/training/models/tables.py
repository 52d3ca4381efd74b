"""Which tables a history model reads: makes them for the data, and checks those that a run names; without torch."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from recsmith.data import DataSchema
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.models.settings import SequenceSettings

POOLING = ("din",)  # history models that also read pooled tables and dense columns


class NamedTable(Protocol):
    """The fields of a run's table that are used here."""

    @property
    def name(self) -> str:
        """Unique name of the table."""
        ...

    @property
    def pooling(self) -> str:
        """Its pooling, such as none."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """The features that it looks up."""
        ...


def shared(settings: SequenceSettings) -> list[tuple[str, tuple[str, ...]]]:
    """(table, features) that a model looks up as sequences, if a run names no tables."""
    found = [(target, (history, target)) for history, target in zip(settings.history, settings.target, strict=True)]
    single = [*((settings.actions,) if settings.actions else ()), *getattr(settings, "context", ())]
    return [*found, *((name, (name,)) for name in single)]


def events_of(settings: SequenceSettings) -> list[str]:
    """Features of each event of a history, whose vectors are added."""
    return [*settings.history, *([settings.actions] if settings.actions else [])]


def carried(settings: SequenceSettings) -> tuple[str, ...]:
    """Numeric features that a model reads without a table: times."""
    times = getattr(settings, "times", None), getattr(settings, "target_time", None)
    return tuple(each for each in times if each is not None)


def sequence_tables(
    settings: SequenceSettings, sizes: Mapping[str, int | None], *, pools: bool
) -> list[tuple[str, tuple[str, ...], int, Literal["sum", "none"]]]:
    """(name, features, rows, pooling) of the tables of a sequence model, if a run names none.

    sizes: number of ids of each feature of the data. pools: whether the model also reads the data's other features,
    pooled; features whose ids are not counted are left out, because they may be times.

    Raises:
        UsageError: the data lacks a feature, or does not say how many ids it has.
    """
    wanted = shared(settings)
    read = {name for _, features in wanted for name in features} | set(carried(settings))
    for name in sorted(read):
        if name not in sizes:
            raise UsageError(
                f"the model reads feature '{name}', and the data has none of that name"
                f"{did_you_mean(name, list(sizes))}; name it in model.arguments"
            )
    pooled = [name for name, size in sizes.items() if pools and size is not None and name not in read]
    made = [*wanted, *((name, (name,)) for name in pooled)]
    for table, features in made:
        unsaid = next((name for name in features if sizes[name] is None), None)
        if unsaid is not None:
            raise UsageError(
                f"the data does not say how many ids feature '{unsaid}' has; name the tables of the model "
                f"(model.tables: [{{name: {table}, features: [{', '.join(features)}], num_embeddings: ...}}])"
            )
    return [
        (table, features, max(sizes[name] or 1 for name in features), "sum" if table in pooled else "none")
        for table, features in made
    ]


def check_tables(name: str, settings: SequenceSettings, tables: Sequence[NamedTable], schema: DataSchema) -> None:
    """Refuse tables and data that a history model cannot read. name: name of the model.

    Raises:
        UsageError: a feature is not looked up in a sequence table, times are looked up, or there are tables or columns
            that the model does not read.
    """
    unpooled_last = sorted(tables, key=lambda table: table.pooling == "none")
    held = {feature: table for table in unpooled_last for feature in table.features}
    _check_once(name, settings, tables)
    for each in carried(settings):
        if each in held:
            raise UsageError(
                f"table '{held[each].name}' looks up '{each}', which {name} reads as times; leave it out of "
                "model.tables"
            )
        if each not in schema.feature_names:
            raise UsageError(
                f"{name} reads times from feature '{each}', and the data has none of that name"
                f"{did_you_mean(each, list(schema.feature_names))}; name it in model.arguments"
            )
    for home, features in shared(settings):
        _check_shared(name, home, features, held)
    if name in POOLING:
        return
    pooled = next((table.name for table in tables if table.pooling != "none"), None)
    if pooled is not None:
        raise UsageError(f"table '{pooled}' is pooled, and {name} reads sequences alone; leave it out, or take din")
    if schema.dense:
        raise UsageError(
            f"{name} reads no dense columns, and the data has {len(schema.dense)} ({', '.join(schema.dense[:4])}); "
            "leave them out, or take din"
        )


def _check_once(name: str, settings: SequenceSettings, tables: Sequence[NamedTable]) -> None:
    """UsageError if a feature that is read as a sequence is looked up in two sequence tables."""
    for feature in dict.fromkeys(feature for _, features in shared(settings) for feature in features):
        of = [table.name for table in tables if table.pooling == "none" and feature in table.features]
        if len(of) > 1:
            raise UsageError(
                f"{name} reads the rows of feature '{feature}' from one table, and '{of[0]}' and '{of[1]}' have "
                "pooling none and look it up; name it in one of them"
            )


def _check_shared(name: str, home: str, features: Sequence[str], held: Mapping[str, NamedTable]) -> None:
    """UsageError unless features that are read as sequences are all in one sequence table."""
    for feature in features:
        table = held.get(feature)
        if table is None or table.pooling != "none":
            found = "no table looks it up" if table is None else f"table '{table.name}' pools it"
            raise UsageError(
                f"{name} reads the rows of feature '{feature}', and {found}; write model.tables: [{{name: {home}, "
                f"features: [{', '.join(features)}], pooling: none, ...}}], or leave model.tables out"
            )
        if table is not held[features[0]]:
            raise UsageError(
                f"features '{features[0]}' and '{feature}' are looked up in '{held[features[0]].name}' and "
                f"'{table.name}', and {name} scores a target by the rows of its history; look both up in one table"
            )
