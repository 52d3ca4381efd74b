"""Specs of datasets: their nouns, their YAML form, and what a path opens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

from recsmith._types import noun
from recsmith.data.criteo import CriteoSource, CriteoSpec
from recsmith.data.dataset import Dataset
from recsmith.data.generator import GeneratorSource, GeneratorSpec
from recsmith.data.movielens import MovieLensSpec, movielens_source
from recsmith.data.parquet import ParquetSource, ParquetSpec
from recsmith.data.source import BlockSource
from recsmith.data.transforms import Transform, TransformedSource, transform_from_raw, transform_to_raw
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, Source, check_schema, decode, did_you_mean, encode, parse, read_text, source_text

SCHEMA = "recsmith/dataset/1"
SPEC_ENDINGS = (".yaml", ".yml", ".json")
COLUMN_ENDINGS = (".parquet", ".arrow", ".feather")

PlainSpec = CriteoSpec | GeneratorSpec | MovieLensSpec | ParquetSpec


@noun
class TransformedSpec:
    """Data whose samples are transformed as they are read (docs/transforms.md).

    wrong: what becomes of samples that a transform has no outcome for: `stop`, or `skip`, up to max_wrong of them a
    rank and epoch beside what the data's format allows.
    """

    data: PlainSpec
    transforms: tuple[Transform, ...]
    wrong: Literal["skip", "stop"] = "stop"
    max_wrong: int = 100


DataSpec = PlainSpec | TransformedSpec
TRANSFORM_WORDS = ("transforms", "wrong", "max_wrong")  # of a spec with transforms, beside its format's own

FORMATS: dict[str, tuple[Any, Callable[[Any], BlockSource]]] = {
    "criteo": (CriteoSpec, CriteoSource),
    "generator": (GeneratorSpec, GeneratorSource),
    "movielens": (MovieLensSpec, movielens_source),
    "parquet": (ParquetSpec, ParquetSource),
}


def open_dataset(spec: DataSpec | Source) -> Dataset:
    """The dataset of a spec, of a spec's file (YAML or JSON), or of data at a path.

    Data at a path: a MovieLens folder; Parquet files that RecSmith wrote, or their folder; Criteo's click logs (.tsv,
    .txt, .gz, day_0), whose tables then have the rows of Criteo Kaggle.

    Raises:
        UsageError: nothing is there, or it is of no known format.
        CorruptFile: the spec or the data is not what it says it is.
        MissingExtra: Parquet is to be read, and pyarrow is not installed.
    """
    found = spec if isinstance(spec, DataSpec) else load_spec(spec)
    if isinstance(found, TransformedSpec):
        source = open_dataset(found.data).source
        return Dataset(TransformedSource(source, found.transforms, found.wrong, found.max_wrong))
    return Dataset(next(make for noun, make in FORMATS.values() if type(found) is noun)(found))


def load_spec(source: Source) -> DataSpec:
    """The spec in a file (YAML or JSON), or that of data at a path, all else as it is by default."""
    text = source_text(source, "a spec of data")
    path = Path(text)
    if path.is_dir():
        return _spec_of_folder(path)
    if path.suffix in COLUMN_ENDINGS:
        return ParquetSpec(paths=(text,))
    if path.suffix in (".tsv", ".txt", ".gz") or path.name.startswith("day_"):
        return CriteoSpec(paths=(text,))
    if not path.exists() and text != "-":
        raise UsageError(f"cannot read '{text}': there is no such file; give the path of a file or folder")
    if path.suffix not in SPEC_ENDINGS and text != "-":
        raise UsageError(
            f"'{text}' is no data of a known format; give a spec ({', '.join(SPEC_ENDINGS)}), a file that ends in "
            f"{', '.join(COLUMN_ENDINGS)}, .tsv, .txt or .gz, or a folder"
        )
    return spec_from_raw(parse(read_text(text), text), text)


def _spec_of_folder(path: Path) -> DataSpec:
    if (path / "ratings.csv").exists():
        return MovieLensSpec(path=str(path))
    if any(each.suffix in COLUMN_ENDINGS for each in path.rglob("*")):
        return ParquetSpec(paths=(str(path),))
    return CriteoSpec(paths=(str(path),))


def spec_from_raw(raw: Raw, source: str) -> DataSpec:
    """A spec from plain data: `format` says which noun it is; a `schema` line may stand before.

    Raises:
        CorruptFile: the format is unknown, or a field is wrong.
    """
    body = check_schema(raw, SCHEMA, source) if "schema" in raw else dict(raw)
    if "transforms" in body:
        return _transformed(body, source)
    word = body.pop("format", None)
    if not isinstance(word, str) or word not in FORMATS:
        shown = did_you_mean(word, list(FORMATS)) if isinstance(word, str) else f"; known: {', '.join(FORMATS)}"
        said = "`format` is missing" if word is None else f"no format of data is called {word!r}"
        raise CorruptFile(f"'{source}': {said}{shown}")
    return decode(FORMATS[word][0], body, source)


def _transformed(body: Raw, source: str) -> TransformedSpec:
    """A spec whose fields besides those of transforms are of the data that they read."""
    said = {key: body[key] for key in TRANSFORM_WORDS if key in body}
    plain = spec_from_raw({key: value for key, value in body.items() if key not in TRANSFORM_WORDS}, source)
    listed: object = said.pop("transforms")
    if not isinstance(listed, list):
        raise CorruptFile(f"'{source}': transforms is no list; write `- {{op: hash, feature: user, ...}}` under it")
    made = tuple(transform_from_raw(each, source) for each in cast(list[object], listed))
    assert not isinstance(plain, TransformedSpec)
    return TransformedSpec(data=plain, transforms=made, **said)


def spec_to_raw(spec: DataSpec) -> Raw:
    """Plain data of a spec, as its file holds it."""
    if isinstance(spec, TransformedSpec):
        said = {"transforms": [transform_to_raw(each) for each in spec.transforms]}
        return {**spec_to_raw(spec.data), **said, "wrong": spec.wrong, "max_wrong": spec.max_wrong}
    word = next(word for word, (noun, _) in FORMATS.items() if type(spec) is noun)
    return {"schema": SCHEMA, "format": word, **encode(spec)}
