"""Joins columns of another file to each row by a key, such as an item's attributes by its id."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith.data.arrow import pyarrow
from recsmith.data.text.spec import JoinedFile
from recsmith.errors import CorruptFile
from recsmith.files import AnyPath, check_is_file, did_you_mean, path_of


class Joined:
    """The rows of a joined file, looked up by the text of their key.

    Raises:
        UsageError: there is no such file.
        CorruptFile: the file cannot be read, lacks the key column, or has a key twice.
    """

    def __init__(self, spec: JoinedFile, nulls: Sequence[str]) -> None:
        self.on, path = spec.on, path_of(spec.path)
        check_is_file(path)
        arrow = pyarrow()
        try:
            file = path if isinstance(path, Path) else path.open("rb")
            table = arrow.parquet.read_table(file) if path.suffix == ".parquet" else _csv(path, file, nulls)
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise CorruptFile(f"'{path}' cannot be joined: {str(error).splitlines()[0]}; mend it") from None
        if self.on not in table.column_names:
            raise CorruptFile(f"'{path}' has no column '{self.on}'{did_you_mean(self.on, table.column_names)}")
        self._keys = table[self.on].combine_chunks().cast(arrow.string())
        if len(self._keys.unique()) < len(self._keys):
            twice = self._keys.value_counts().to_pylist()
            first = next(each["values"] for each in twice if each["counts"] > 1)
            raise CorruptFile(f"'{path}' has '{first}' twice in column '{self.on}'; each row needs one to join")
        self._table = table.drop_columns([self.on])
        self.names: list[str] = self._table.column_names

    def add(self, table: Any, wanted: Sequence[str]) -> Any:
        """The table with the joined columns that are in `wanted`; null for rows whose key is not found."""
        arrow = pyarrow()
        keys = table[self.on].combine_chunks().cast(arrow.string())
        places = arrow.compute.index_in(keys, value_set=self._keys, skip_nulls=True)
        for name in self.names:
            if name in wanted:
                table = table.append_column(name, self._table[name].take(places))
        return table


def _csv(path: AnyPath, file: Any, nulls: Sequence[str]) -> Any:
    csv: Any = pyarrow().csv
    delimiter = "\t" if path.suffix == ".tsv" else ","
    options = csv.ConvertOptions(null_values=list(nulls), strings_can_be_null=True)
    return csv.read_csv(file, csv.ReadOptions(use_threads=False), csv.ParseOptions(delimiter=delimiter), options)
