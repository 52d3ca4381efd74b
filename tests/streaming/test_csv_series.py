"""Series of CSV files: which columns they are, what is left out, and one sentence for what is wrong."""

from pathlib import Path

import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.streaming.csv_series import read_series

TEXT = "time,host,cpu,latency\n10:00,a,1,0.5\n10:01,b,2,\n10:02,a,3,0.7\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table of two series."""
    path = tmp_path / "series.csv"
    path.write_text(TEXT)
    return path


def test_columns_that_begin_with_a_number_are_series(file: Path) -> None:
    cpu, latency = read_series(str(file))
    assert (cpu.name, cpu.values, cpu.labels, cpu.missing) == ("cpu", (1, 2, 3), ("10:00", "10:01", "10:02"), 0)
    assert (latency.values, latency.labels, latency.missing) == ((0.5, 0.7), ("10:00", "10:02"), 1)
    assert not cpu.constant
    assert [each.name for each in read_series(str(file), iter(["latency"]))] == ["latency"]


def test_a_file_of_one_column_counts_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("x\n4\n4\n")
    (series,) = read_series(str(path))
    assert (series.values, series.labels, series.constant) == ((4, 4), ("2", "3"), True)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("x\n", (), "no rows below a header"),
        ("0.655\n0.7\n", (), r"numbers alone in its first line \(0.655\), where names of columns belong"),
        (TEXT, ("cpus",), "no column 'cpus'.*did you mean 'cpu'"),
        (TEXT, ("host",), "line 2: 'host' is 'a', which is no finite number"),
        ("x,y\n1,2\n3\n", (), "line 3: 1 cells, and the header has 2"),
        ("x,y\n1,2\nnan,3\n", (), "line 3: 'x' is 'nan', which is no finite number"),
        ("x,y\nnan,2\n1,3\n", (), "line 2: 'x' is 'nan'"),
        ("x\n1\ninf\n", (), "line 3: 'x' is 'inf'"),
        ("x\n1\n-1e308\n", (), r"line 3: 'x' is '-1e308', which is no finite number up to 1e\+150"),
        ("x\na\nb\n", (), "no column whose first value is a number: x"),
        ("x,x\n1,2\n", (), "several columns 'x'"),
        ('x\n"1\n', (), "is no CSV file"),
        ('{"schema": "recsmith/plan/1"}', (), "is JSON; give a CSV file with a header, or the output folder"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, columns: tuple[str, ...], message: str) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises((CorruptFile, UsageError), match=message):
        read_series(str(path), columns)
