"""Reads Criteo's click logs as blocks of samples, and their spec."""

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

MOST_OPEN = 3  # files open at a time; a window of blocks may span files


@noun
class CriteoSpec:
    """Click logs as Criteo published them: tab-separated files, plain or .gz, or a folder of them in order of names.

    A count x becomes log(1 + max(x, 0)), a missing count 0. A category is a 32-bit word in hexadecimal; its row is the
    word modulo the rows of its table, and row 0 if it is missing, as in Facebook's DLRM.

    cardinalities: the dataset whose published table sizes are used; num_embeddings replaces them, max_rows limits them.
    max_corrupt: how many corrupt lines a rank skips in an epoch.
    index: a file that stores where blocks of lines begin, so that lines are counted only once; written if missing.
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
        """The spec with its paths resolved in this folder, if they do not exist in the working directory."""
        paths = tuple(found_beside(path, folder) for path in self.paths)
        index = str(folder / self.index) if self.index and paths != self.paths else self.index
        return replace(self, paths=paths, index=index)

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of rows of each category's table."""
        name = "criteo-kaggle" if self.cardinalities == "kaggle" else "criteo-1tb"
        rows = self.num_embeddings or tuple(table.num_embeddings for table in load_workload(name).tables)
        return rows if self.max_rows is None else tuple(min(each, self.max_rows) for each in rows)

    @property
    def schema(self) -> DataSchema:
        """The schema of the samples; features have the names of the tables in the built-in Criteo workloads."""
        features = [
            DataFeature(name=f"cat_{column}", num_embeddings=rows, pooling_factor=1.0, single=True)
            for column, rows in enumerate(self.rows)
        ]
        dense = tuple(f"int_{column}" for column in range(COUNTS))
        values = ValueMeaning(modulo={f"cat_{column}": rows for column, rows in enumerate(self.rows)})
        return DataSchema(features=tuple(features), dense=dense, labels=("label",), values=values)


class CriteoSource:
    """The samples in the click logs of a spec, numbered by line along all files."""

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
        self._lock = threading.Lock()  # a file has one read position, and two iterators may read from it
        self._open: list[int] = []  # the files that were read last, latest at the end

    @property
    def num_samples(self) -> int | None:
        """Number of lines; None if they have not been counted yet."""
        return int(self.sizes().sum()) if self._counted else None

    @property
    def digest(self) -> str:
        """Digest of the files and the table sizes."""
        return self._digest_of(len(self._files))

    def _digest_of(self, files: int) -> str:
        described = [*(file.digest() for file in self._files[:files]), *map(str, self.spec.rows)]
        return hashlib.sha256(" ".join(described).encode()).hexdigest()[:16]

    def earlier(self) -> dict[str, int]:
        """The number of blocks by the digest of the first file alone, of the first two files, and so on."""
        return {self._digest_of(files): int(self._first_blocks[files]) for files in range(1, len(self._files))}

    @cached_property
    def _index(self) -> list[tuple[Ints, int]]:
        """(byte offsets of blocks, number of lines) of each file, from the index file if there is one."""
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
        """The first block of each file, then the number of all blocks."""
        return np.cumsum([0, *(len(begins) - 1 for begins, _ in self._index)])

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """The range of blocks of each .gz file, which can only be read in sequence."""
        edges = self._first_blocks.tolist()
        return tuple(
            (edges[at], edges[at + 1])
            for at, file in enumerate(self._files)
            if file.is_gzip and edges[at + 1] > edges[at]
        )

    def sizes(self) -> Ints:
        """Number of lines in each block; counts them if that was not done yet."""
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
        """Close all but the MOST_OPEN files that were read last, since open .gz files keep blocks in memory."""
        self._open = [*(each for each in self._open if each != number), number]
        for other in self._open[:-MOST_OPEN]:
            self._files[other].close()
        self._open = self._open[-MOST_OPEN:]
