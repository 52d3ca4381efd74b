"""Makes the vocabularies of a dataset's features: all their values are counted in one pass over the files."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.data.arrow import pyarrow
from recsmith.data.columns.arrays import flattened, raw_values
from recsmith.data.columns.features import ColumnFeature
from recsmith.data.dataset import TransformedSpec, load_spec, source_class
from recsmith.data.source import DataSpec
from recsmith.data.vocabularies.counting import ValueCounter, counted_of
from recsmith.data.vocabularies.settings import VocabularySpec, vocabulary_spec
from recsmith.data.vocabularies.vocabulary import Vocabulary, as_values, is_vocabulary
from recsmith.data.vocabularies.writing import VocabularyFigures, write_vocabulary
from recsmith.data.write import check_folder
from recsmith.errors import CorruptFile, UsageError
from recsmith.files.writable import whole_folder

ENDING = ".arrow"
MEMORY = 2**30  # bytes of memory for counting; trade-off: less memory means more runs on disk to merge
Progress = Callable[[int], object]


def make_vocabularies(
    sources: Sequence[Any], folder: Path, *, least: int = 1, rows: int | None = None, extend: Path | None = None,
    memory: int = MEMORY, on_progress: Progress = lambda _: None,
) -> list[VocabularyFigures]:  # fmt: skip
    """Count the values of features and write their vocabularies into a new folder, whole or not at all.

    A file is written for each vocabulary name that features use; features that name the same file share it.

    Args:
        sources: specs of data, or folders of vocabularies, whose counts are added up.
        folder: the new folder.
        least: how often a value must have been counted to get a row.
        rows: largest number of values with a row in a vocabulary; None: no limit.
        extend: a folder of vocabularies whose values keep their rows; new values get the rows after them.
        memory: bytes of memory for counting.
        on_progress: called with the number of rows read so far of a spec's data.

    Raises:
        UsageError: no feature has a vocabulary, a source's vocabularies lack rare values, or the folder is not empty.
        CorruptFile: a column holds neither text nor whole numbers, or a file is damaged.
        RecSmithError: the disk is full or cannot be written to.
    """
    check_folder(folder)
    folders = [Path(each) for each in sources if is_folder(each)]
    specs = [load_spec(each) if isinstance(each, str | Path) else each for each in sources if not is_folder(each)]
    named: dict[str, list[str]] = {}  # by name of a vocabulary, the features that share it
    for each in (feature for spec in specs for feature in _with_vocabulary(spec)):
        named.setdefault(_name_of(each), []).append(each.name)
    names = sorted({*named, *(each.stem for one in folders for each in _files(one))})
    if not names:
        raise UsageError("no feature of the data has a vocabulary; give those of text or raw ids one, such as "
                         "{name: genres, vocabulary: vocabularies/genres.arrow}")  # fmt: skip
    bases = {} if extend is None else {each.stem: Vocabulary(VocabularySpec(path=str(each))) for each in _files(extend)}
    with whole_folder(folder) as partial:
        counters = _Counters(partial, memory // len(names), names)
        for name, base in bases.items():
            if name in names:
                counters.add_file(name, base.path)
        for each in folders:
            for file in _files(each):
                _check_whole(Vocabulary(VocabularySpec(path=str(file))))
                counters.add_file(file.stem, file)
        for spec in specs:
            _count(spec, counters, on_progress)
        made = [
            write_vocabulary(
                counter.merged(),
                partial / f"{name}{ENDING}",
                counter.kind,
                least=least,
                rows=rows,
                base=bases.get(name),
                about={"features": sorted(set(named.get(name, [])))},
            )
            for name, counter in counters.made()
        ]  # fmt: skip
        counters.forget()
    return [replace(each, file=str(folder / Path(each.file).name)) for each in made]


def is_folder(source: Any) -> bool:
    """Whether a source is a path of a folder with vocabularies."""
    found = sorted(Path(source).glob(f"*{ENDING}")) if isinstance(source, str | Path) else []
    return bool(found) and all(map(is_vocabulary, found))


class _Counters:
    """A counter for each vocabulary, made when its first values show their kind."""

    def __init__(self, folder: Path, memory: int, names: Sequence[str]) -> None:
        self.folder, self.memory, self.names = folder, memory, names
        self._made: dict[str, ValueCounter] = {}

    def add(self, name: str, values: Any, place: str) -> None:
        """Count the values of a column. place: where they are from, for errors."""
        if not len(values):
            return
        counter = self._made.get(name)
        is_text = "string" in str(values.type) if counter is None else counter.kind == pyarrow().large_string()
        try:
            (counter or self._of(name, is_text)).add(as_values(values, is_text))
        except CorruptFile as error:
            raise CorruptFile(f"{place}, of vocabulary '{name}', {error}") from None

    def add_file(self, name: str, file: Path) -> None:
        """Add the counts in a vocabulary's file."""
        arrow = pyarrow()
        with arrow.OSFile(str(file), "rb") as opened:
            reader = arrow.ipc.open_file(opened)
            is_text = reader.schema.field("value").type == arrow.large_string()
            counter = self._made.get(name) or self._of(name, is_text)
            if (counter.kind == arrow.large_string()) != is_text:
                raise UsageError(
                    f"'{file}' holds other values than those before it: text, or whole numbers; give one kind"
                )
            for at in range(reader.num_record_batches):
                counter.add_counted(counted_of(reader.get_batch(at)))

    def made(self) -> list[tuple[str, ValueCounter]]:
        """(name, counter) of every vocabulary; UsageError if one of them has no values."""
        empty = next((name for name in self.names if name not in self._made), None)
        if empty is not None:
            raise UsageError(f"the data holds no value for vocabulary '{empty}'; look at its column, or leave it out")
        return [(name, self._made[name]) for name in self.names]

    def forget(self) -> None:
        """Remove the temporary runs from the disk."""
        for each in self.folder.glob("_runs-*"):
            shutil.rmtree(each)

    def _of(self, name: str, is_text: bool) -> ValueCounter:
        folder, arrow = self.folder / f"_runs-{name}", pyarrow()
        folder.mkdir()
        self._made[name] = ValueCounter(folder, self.memory, arrow.large_string() if is_text else arrow.int64())
        return self._made[name]


def _count(spec: DataSpec, counters: _Counters, on_progress: Progress) -> None:
    """Count the values of those features of a spec that have a vocabulary."""
    plain: Any = _plain(spec)
    features = _with_vocabulary(spec)
    columns = list(dict.fromkeys(each.column or each.name for each in features))
    done = 0
    for table, place in source_class(plain).tables(plain, columns):
        taken_apart = flattened(table, features, place)
        for each in features:
            held = taken_apart[each.column or ""] if each.key else table
            counters.add(
                _name_of(each), raw_values(held, each, place)[0], f"{place}: column '{each.column or each.name}'"
            )
        done += table.num_rows
        on_progress(done)


def _plain(spec: DataSpec) -> DataSpec:
    """A spec without its transforms, which are applied to table rows and not to raw values."""
    return spec.data if isinstance(spec, TransformedSpec) else spec


def _with_vocabulary(spec: DataSpec) -> list[ColumnFeature]:
    """The features of a spec that have a vocabulary."""
    return [each for each in getattr(_plain(spec), "features", ()) if getattr(each, "vocabulary", None) is not None]


def _name_of(feature: ColumnFeature) -> str:
    assert feature.vocabulary is not None
    path = Path(vocabulary_spec(feature.vocabulary).path)
    if path.suffix != ENDING:
        raise UsageError(f"the vocabulary of feature '{feature.name}' is '{path}'; name a file that ends in {ENDING}")
    return path.stem


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.glob(f"*{ENDING}"))
    if not found:
        raise UsageError(f"'{folder}' holds no vocabulary; give a folder that `recsmith data vocabulary` wrote")
    return found


def _check_whole(vocabulary: Vocabulary) -> None:
    if vocabulary.about["cut"]:
        raise UsageError(
            f"'{vocabulary.path}' was written without its rare values, so their counts are lost; count each part of "
            "the data without --least and --rows, and give these when the parts are added up"
        )
