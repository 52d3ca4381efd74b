"""How Parquet files are laid out: rows of a row group, samples of a file, the order of columns, encodings."""

from collections.abc import Sequence
from pathlib import Path

from recsmith._types import noun
from recsmith.data.schema import DataSchema
from recsmith.errors import CorruptFile, UsageError, check_rules
from recsmith.files import did_you_mean, parse, read_text

GROUP_SAMPLES = 2**15  # of a row group: what a reader keeps a few of
FILE_SAMPLES = 2**20  # of a file
LEAST_GROUP_BYTES = 2**16


@noun
class Layout:
    """Row groups of group_samples rows, or of group_bytes of unpacked columns where those are given.

    popular: features whose columns come first, the most read one first; the others keep their order behind them.
    """

    group_samples: int = GROUP_SAMPLES
    group_bytes: int | None = None
    file_samples: int = FILE_SAMPLES
    popular: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check ranges."""
        check_rules(
            None if self.group_samples >= 1 else f"group_samples is {self.group_samples}; it must be at least 1",
            None if self.file_samples >= 1 else f"file_samples is {self.file_samples}; it must be at least 1",
            None
            if self.group_bytes is None or self.group_bytes >= LEAST_GROUP_BYTES
            else f"group_bytes is {self.group_bytes}; it must be at least {LEAST_GROUP_BYTES:,}",
        )

    def group_rows(self, rows: int, unpacked: int) -> int:
        """Rows of a row group of a table that has so many rows and unpacked bytes."""
        if self.group_bytes is None or not rows:
            return self.group_samples
        return max(1, self.group_bytes * rows // max(unpacked, 1))

    def features(self, schema: DataSchema) -> list[str]:
        """The features of a schema in the order of their columns; UsageError for a popular one that it has not."""
        known = schema.feature_names
        unknown = next((name for name in self.popular if name not in known), None)
        if unknown is not None:
            raise UsageError(f"no feature is called '{unknown}'{did_you_mean(unknown, list(known))}")
        return list(dict.fromkeys([*self.popular, *known]))


def read_popularity(source: str) -> tuple[str, ...]:
    """Features, the most read one first, from a YAML or JSON file that says of each how many jobs read it.

    Raises:
        CorruptFile: it does not hold numbers by name.
    """
    raw = parse(read_text(source), source)
    wrong = [name for name, count in raw.items() if isinstance(count, bool) or not isinstance(count, int | float)]
    if wrong or not raw:
        raise CorruptFile(f"'{source}' must say of each feature how many jobs read it, such as `user: 12`")
    return by_count(Path(source).name, list(raw), [float(count) for count in raw.values()])


def by_count(source: str, names: Sequence[str], counts: Sequence[float]) -> tuple[str, ...]:
    """Names by falling counts, equal ones in their order; CorruptFile for a negative count."""
    if any(not 0 <= count < float("inf") for count in counts):
        raise CorruptFile(f"'{source}' holds a count that is negative or no number; jobs are counted from 0")
    order = sorted(range(len(names)), key=lambda at: -counts[at])
    return tuple(names[at] for at in order)
