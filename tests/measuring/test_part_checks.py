"""Parts are checked as rows are, column by column, and their size is known before they are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.exchanged import exchange

from recsmith.errors import CorruptFile, RecSmithError
from recsmith.measuring.about import About
from recsmith.measuring.columns import COMM
from recsmith.measuring.folder import open_folder
from recsmith.measuring.parquet_parts import arrow_schema, part_files, read_part, write_part
from recsmith.measuring.rows import read_columns

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
ABOUT = About(kind="comm", hardware="local ranks", seed=0, ranks=2)
NAMES = [column.name for column in COMM]


def part_of(path: Path, rows: list[dict[str, Any]], last: int = 2) -> Path:
    """A part of rows, written past all checks."""
    part = path / f"part-000000000-{last:09d}.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=arrow_schema("comm")), part)
    return part


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({"elapsed_s": None}, "elapsed_s is empty in some row"),
        ({"elapsed_s": -1.0}, "elapsed_s must be finite, and from 0"),
        ({"elapsed_s": float("nan")}, "elapsed_s must be finite, and from 0"),
        ({"median_s": [0.0, 1.0]}, "median_s must be at least 1e-12 s"),
        ({"median_s": [1.0]}, "median_s has not as many values as the row has ranks"),
        ({"median_s": [1.0, None]}, "median_s holds empty values"),
        ({"batch_size": 2**60}, "batch_size must be finite, and from 0"),
        ({"device": "x" * 10**5}, "device holds text of more than 65,536 characters"),
        ({"backend": "mpi"}, "backend is 'mpi', none of gloo, nccl, simulated"),
        ({"position": 0}, "positions do not rise from 0 to 2"),
        ({"position": 3}, "positions do not rise from 0 to 2"),
    ],
)
def test_each_damage_of_a_column_has_its_words(tmp_path: Path, change: dict[str, Any], trouble: str):
    good = [exchange(position) for position in range(3)]
    assert read_part(part_of(tmp_path, good), ABOUT, NAMES).num_rows == 3
    with pytest.raises(CorruptFile, match=rf"is damaged: {trouble}.*; move it away, the other parts are whole"):
        read_part(part_of(tmp_path, [good[0], good[1] | change, good[2]]), ABOUT, NAMES)


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        (lambda table: table.set_column(0, "position", table["position"].cast(pa.string())), "'position' is string"),
        (lambda table: table.append_column("extra", table["position"]), "column 'extra' is not known"),
        (lambda table: table.append_column("seed", table["position"]), "it has column 'seed' twice"),
        (lambda table: table.replace_schema_metadata({b"recsmith.schema": b"\xff"}), "has the schema '.', this"),
    ],
)  # fmt: skip
def test_columns_are_those_that_are_documented(tmp_path: Path, change: Callable[[Any], Any], trouble: str):
    part = part_of(tmp_path, [exchange(position) for position in range(3)])
    pa.parquet.write_table(change(pa.parquet.read_table(part)), part)
    with pytest.raises(CorruptFile, match=trouble):
        read_part(part, ABOUT, NAMES)


def test_a_small_file_that_holds_gigabytes_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """30 million rows of one value each take a few kilobytes."""
    many = pa.Table.from_pylist([exchange(0)], schema=arrow_schema("comm")).take(pa.array([0] * 20_000))
    for last, trouble in (
        (19_998, "it has 20,000 rows, its name says at most 19,999"),
        (10**6, "values of .* are more than"),
    ):
        part = tmp_path / f"part-000000000-{last:09d}.parquet"
        pa.parquet.write_table(many, part)
        assert part.stat().st_size < 2**16
        monkeypatch.setattr("recsmith.measuring.part_checks.MOST_VALUES", 10_000)
        monkeypatch.setattr(pa.parquet, "read_table", lambda *_, **__: pytest.fail("it was read"))
        with pytest.raises(CorruptFile, match=trouble):
            read_part(part, ABOUT, ["number"])


def test_repeated_text_is_known_before_it_is_written_out(tmp_path: Path):
    few = pa.Table.from_pylist([exchange(0, device="x" * 2**17)] * 100, schema=arrow_schema("comm"))
    part = tmp_path / "part-000000000-000100000.parquet"
    pa.parquet.write_table(pa.concat_tables([few] * 50), part)  # 650 MB of text
    assert part.stat().st_size < 2**20
    with pytest.raises(CorruptFile, match="device holds 655,360,000 characters of text"):
        read_part(part, ABOUT, ["device"])


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        (f"part-{chr(0x660) * 9}-000000001.parquet", "is not named part-<first>-<last>"),
        ("part-000000000-²²²²²²²²².parquet", "is not named part-<first>-<last>"),
        ("part-000000005-000000001.parquet", "is not named part-<first>-<last>"),
        ("part-000000001-000000009.parquet", "has positions that 'part-000000000-000000002.parquet' has, too"),
    ],
)
def test_names_of_parts_are_exact_and_share_no_position(tmp_path: Path, name: str, trouble: str):
    part_of(tmp_path, [exchange(0)])
    (tmp_path / name).touch()
    with pytest.raises(CorruptFile, match=trouble):
        part_files(tmp_path)


def test_a_part_is_a_file_and_is_never_overwritten(tmp_path: Path):
    part = part_of(tmp_path, [exchange(0)])
    with pytest.raises(RecSmithError, match="it is there already; the journal keeps its samples"):
        write_part(part, "comm", [exchange(1)])
    (tmp_path / "part-000000003-000000004.parquet").mkdir()
    with pytest.raises(CorruptFile, match="is no file; move it away"):
        part_files(tmp_path)


def test_rows_of_other_ranks_than_the_folders_are_refused(tmp_path: Path):
    with open_folder(tmp_path, ABOUT):
        part_of(tmp_path, [exchange(0, ranks=3)])
    with pytest.raises(CorruptFile, match="ranks is not 2 in each row"):
        read_columns(tmp_path, ["number"])
