"""Datasets: opened from a path or a spec, they give each rank of a training job its batches."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

from recsmith._components import NAME, find, known, make, register
from recsmith._types import noun
from recsmith.data.batch import DataSchema
from recsmith.data.batches import Batches, BatchReader
from recsmith.data.dealing import Deal, check_deal
from recsmith.data.domain import CheckedSource
from recsmith.data.order import WINDOW, EpochOrder, Position
from recsmith.data.source import BlockSource, DataSpec, FirstBlocks, GrowingSource
from recsmith.data.transforms.declared import Transform, transform_from_raw, transform_to_raw
from recsmith.data.transforms.graph import TransformedSource
from recsmith.errors import CorruptFile, UsageError, check_rules, too_small
from recsmith.files import (
    AnyPath,
    Raw,
    Source,
    check_is_file,
    check_schema,
    decode,
    did_you_mean,
    encode,
    parse,
    path_of,
    read_text,
    source_text,
)

SCHEMA = "recsmith/dataset/1"
SPEC_ENDINGS = (".yaml", ".yml", ".json")
COLUMN_ENDINGS = (".parquet", ".arrow", ".feather")
TRANSFORM_KEYS = ("transforms", "wrong", "max_wrong")  # keys of a spec with transforms, besides its format's own
FORMAT = "format"  # the kind of component, and the key of a spec that names the component
register(FORMAT, "criteo", "recsmith.data.criteo.source:CriteoSource")
register(FORMAT, "generator", "recsmith.data.generator.source:GeneratorSource")
register(FORMAT, "movielens", "recsmith.data.movielens:MovieLensSource")
register(FORMAT, "parquet", "recsmith.data.parquet.source:ParquetSource")
register(FORMAT, "text", "recsmith.data.text.source:TextSource")
register(FORMAT, "sequences", "recsmith.data.sequences.source:SequencesSource")


class Dataset:
    """Samples that training reads, of any format: their schema, how many there are, and the batches of each rank."""

    def __init__(self, source: BlockSource) -> None:
        self.source = source

    @property
    def schema(self) -> DataSchema:
        """Features, dense columns and labels of every sample."""
        return self.source.schema

    @property
    def num_samples(self) -> int | None:
        """Number of samples in an epoch; None if they have not been counted yet."""
        return self.source.num_samples

    @property
    def note(self) -> str:
        """A remark about the data for people, such as columns that files lack; empty for most data."""
        source: Any = self.source
        return getattr(getattr(source, "source", source), "note", "")

    @property
    def part(self) -> str:
        """Which part of the available samples this dataset reads, in words; empty if it reads all of them."""
        source: Any = self.source
        return getattr(getattr(source, "source", source), "part", "")

    @property
    def samples_per_target(self) -> int:
        """Number of samples of each target, itself and its negatives, which are numbered consecutively."""
        source: Any = self.source
        return getattr(getattr(source, "source", source), "samples_per_target", 1)

    def batches(
        self,
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        epoch: int = 0,
        position: Position | None = None,
        drop_last: bool = False,
        together: int = 1,
        window: int = WINDOW,
        deduplicate: Sequence[Sequence[str]] = (),
        deal: Deal | None = None,
    ) -> Batches:
        """The batches of one rank in an epoch; over all ranks, each sample is used once.

        All ranks get the same number of batches. The order of samples is that of `recsmith.data.order`: it follows
        from seed and epoch, and does not depend on the world size.

        Args:
            rank: the rank, from 0 to world_size - 1.
            world_size: number of ranks.
            batch_size: samples per rank and step.
            seed: seed of the order, 0 or more.
            shuffle: whether to shuffle; otherwise samples come in stored order.
            epoch: number of the epoch, from 0.
            position: where in the epoch to start; None: at its beginning.
            drop_last: leave out the last samples if they do not fill a step. Otherwise the ranks split them evenly, so
                that the last batches may be smaller, even empty.
            together: length of the runs of samples stored side by side that shuffling keeps together.
            window: samples that are shuffled together.
            deduplicate: groups of features of which batches hold only the distinct bags.
            deal: how to balance the ranks' work in a step; None: samples are split by where they are stored.

        Raises:
            UsageError: rank, sizes or seed are out of range, the position is of another order, or the data lacks the
                feature that `deal` names.
            CorruptFile: the position is of other data; or, from the iterator, more samples are corrupt than the spec
                allows.
        """
        check_rules(
            too_small("world_size", world_size, 1),
            None if 0 <= rank < max(world_size, 1) else f"rank is {rank}; it must be 0 to {world_size - 1}",
            too_small("batch_size", batch_size, 1),
            None if 0 <= seed < 2**63 else f"seed is {seed}; it must be 0 or more, and below 2^63",
            too_small("together", together, 1),
            too_small("window", window, 1),
            None if 0 <= epoch < 2**63 else f"epoch is {epoch}; it must be 0 or more, and below 2^63",
        )
        now = Position(
            epoch=epoch, used=0, seed=seed, shuffle=shuffle, dataset=self.source.digest, together=together,
            window=window,
        )  # fmt: skip
        position = position or now
        order = self.order(position)
        self.check_position(position, now)
        if deal is not None:
            check_deal(deal, [each.name for each in self.schema.features])
        reader = BatchReader(self.source, order, position, rank, world_size, batch_size, deduplicate, deal)
        return Batches(reader, drop_last)

    def at(self, position: Position) -> "Dataset":
        """The data as it was when a position's epoch began: without the files that were appended since.

        If the position is of neither this data nor an earlier state of it, all data is returned, and `check_position`
        refuses the position.
        """
        source = self.source
        if position.dataset == source.digest or not isinstance(source, GrowingSource):
            return self
        blocks = source.earlier().get(position.dataset)
        return self if blocks is None else Dataset(FirstBlocks(source, blocks, position.dataset))

    def order(self, position: Position) -> EpochOrder:
        """The order of all samples in a position's epoch."""
        return EpochOrder(
            self.source.sizes(), seed=position.seed, epoch=position.epoch, shuffle=position.shuffle,
            files=self.source.files, together=position.together, window=position.window,
        )  # fmt: skip

    def check_position(self, position: Position, now: Position) -> None:
        """Refuse a position that would mean other samples in this data. now: the start of the requested epoch.

        Raises:
            UsageError: the position is of another order of samples.
            CorruptFile: the position is of other data.
        """
        order, wanted = _order_text(position), _order_text(now)
        if order != wanted:
            raise UsageError(
                f"the position is of {order}, not {wanted}; go on with those, or give another output and "
                "start_from: the output of before, whose weights come along"
            )
        if position.dataset != now.dataset or position.used > int(self.source.sizes().sum()):
            raise CorruptFile(
                f"the position is of other data (digest {position.dataset}, this data has {now.dataset}); go on with "
                "the data that was used before, or give another output and start_from: the output of before, whose "
                "weights come along"
            )


def _order_text(position: Position) -> str:
    more = [f"{position.together} samples together"] if position.together > 1 else []
    more += [f"windows of {position.window:,}"] if position.window != WINDOW else []
    return ", ".join([f"seed {position.seed} and shuffle {position.shuffle}", *more])


@noun
class OwnSpec:
    """Data in your own format: 'module:Class' names a BlockSource (source.py), which is created from the settings."""

    format: str
    settings: dict[str, Any]

    def beside(self, folder: Path) -> "OwnSpec":
        """The spec unchanged: which of its settings are paths is not known."""
        del folder
        return self

    def open(self) -> BlockSource:
        """Create the source, whose samples are then checked; UsageError if the class lacks a needed method."""
        made: Any = make(FORMAT, {NAME: self.format, **self.settings}, where="data")
        missing = [name for name in ("schema", "sizes", "read", "digest") if not hasattr(made, name)]
        if missing:
            raise UsageError(f"'{self.format}' is no format of data: it has no {', '.join(missing)} (docs/data.md)")
        return cast(BlockSource, CheckedSource(made, self.format))


@noun
class TransformedSpec:
    """Data whose samples are transformed as they are read (docs/data.md).

    wrong: what happens to samples for which a transform has no result: `stop` raises an error, `skip` skips up to
    max_wrong of them per rank and epoch, in addition to the corrupt samples that the data's format allows.
    """

    data: Any  # the DataSpec of a format
    transforms: tuple[Transform, ...]
    wrong: Literal["skip", "stop"] = "stop"
    max_wrong: int = 100

    def beside(self, folder: Path) -> "TransformedSpec":
        """The spec with relative paths of its data resolved in this folder."""
        return replace(self, data=self.data.beside(folder))


def open_dataset(spec: DataSpec | Source | Raw) -> Dataset:
    """Open a dataset from a spec, from a spec's file (YAML or JSON) or mapping, or from the path of data.

    The path of data is a MovieLens folder; Parquet files that RecSmith wrote, or their folder; or Criteo's click logs
    (.tsv, .txt, .gz, day_0), for which the table sizes of Criteo Kaggle are taken.

    Raises:
        UsageError: the path does not exist, or the data is of no known format.
        CorruptFile: the spec or the data is invalid.
        MissingExtra: the data is Parquet, and pyarrow is not installed.
    """
    if isinstance(spec, str | PathLike):
        found: Any = load_spec(spec)
    else:
        found = spec_from_raw(spec, "the spec") if isinstance(spec, dict) else spec
    if isinstance(found, TransformedSpec):
        source = open_dataset(found.data).source
        return Dataset(TransformedSource(source, found.transforms, found.wrong, found.max_wrong))
    if isinstance(found, OwnSpec):
        return Dataset(found.open())
    return Dataset(source_class(found)(found))


def source_class(spec: DataSpec) -> Any:
    """The source class that opens a spec of this type; UsageError if it is no spec of a known format."""
    for each in map(_format, known(FORMAT)):
        if each.settings is type(spec):
            return each
    raise UsageError(f"{type(spec).__name__} is no data; give a path, a spec, or a mapping with `format`")


def _format(name: str) -> Any:
    """The source class of one of RecSmith's formats; its `settings` is the class of the spec."""
    return find(FORMAT, name)


def load_spec(source: Source) -> DataSpec:
    """The spec in a file (YAML or JSON), or a spec with default settings for data at a path or address."""
    text = source_text(source, "a spec of data")
    path = path_of(text)
    if (found := _format_of(path)) is not None:
        where: Raw = {"path": text} if found == "movielens" else {"paths": [text]}
        return spec_from_raw({FORMAT: found, **where}, text)
    if not path.exists() and text != "-":
        check_is_file(path)
    if _is_of_no_format(text):
        raise UsageError(
            f"'{text}' is no data of a known format; give a spec ({', '.join(SPEC_ENDINGS)}), a file that ends in "
            f"{', '.join(COLUMN_ENDINGS)}, .tsv, .txt or .gz, or a folder; other files need a spec that says what "
            "their columns are, as `data.train` of a run does"
        )
    made = spec_from_raw(parse(read_text(text), text), text)
    return made.beside(path.parent) if isinstance(path, Path) else made


def _is_of_no_format(text: str) -> bool:
    """Whether a path's name shows neither a spec nor a known data format; a CSV file, for example, needs a spec."""
    path = path_of(text)
    return _format_of(path) is None and path.suffix not in SPEC_ENDINGS and text != "-"


def is_columns(text: str) -> bool:
    """Whether a path is a Parquet or Arrow file, or a folder of them."""
    return _format_of(path_of(text)) == "parquet"


def _format_of(path: AnyPath) -> str | None:
    """The format of data at a path, judged by its name and by the files in it; None for all other files."""
    if path.is_dir():
        if isinstance(path, Path) and (path / "ratings.csv").exists():
            return "movielens"
        return "parquet" if any(each.suffix in COLUMN_ENDINGS for each in path.rglob("*")) else "criteo"
    if path.suffix in COLUMN_ENDINGS:
        return "parquet"
    return "criteo" if path.suffix in (".tsv", ".txt", ".gz") or path.name.startswith("day_") else None


def spec_from_raw(raw: Raw, source: str) -> DataSpec:
    """A spec from plain data, whose `format` names the format; a `schema` key is checked if present.

    Raises:
        CorruptFile: the format is unknown, or a field is invalid.
    """
    body = check_schema(raw, SCHEMA, source) if "schema" in raw else dict(raw)
    if "transforms" in body:
        return _transformed(body, source)
    name = body.pop(FORMAT, None)
    if isinstance(name, str) and ":" in name:
        return OwnSpec(format=name, settings=body)
    if not isinstance(name, str) or name not in known(FORMAT):
        formats = list(known(FORMAT))
        hint = did_you_mean(name, formats) if isinstance(name, str) else f"; known: {', '.join(formats)}"
        wrong = "`format` is missing" if name is None else f"no format of data is called {name!r}"
        raise CorruptFile(f"'{source}': {wrong}{hint}")
    return decode(_format(name).settings, body, source)


def _transformed(body: Raw, source: str) -> TransformedSpec:
    """A spec with transforms; its other keys are the spec of the data that they transform."""
    said = {key: body[key] for key in TRANSFORM_KEYS if key in body}
    plain = spec_from_raw({key: value for key, value in body.items() if key not in TRANSFORM_KEYS}, source)
    listed: object = said.pop("transforms")
    if not isinstance(listed, list):
        raise CorruptFile(f"'{source}': transforms is no list; write `- {{op: hash, feature: user, ...}}` under it")
    made = tuple(transform_from_raw(each, source) for each in cast(list[object], listed))
    assert not isinstance(plain, TransformedSpec)
    return TransformedSpec(data=plain, transforms=made, **said)


def spec_to_raw(spec: DataSpec) -> Raw:
    """The spec as plain data, in the form of a spec's file."""
    if isinstance(spec, TransformedSpec):
        said = {"transforms": [transform_to_raw(each) for each in spec.transforms]}
        return {**spec_to_raw(spec.data), **said, "wrong": spec.wrong, "max_wrong": spec.max_wrong}
    if isinstance(spec, OwnSpec):
        return {"schema": SCHEMA, FORMAT: spec.format, **spec.settings}
    name = next(name for name in known(FORMAT) if _format(name).settings is type(spec))
    return {"schema": SCHEMA, FORMAT: name, **encode(spec)}
