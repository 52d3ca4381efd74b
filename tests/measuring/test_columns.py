"""The columns of rows: no name twice, units for each, and those of the origin are filled by one function."""

import pytest

from recsmith.measuring.columns import COLUMNS, MeasurementKind, origin_columns


@pytest.mark.parametrize("kind", ["compute", "comm"])
def test_columns_have_one_name_and_a_unit_each(kind: MeasurementKind):
    names = [column.name for column in COLUMNS[kind]]
    assert len(set(names)) == len(names)
    assert all(column.unit and column.meaning for column in COLUMNS[kind])
    assert all(column.unit == "s" for column in COLUMNS[kind] if column.name.endswith("_s"))
    origin = origin_columns(1.5, "cpu", "a core", "recsmith 0")
    assert names[-len(origin) :] == list(origin)
    assert (origin["elapsed_s"], origin["hardware"], origin["device"]) == (1.5, "cpu", "a core")
    assert origin["versions"].startswith("recsmith 0, Python 3.")
