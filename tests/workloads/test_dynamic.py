"""Tables of ids without end: the rules of the noun, and its way through files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.build import table, workload

from recsmith.errors import CorruptFile, UsageError
from recsmith.workloads import Dynamic, load_workload, save_workload, workload_from_raw, workload_to_raw
from recsmith.workloads.dynamic import EVICTIONS


def test_a_table_keeps_how_its_ids_get_rows(tmp_path: Path):
    grown = replace(table("user"), dynamic=Dynamic(admit=3, evict="lfu"))
    save_workload(workload(grown, table("item")), tmp_path / "w.json")
    read = load_workload(tmp_path / "w.json")
    assert [each.dynamic for each in read.tables] == [Dynamic(admit=3, evict="lfu"), None]
    assert "dynamic" not in workload_to_raw(read)["tables"][1]  # files of before stay as they were


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"admit": 0}, "admit is 0; an id gets a row when it was seen so often, 1 to"),
        ({"admit": 2**20 + 1}, "admit is 1048577"),
        ({"evict": "ttl"}, "evict"),
        ({"rows": 5}, "rows"),
    ],
)
def test_what_is_no_rule_is_refused(raw: dict[str, Any], words: str):
    told = workload_to_raw(workload(table("user")))
    told["tables"][0]["dynamic"] = raw
    with pytest.raises(CorruptFile, match=words):
        workload_from_raw(told, "w.json")


def test_python_and_files_refuse_alike():
    with pytest.raises(UsageError, match="admit is 0"):
        Dynamic(admit=0)
    with pytest.raises(UsageError, match="evict"):
        Dynamic(evict="ttl")  # type: ignore[arg-type]


def test_ids_that_wait_take_room():
    assert Dynamic(admit=2).row_bytes > Dynamic().row_bytes
    assert set(EVICTIONS) == {"lfu", "lru", "age", "none"}
    assert Dynamic(evict="age").rule == EVICTIONS["age"]
