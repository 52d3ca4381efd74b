"""Parts are checked as rows are, column by column, and their size is known before they are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.exchanged import exchange

from recsmith.errors import CorruptFile, RecSmithError
from recsmith.hardware import load_hardware
from recsmith.measuring.about import About
from recsmith.measuring.cases import Cases
from recsmith.measuring.checks import row_trouble
from recsmith.measuring.columns import COMM
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.folder import Limit, journal_rows, open_folder, read_columns
from recsmith.measuring.journal import NAME
from recsmith.measuring.parquet_parts import arrow_schema, part_files, read_part, write_part

ABOUT_COMM = About(kind="comm", hardware="local ranks", seed=0, ranks=2)


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of a few simulated visits."""
    path = tmp_path_factory.mktemp("made") / "m"
    hardware = load_hardware("simulated:h100", "check")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recsmith.measuring.folder.has_pyarrow", lambda: False)
        measure_compute(hardware, Cases(seed=0, scale=hardware.scale), path, Limit(samples=2))
    return path


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({"position": None}, "it has no position"),
        ({"position": "²"}, "position must be a whole number from 0 to 2^53"),
        ({"position": True}, "position must be a whole number"),
        ({"position": -1}, "position must be a whole number"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"batch_size": 2**53}, "batch_size must be a whole number"),
        ({"elapsed_s": -1.0}, "elapsed_s must be a finite number from 0"),
        ({"elapsed_s": 1e308}, "elapsed_s must be a finite number from 0"),
        ({"median_s": [1.0, 0.0]}, "median_s must be at least 1e-12 s"),
        ({"median_s": [1.0, 1e-300]}, "median_s must be at least 1e-12 s"),
        ({"median_s": [1.0]}, "median_s has 1 values, which is not one for each of its ranks"),
        ({"median_s": 1.0}, "median_s is no list"),
        ({"sent_bytes": [1, None]}, "sent_bytes must be a whole number"),
        ({"device": {"name": "x"}}, "device must be text of at most"),
        ({"device": "x" * 10**6}, "device must be text of at most"),
        ({"oversubscribed": 1}, "oversubscribed must be true or false"),
        ({"direction": "sideways"}, "direction must be one of forward, backward"),
        ({"ranks": 3, "sent_bytes": [1] * 3}, "which is not one for each of its ranks"),
        ({"medain_s": 1}, "'medain_s' is not a known column; did you mean 'median_s'?"),
    ],
)
def test_each_damage_of_a_row_has_its_words(change: dict[str, Any], trouble: str):
    assert row_trouble(exchange(0), ABOUT_COMM) == ""
    assert trouble in row_trouble(exchange(0) | change, ABOUT_COMM)


def test_rows_of_other_ranks_than_the_folders_are_refused():
    assert row_trouble(exchange(0, ranks=3), ABOUT_COMM) == "ranks is 3, in a folder of 2 ranks"


@pytest.mark.parametrize("positions", [(0, 0), (0, 1, 0), (5, 3)])
def test_a_repeated_position_is_refused_and_the_journal_is_kept(tmp_path: Path, positions: tuple[int, ...]):
    lines = "".join(json.dumps(exchange(position)) + "\n" for position in positions)
    with open_folder(tmp_path, ABOUT_COMM) as folder:
        (tmp_path / NAME).write_text(lines)
        with pytest.raises(CorruptFile, match=rf"line {len(positions)}: position . comes after position"):
            folder.fold()
    assert (tmp_path / NAME).read_text() == lines


def test_what_a_failed_case_did_not_give_may_be_empty(compute: Path):
    about, (row, *_) = About(kind="compute", hardware="x", seed=0), journal_rows(compute)
    failed = {"status": "failed", "forward_s": None, "backward_s": None, "unique_rows": [], "reuse_bins": []}
    assert row_trouble(row | failed, about) == ""
    assert "unique_rows has 0 values" in row_trouble(row | {"unique_rows": []}, about)
    assert "reuse_bins has 1 values" in row_trouble(row | failed | {"reuse_bins": [1]}, about)
    assert "optimizer must be one of sgd" in row_trouble(row | {"optimizer": "lion"}, about)


def test_a_row_without_a_value_is_named_before_it_is_folded_or_read(tmp_path: Path):
    row = {name: value for name, value in exchange(7).items() if name != "median_s"}
    with open_folder(tmp_path, ABOUT_COMM) as folder:
        folder.add(row)
        with pytest.raises(CorruptFile, match=r"the row of position 7 has no median_s; remove its line"):
            folder.fold()
    assert read_columns(tmp_path, ["number"]) == {"number": [7]}
    with pytest.raises(CorruptFile, match="has no median_s"):
        read_columns(tmp_path, ["number", "median_s"])


@pytest.mark.parametrize("line", [{"begin": 1.5}, {"begin": -2}, {"begin": 1, "position": 1}, {"begin": "1"}])
def test_a_note_is_a_position_alone(tmp_path: Path, line: dict[str, Any]):
    with open_folder(tmp_path, ABOUT_COMM):
        (tmp_path / NAME).write_text(json.dumps(line) + "\n")
    with pytest.raises(CorruptFile, match="in line 1: 'begin' is no position, or does not stand alone"):
        journal_rows(tmp_path)


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
        monkeypatch.setattr("recsmith.measuring.checks.MOST_VALUES", 10_000)
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


def test_parts_of_other_ranks_than_the_folders_are_refused(tmp_path: Path):
    with open_folder(tmp_path, ABOUT):
        part_of(tmp_path, [exchange(0, ranks=3)])
    with pytest.raises(CorruptFile, match="ranks is not 2 in each row"):
        read_columns(tmp_path, ["number"])
