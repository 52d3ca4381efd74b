"""What another data type saves follows the bytes: of weights, of devices that hold them, and of what lookups read."""

from dataclasses import replace
from typing import Any

import pytest
from support.cases import cluster, table, workload

from recsmith.analyses.data_types import compare_data_types, parse_data_type
from recsmith.clusters import load_cluster
from recsmith.errors import UsageError
from recsmith.planning import plan
from recsmith.reports.comparisons import data_types_to_raw
from recsmith.reports.layout import show
from recsmith.workloads import Workload

GIB = 2**30
TABLES = (table("wide", 4_000_000, 64, 1.0), table("hot", 2_000_000, 64, 20.0))
WORK = replace(workload(*TABLES, batch_size=256), optimizer="rowwise_adagrad")
CPUS = replace(load_cluster("cpu:4"), hbm_bytes=2 * GIB)
FAST: dict[str, Any] = {"planner": "cost_greedy", "cost_model": "analytic"}  # whose seconds follow bytes


def test_bf16_halves_weights_and_devices_and_lookups() -> None:
    given, alone, halves = compare_data_types(WORK, CPUS, data_type="bf16", **FAST)
    assert given.weight_bytes == 4 * 64 * 6_000_000 == 2 * alone.weight_bytes
    assert given.state_bytes == alone.state_bytes == 4 * 6_000_000
    assert given.step_s == plan(WORK, CPUS, **FAST).plan.cost.total_s
    assert (given.devices, alone.devices, halves.devices) == (1, 1, 1)
    assert alone.step_s < halves.step_s < given.step_s
    assert (halves.weight_bytes, halves.state_bytes, halves.fullest_bytes) == (
        given.weight_bytes, given.state_bytes, given.fullest_bytes,
    )  # fmt: skip
    assert "rows: split" in halves.note
    assert alone.note


def test_fewest_devices_are_those_that_hold_the_tables() -> None:
    small = replace(CPUS, hbm_bytes=GIB)
    given, alone, halves = compare_data_types(WORK, small, data_type="bf16", **FAST)
    assert (given.devices, alone.devices, halves.devices) == (2, 1, 2)
    hosts = replace(cluster(local=2), hosts=4, hbm_bytes=GIB // 2)
    given, alone = compare_data_types(WORK, hosts, data_type="fp16", **FAST)
    assert given.devices == 4  # two hosts of two
    assert alone.devices == 2


@pytest.mark.parametrize(
    ("work", "where"),
    [
        (replace(WORK, optimizer="adagrad"), CPUS),
        (WORK, load_cluster("h100:2")),
        (replace(WORK, tables=tuple(replace(each, data_type="fp16") for each in TABLES)), CPUS),
    ],
)
def test_halves_are_told_where_a_job_can_have_them(work: Workload, where: Any) -> None:
    assert len(compare_data_types(work, where, data_type="bf16", **FAST)) == 2


def test_the_report_and_its_data_have_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    forms = compare_data_types(WORK, CPUS, data_type="bf16", **FAST)
    from recsmith.reports.comparisons import data_types_report

    show(data_types_report(forms))
    printed = capsys.readouterr().out
    raw = data_types_to_raw(forms)
    for each in raw["forms"]:
        assert each["name"] in printed
    assert [each["weight_bytes"] for each in raw["forms"]] == [each.weight_bytes for each in forms]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data_type=bf15", "no data type; did you mean 'bf16'"),
        ("data_type", "no data type"),
        ("link=2x", "changes nothing that plan knows"),
        ("", "changes nothing that plan knows"),
    ],
)
def test_changes_that_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_data_type(text)


def test_spaces_do_not_count() -> None:
    assert parse_data_type(" data_type = fp16 ") == "fp16"
