"""The list of devices: every device of the catalogue, with what it holds and how fast it is."""

import json
from collections.abc import Callable
from typing import Any

from recsmith.clusters import catalogue, cluster_from_raw, load_cluster

Run = Callable[..., Any]


def test_the_table_has_a_row_for_every_device_and_a_dash_for_what_is_not_known(run: Run):
    out = run("devices").out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(catalogue()) <= set(rows)
    assert "79.2 GiB" in rows["h100"]
    assert "3.35 TB/s" in rows["h100"]
    assert rows["gb200"].split()[-1] == "72"
    assert " - " in rows["a10g"]
    assert max(map(len, out.splitlines())) <= 110


def test_json_reads_back_with_its_sources(run: Run):
    raw = json.loads(run("devices", "--format", "json").out)
    assert raw["schema"] == "recsmith/devices/1"
    found = [cluster_from_raw(each, "devices.json") for each in raw["devices"]]
    assert found == [load_cluster(name) for name in catalogue()]
    assert all(each.sources for each in found)
