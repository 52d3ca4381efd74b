"""Parts: parquet that says what its columns mean; damaged ones are named and nothing is overwritten."""

import json
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import CorruptFile, MissingExtra, RecSmithError
from recsmith.hardware import load_hardware
from recsmith.measuring import parquet_parts
from recsmith.measuring.about import load_about
from recsmith.measuring.cases import Cases
from recsmith.measuring.columns import COLUMNS, COMPUTE, SCHEMA
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.folder import Limit, journal_rows, open_folder, read_columns
from recsmith.measuring.journal import NAME

DOCS = Path(__file__).parents[2] / "docs" / "measurements.md"
pyarrow: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a part of 32 visits of simulated samples, 12 of them steady, and a journal of 3 visits."""
    hardware = load_hardware("simulated:h100", "check")
    cases = Cases(seed=0, scale=hardware.scale)
    measure_compute(hardware, cases, tmp_path / "m", Limit(samples=12))
    with monkeypatch.context() as patch:
        patch.setattr("recsmith.measuring.folder.has_pyarrow", lambda: False)
        measure_compute(hardware, cases, tmp_path / "m", Limit(samples=15))
    return tmp_path / "m"


def the_part(folder: Path) -> Path:
    return folder / "part-000000000-000000031.parquet"


def test_a_part_has_the_documented_columns_with_units(made: Path):
    schema = pyarrow.parquet.read_schema(the_part(made))
    assert schema.metadata[b"recsmith.schema"] == SCHEMA.encode()
    assert schema.names == [column.name for column in COMPUTE]
    for column in COMPUTE:
        assert schema.field(column.name).metadata == {
            b"unit": column.unit.encode(),
            b"meaning": column.meaning.encode(),
        }
        assert str(schema.field(column.name).type).replace("double", "float64").replace("element: ", "") == column.type


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_column_is_documented(kind: Any):
    text = DOCS.read_text()
    for column in COLUMNS[kind]:
        assert f"| `{column.name}` | `{column.type}` | {column.unit} | {column.meaning} |" in text


def test_rows_are_read_from_parts_and_journal_in_order(made: Path):
    found = read_columns(made, ["position", "rows", "lookups", "forward_s", "reuse_bins", "message"])
    assert found["position"] == list(range(35))
    cases = Cases(seed=0, scale=load_hardware("simulated:h100", "check").scale)
    first = cases.case(0)
    assert found["rows"][0] == [table.num_embeddings for table in first.tables]
    assert found["lookups"][0] == list(first.lookups)
    assert len(found["reuse_bins"][34]) == 17 * len(found["rows"][34])
    assert all(seconds > 0 for seconds in found["forward_s"])


def test_folding_moves_the_journal_into_a_part(made: Path):
    before = read_columns(made, [column.name for column in COMPUTE])
    old = the_part(made).read_bytes()
    with open_folder(made, load_about(made)) as folder:
        assert folder.fold() == made / "part-000000032-000000034.parquet"
        assert folder.fold() is None
        assert folder.position == 35
    assert read_columns(made, [column.name for column in COMPUTE]) == before
    assert the_part(made).read_bytes() == old
    assert not (made / "journal.jsonl").exists()


def test_a_full_disk_keeps_the_journal(made: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    full_disk = pytest.raises(RecSmithError, match="No space left on device; the journal keeps its samples")
    with open_folder(made, load_about(made)) as folder, full_disk:
        folder.fold()
    assert len(journal_rows(made)) == 3
    assert sorted(path.name for path in made.iterdir()) == ["about.json", "journal.jsonl", the_part(made).name]


@pytest.mark.parametrize("data", [b"", b"PAR1 nonsense PAR1", None])
def test_a_damaged_part_is_named(made: Path, data: bytes | None):
    the_part(made).write_bytes(the_part(made).read_bytes()[:-100] if data is None else data)
    with pytest.raises(
        CorruptFile, match=r"part-000000000-000000031.parquet' cannot be read .*the other parts are whole"
    ):
        read_columns(made, ["status"])


@pytest.mark.parametrize(
    ("metadata", "found"),
    [({}, "none"), ({b"recsmith.schema": b"recsmith/measurements/9"}, "recsmith/measurements/9")],
)
def test_a_part_of_another_schema_is_named(made: Path, metadata: dict[bytes, bytes], found: str):
    table = pyarrow.parquet.read_table(the_part(made)).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, the_part(made))
    with pytest.raises(CorruptFile, match=f"has the schema '{found}', this version reads"):
        read_columns(made, ["status"])


def test_a_part_without_a_column_is_named(made: Path):
    table = pyarrow.parquet.read_table(the_part(made))
    pyarrow.parquet.write_table(table.drop_columns(["backward_s"]), the_part(made))
    with pytest.raises(CorruptFile, match="has no column 'backward_s'"):
        read_columns(made, ["status"])


def test_a_run_goes_on_once_a_damaged_part_is_moved_away_and_overwrites_nothing(made: Path):
    """Samples 12 to 14, whose second visits the journal has, need one more; the others are measured again."""
    the_part(made).write_bytes(b"nonsense")
    hardware = load_hardware("simulated:h100", "check")
    cases = Cases(seed=0, scale=hardware.scale)
    with pytest.raises(CorruptFile, match="move it away, the other parts are whole"):
        measure_compute(hardware, cases, made, Limit(budget_s=0.05))
    assert the_part(made).read_bytes() == b"nonsense"
    the_part(made).unlink()
    assert measure_compute(hardware, cases, made, Limit(samples=20)).visits == 37
    found = read_columns(made, ["position", "sample"])
    assert found["position"] == list(range(32, 72))
    assert sorted(found["sample"]) == sorted([*range(20)] * 2)


def test_without_pyarrow_parts_cannot_be_read(made: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet_parts, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'pyarrow>=20'; the journal keeps all samples"):
        read_columns(made, ["status"])
    the_part(made).unlink()
    assert read_columns(made, ["status"]) == {"status": ["ok"] * 3}


def test_measurements_of_before_are_of_whole_tables(made: Path):
    """Neither their parts nor their journals have the column of blocks; what is folded now has it."""
    names = [column.name for column in COMPUTE]
    before = read_columns(made, names)
    table = pyarrow.parquet.read_table(the_part(made))
    pyarrow.parquet.write_table(table.drop_columns(["blocks"]), the_part(made))
    lines = [json.loads(line) for line in (made / NAME).read_text().splitlines()]
    kept = [{name: line[name] for name in line if name != "blocks"} for line in lines]
    (made / NAME).write_text("".join(f"{json.dumps(line)}\n" for line in kept))
    assert "blocks" not in (made / NAME).read_text()
    assert read_columns(made, names) == before
    assert set(before["blocks"]) == {1}
    with open_folder(made, load_about(made)) as folder:
        folder.fold()
    assert read_columns(made, names) == before


def test_a_table_has_one_block_at_least(made: Path):
    table = pyarrow.parquet.read_table(the_part(made))
    none = pyarrow.array([0] * len(table), pyarrow.int64())
    place = table.column_names.index("blocks")
    pyarrow.parquet.write_table(table.set_column(place, table.schema.field("blocks"), none), the_part(made))
    with pytest.raises(CorruptFile, match="blocks must be at least 1"):
        read_columns(made, ["blocks"])
