"""Specs of datasets: their nouns, their YAML form, and what a path opens."""

from collections.abc import Callable
from typing import Any

from recsmith.data.dataset import Dataset
from recsmith.data.generator import GeneratorSource, GeneratorSpec
from recsmith.data.source import BlockSource
from recsmith.errors import CorruptFile
from recsmith.files import Raw, Source, check_schema, decode, did_you_mean, encode, parse, read_text, source_text

SCHEMA = "recsmith/dataset/1"

DataSpec = GeneratorSpec

FORMATS: dict[str, tuple[type[DataSpec], Callable[[Any], BlockSource]]] = {
    "generator": (GeneratorSpec, GeneratorSource),
}


def open_dataset(spec: DataSpec | Source) -> Dataset:
    """The dataset of a spec, of a spec's file (YAML or JSON), or of data at a path.

    Raises:
        UsageError: nothing is there, or it is of no known format.
        CorruptFile: the spec or the data is not what it says it is.
        MissingExtra: Parquet is to be read, and pyarrow is not installed.
    """
    found = spec if isinstance(spec, DataSpec) else load_spec(spec)
    return Dataset(next(make for noun, make in FORMATS.values() if type(found) is noun)(found))


def load_spec(source: Source) -> DataSpec:
    """The spec in a file (YAML or JSON)."""
    path = source_text(source, "a spec of data")
    return spec_from_raw(parse(read_text(path), path), path)


def spec_from_raw(raw: Raw, source: str) -> DataSpec:
    """A spec from plain data: `format` says which noun it is; a `schema` line may stand before."""
    body = check_schema(raw, SCHEMA, source) if "schema" in raw else dict(raw)
    word = body.pop("format", None)
    if not isinstance(word, str) or word not in FORMATS:
        shown = did_you_mean(str(word), list(FORMATS))
        raise CorruptFile(f"'{source}': no format of data is called '{word}'{shown}")
    return decode(FORMATS[word][0], body, source)


def spec_to_raw(spec: DataSpec) -> Raw:
    """Plain data of a spec, as its file holds it."""
    word = next(word for word, (noun, _) in FORMATS.items() if type(spec) is noun)
    return {"schema": SCHEMA, "format": word, **encode(spec)}
