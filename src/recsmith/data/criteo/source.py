"""Criteo's click logs as blocks of samples, and their spec."""

import hashlib
import threading
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds, ValueMeaning
from recsmith.data.criteo.lines import CATEGORIES, COUNTS, other_than_criteo, parse_lines
from recsmith.data.line_files import BLOCK_LINES, LineFile, files_of, read_index, write_index
from recsmith.data.source import SampleBlock, found_beside
from recsmith.errors import CorruptFile, check_rules, too_small
from recsmith.workloads import load_workload

MOST_OPEN = 3  # files at a time: a window of blocks ends in one and begins in another


@noun
class CriteoSpec:
    """Click logs as Criteo published them: tab-separated files, plain or .gz, or a folder of them in order of names.

    A count x becomes log(1 + max(x, 0)), a missing one 0. A category is a word of 32 bits in hexadecimal; it becomes
    the row that it leaves when divided by the rows of its table, a missing one row 0, as in Facebook's DLRM.

    cardinalities: whose published rows the tables have; num_embeddings gives other ones, max_rows cuts them off.
    max_corrupt: lines that are no samples, which a rank passes over in an epoch.
    index: a file that keeps where lines begin, so that they are counted once; it is written if it is missing.
    """

    paths: tuple[str, ...]
    cardinalities: Literal["kaggle", "terabyte"] = "kaggle"
    num_embeddings: tuple[int, ...] | None = None
    max_rows: int | None = None
    max_corrupt: int = 100
    index: str | None = None

    def __post_init__(self) -> None:
        rows = self.num_embeddings
        check_rules(
            None if self.paths else "paths is empty; give the files of the click logs, or their folder",
            None
            if rows is None or (len(rows) == CATEGORIES and min(rows) >= 1)
            else f"num_embeddings has {len(rows)} numbers; it needs {CATEGORIES}, each 1 or more",
            too_small("max_rows", self.max_rows, 1),
            too_small("max_corrupt", self.max_corrupt),
        )

    def beside(self, folder: Path) -> "CriteoSpec":
        """With paths that are meant from a folder."""
        paths = tuple(found_beside(path, folder) for path in self.paths)
        index = str(folder / self.index) if self.index and paths != self.paths else self.index
        return replace(self, paths=paths, index=index)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the table of each category."""
        name = "criteo-kaggle" if self.cardinalities == "kaggle" else "criteo-1tb"
        rows = self.num_embeddings or tuple(table.num_embeddings for table in load_workload(name).tables)
        return rows if self.max_rows is None else tuple(min(each, self.max_rows) for each in rows)

    @property
    def schema(self) -> DataSchema:
        """What its samples hold; the features have the names of the built-in workloads' tables."""
        features = [
            DataFeature(name=f"cat_{column}", num_embeddings=rows, pooling_factor=1.0, single=True)
            for column, rows in enumerate(self.rows)
        ]
        dense = tuple(f"int_{column}" for column in range(COUNTS))
        values = ValueMeaning(modulo={f"cat_{column}": rows for column, rows in enumerate(self.rows)})
        return DataSchema(features=tuple(features), dense=dense, labels=("label",), values=values)


class CriteoSource:
    """The lines of the files of a spec; a line's number in all of them is its sample's number."""

    settings = CriteoSpec

    def __init__(self, spec: CriteoSpec) -> None:
        self.spec = spec
        self._files = [LineFile(path) for path in files_of(spec.paths)]
        for file in self._files:
            other = other_than_criteo(file.head())
            if other is not None:
                raise CorruptFile(f"'{file.path}' is no click log of Criteo but {other}")
        self._rows, self.note = np.array(spec.rows), ""
        days = self._files[0].path.name.startswith("day_")
        if days and spec.cardinalities == "kaggle" and spec.num_embeddings is None:
            self.note = "day files with the table sizes of Criteo Kaggle; a spec's `cardinalities: terabyte` has theirs"
        self.schema, self.max_corrupt = spec.schema, spec.max_corrupt
        self._counted = False
        self._lock = threading.Lock()  # a file has one place, and two iterators may read from it
        self._open: list[int] = []  # files that were read from last

    @property
    def num_samples(self) -> int | None:
        """How many lines there are; None before they were counted."""
        return int(self.sizes().sum()) if self._counted else None

    @property
    def digest(self) -> str:
        """A digest, which changes with the files and the rows."""
        return self._digest_of(len(self._files))

    def _digest_of(self, files: int) -> str:
        described = [*(file.digest() for file in self._files[:files]), *map(str, self.spec.rows)]
        return hashlib.sha256(" ".join(described).encode()).hexdigest()[:16]

    def earlier(self) -> dict[str, int]:
        """Digests of the first files alone, and their blocks."""
        return {self._digest_of(files): int(self._first_blocks[files]) for files in range(1, len(self._files))}

    @cached_property
    def _index(self) -> list[tuple[Ints, int]]:
        """Where the blocks of each file begin, and how many lines it has."""
        self._counted = True
        digest = hashlib.sha256(" ".join(file.digest() for file in self._files).encode()).hexdigest()
        found = read_index(self.spec.index, digest, len(self._files)) if self.spec.index else None
        if found is None:
            found = [file.index() for file in self._files]
            if self.spec.index:
                write_index(self.spec.index, digest, found)
        return found

    @cached_property
    def _first_blocks(self) -> Ints:
        """The first block of each file, and the number of all blocks."""
        return np.cumsum([0, *(len(begins) - 1 for begins, _ in self._index)])

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Blocks of each .gz file."""
        edges = self._first_blocks.tolist()
        return tuple(
            (edges[at], edges[at + 1])
            for at, file in enumerate(self._files)
            if file.is_gzip and edges[at + 1] > edges[at]
        )

    def sizes(self) -> Ints:
        """Lines of each block; they are counted if they were not."""
        parts = [np.diff(np.minimum(np.arange(len(begins)) * BLOCK_LINES, lines)) for begins, lines in self._index]
        return np.concatenate(parts).astype(np.int64)

    @cached_property
    def _first_samples(self) -> Ints:
        sizes = self.sizes()
        return np.cumsum(sizes) - sizes

    def read(self, block: int) -> SampleBlock:
        """The samples of a block."""
        number = int(np.searchsorted(self._first_blocks, block, side="right")) - 1
        file, inside = self._files[number], block - int(self._first_blocks[number])
        with self._lock:
            self._keep_open(number)
            text = file.text(inside, self._index[number][0])
        lines = parse_lines(text)
        rows, ones = lines.categories % self._rows, np.ones(len(lines.labels), np.int32)
        samples = Batch(
            dense=lines.dense,
            ids={
                each.name: JaggedIds(values=np.ascontiguousarray(rows[:, column]), lengths=ones)
                for column, each in enumerate(self.schema.features)
            },
            labels=lines.labels[:, None],
            label_names=self.schema.labels,
            sample_ids=self._first_samples[block] + np.arange(len(ones)),
        )
        if lines.first_corrupt is None:
            return SampleBlock(samples=samples)
        at, trouble = lines.first_corrupt
        problem = f"'{file.path}' line {inside * BLOCK_LINES + at + 1:,} {trouble}"
        return SampleBlock(samples=samples, valid=lines.valid, first_corrupt=problem)

    def _keep_open(self, number: int) -> None:
        """Close all but the files that were read from last: packed ones keep what was passed over."""
        self._open = [*(each for each in self._open if each != number), number]
        for other in self._open[:-MOST_OPEN]:
            self._files[other].close()
        self._open = self._open[-MOST_OPEN:]
