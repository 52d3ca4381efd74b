"""Series of CSV files: which columns they are, what is left out, and one sentence for what is wrong."""

import subprocess
from pathlib import Path

import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.streaming.csv_series import read_series

TEXT = "time,host,cpu,latency\n10:00,a,1,0.5\n10:01,b,3,\n10:02,a,2,0.7\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table of two series."""
    path = tmp_path / "series.csv"
    path.write_text(TEXT)
    return path


def test_columns_of_numbers_are_series(file: Path) -> None:
    found = read_series(str(file))
    cpu, latency = found.series
    assert (cpu.name, cpu.values, cpu.labels, cpu.missing) == ("cpu", (1, 3, 2), ("10:00", "10:01", "10:02"), 0)
    assert (latency.values, latency.labels, latency.missing) == ((0.5, 0.7), ("10:00", "10:02"), 1)
    assert (found.place, found.left_out, found.disorder) == ("time", {"host": "holds text, such as 'a'"}, None)
    assert not cpu.constant
    assert [each.name for each in read_series(str(file), iter(["latency"])).series] == ["latency"]


def test_a_file_of_one_column_counts_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("x\n4\n4\n")
    found = read_series(str(path))
    (series,) = found.series
    assert (series.values, series.labels, series.constant, found.place) == ((4, 4), ("2", "3"), True, None)


@pytest.mark.parametrize(
    ("text", "place", "series", "labels"),
    [
        ("step,loss\n0,3\n10,1\n20,2\n", "step", ["loss"], ("0", "10", "20")),
        ("loss,unix\n3,1.5e9\n1,1.6e9\n2,1.7e9\n", "unix", ["loss"], ("1.5e9", "1.6e9", "1.7e9")),
        (",loss\n0,3\n1,1\n2,2\n", "column 1", ["loss"], ("0", "1", "2")),  # as pandas writes an index
        ("epoch,step,loss\n0,1,3\n0,2,1\n1,3,2\n", "step", ["loss"], ("1", "2", "3")),
        ("step\ttotal\tloss\n1\t5\t3\n2\t7\t1\n3\t8\t2\n", "step", ["loss"], ("1", "2", "3")),
        ("host;loss\na;3\na;1\nb;2\n", None, ["loss"], ("2", "3", "4")),  # texts that come again are no places
        ("time,time_s\n2,1\n2,2\n3,1\n", "time", ["time_s"], ("2", "2", "3")),  # two rows within a second
        ("loss,time\n3,2\n1,1\n2,2\n", None, ["loss", "time"], ("2", "3", "4")),  # how long something took
    ],
)
def test_columns_that_tell_where_rows_are_are_no_series(
    tmp_path: Path, text: str, place: str | None, series: list[str], labels: tuple[str, ...]
) -> None:
    path = tmp_path / "series.csv"
    path.write_text(text)
    found = read_series(str(path))
    assert found.place == place
    assert [each.name for each in found.series] == series
    assert found.series[0].labels == labels
    numbers = [name for name, why in found.left_out.items() if not why.startswith("holds text")]
    for name in (*numbers, *([place] if place else [])):  # whoever names one has it judged
        assert [each.name for each in read_series(str(path), [name]).series] == [name]


def test_rows_out_of_order_are_told(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("timestamp,loss\n2026-01-02,3\n2026-01-01,1\n2026-01-03,2\n")
    told = read_series(str(path)).disorder
    assert told is not None
    assert "line 3 has 2026-01-01, and the one above it 2026-01-02" in told


def test_cells_without_a_value_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("step,loss,none\n1,N/A,\n2,,\n3,2,\n4,NaN,\n5,1,\n")
    found = read_series(str(path))
    (loss,) = found.series
    assert (loss.values, loss.labels, loss.missing, loss.first_missing) == ((2, 1), ("3", "5"), 3, (2, "N/A"))
    assert found.left_out == {"none": "has no values"}


def test_rows_of_several_series_are_told_with_the_command_that_picks_one(tmp_path: Path) -> None:
    path, places = tmp_path / "series.csv", range(20)
    mixed = [f"{at},{host},{at % 3}" for at in places for host in ("a", "b")]
    for rows, told in (
        (mixed, True),
        (sorted(mixed, key=lambda row: row.split(",")[1]), True),  # one after the other
        (mixed[::2], False),  # of one host
        ([*mixed, *mixed], False),  # which the host does not tell apart
        ([f"{at},{(at % 2 and 'a') or 'b'},{at % 3}" for at in places], False),  # a host, and no step comes again
    ):
        path.write_text("\n".join(["step,host,x", *rows]))
        found = read_series(str(path)).mixed
        assert (found is not None) == told
        if found is not None:
            assert "'step' repeats, and 'host' tells its rows apart (a, b)" in found
            command = found.partition("such as ")[2].removesuffix(" | recsmith watch -")
            picked = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
            assert picked.stdout.splitlines()[1:] == [row for row in rows if ",a," in row]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("x\n", (), "no rows below a header"),
        ("x,y\n\n", (), "no rows below a header"),
        ("0.655\n0.7\n", (), r"values alone in its first line \(0.655\), where names of columns belong"),
        ("2026-01-01 00:00,5\n2026-01-01 00:01,6\n", (), "values alone in its first line"),
        (TEXT, ("cpus",), "no column 'cpus'.*did you mean 'cpu'"),
        (TEXT, ("host",), "line 2: 'host' is 'a', which is no finite number"),
        ("at,x\n2026-01-01 00:00,5\n", ("at",), "'at' tells where rows are, such as '2026-01-01 00:00'"),
        ("x,y\n1,2\n3\n", (), "line 3: 1 cells, and the header has 2"),
        ("x,y\n1,2\ntwo,3\n", (), "line 3: 'x' is 'two', which is no finite number"),
        ("x,y\ninf,2\n1,3\n", (), "line 2: 'x' is 'inf'"),
        ("x\n1\ninf\n", (), "line 3: 'x' is 'inf'"),
        ("x\n1\n-1e308\n", (), r"line 3: 'x' is '-1e308', which is no finite number up to 1e\+150"),
        ("x\na\nb\n", (), "no column to judge: 'x' holds text, such as 'a'; write numbers as 12.5, or name one"),
        ("step\n1\n2\n3\n", (), "no column to judge: 'step' rises from row to row"),
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
