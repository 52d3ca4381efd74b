"""Extreme numbers are refused where they are read, or planned without overflow; messages name what is too large."""

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.build import cluster, made_plan, table, workload

from recsmith import Links, TableRule, load_plan, load_workload, plan, sample_workload, save_plan
from recsmith.clusters import Device
from recsmith.errors import Infeasible, UsageError
from recsmith.files import parse_json, parse_yaml
from recsmith.reports.plans import plan_report
from recsmith.units import format_gap, parse_time
from recsmith.workloads.workload import MOST_TABLES

FAST = Device(name="x", hbm_bytes=2**52, hbm_bandwidth=1e18)


def links(bandwidth: float, latency: float | None = None) -> Links:
    return Links(
        intra_host_bandwidth=bandwidth, inter_host_bandwidth=bandwidth,
        intra_host_latency_s=latency, inter_host_latency_s=latency,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: links(1e11, 1e308), "intra_host_latency_s is 1e.308; it must lie above 0 and at most at 60 seconds"),
        (lambda: links(1e-300), "intra_host_bandwidth is 1e-300; it must lie between 1 and 1e.18 bytes per second"),
        (lambda: replace(FAST, hbm_bandwidth=1e300), "hbm_bandwidth of device 'x' is 1e.300"),
        (lambda: replace(FAST, launch_s=1e9), "launch_s of device 'x' is 1000000000.0"),
        (lambda: TableRule(tables="a", min_width=10**12), "must be at least 4 and at most 65,536 columns"),
        (
            lambda: sample_workload(10**9, 0),
            "cannot sample 1,000,000,000 tables; ask for at least 1 and at most 1,000,000",
        ),
        (
            lambda: sample_workload(1, 10**5000),
            "seed is a number of 16,610 bits; it must be at most 9,223,372,036,854,775,807",
        ),
        (lambda: workload(*[table()] * (MOST_TABLES + 1)), "has 1,000,001 tables; at most 1,000,000"),
        (lambda: plan("criteo-kaggle", "h100:2", seed=-1), "seed is -1"),
        (lambda: plan("criteo-kaggle", "h100:2", seed=10**39), "seed of SearchOptions is 1"),
        (lambda: parse_time("9" * 400 + "s"), "is longer than 10 years"),
    ],
)
def test_what_would_overflow_is_refused_with_the_rule(build: Callable[[], Any], words: str):
    with pytest.raises(UsageError, match=words):
        build()


@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
@pytest.mark.parametrize("sign", ["", "-"])
def test_numbers_of_many_digits_are_refused(parse: Any, sign: str):
    words = "has 5,00[01] digits; whole numbers are below 2.63"
    with pytest.raises(UsageError, match=words):
        parse('{"a": ' + sign + "1" * 5000 + "}", "x")


def test_a_csv_with_many_digits_is_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text(f"name,num_embeddings,embedding_dim,pooling_factor\na,{'1' * 5000},4,1\n")
    with pytest.raises(UsageError, match="has 5,000 digits"):
        load_workload(tmp_path / "a.csv", batch_size=8)


@pytest.mark.parametrize("cost_model", ["analytic", "torchrec"])
@pytest.mark.parametrize("links_", [links(1.0, 60.0), links(1e18, 1e-300)], ids=["slow links", "fast links"])
@pytest.mark.parametrize("bandwidth", [1.0, 1e18])
def test_the_ends_of_the_ranges_are_planned_without_overflow(cost_model: str, links_: Links, bandwidth: float):
    machines = cluster(device=replace(FAST, hbm_bandwidth=bandwidth, launch_s=60.0), links=links_)
    work = workload(table(rows=10**8, pooling_factor=1e3), table("b", pooling_factor=1e-300), batch_size=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = plan(work, machines, cost_model=cost_model, iterations=1).plan
    printed = io.StringIO()
    Console(file=printed, width=200).print(plan_report(made))
    assert not {"inf", "nan"} & set(printed.getvalue().replace("%", " ").split())


def test_a_batch_that_finds_no_room_is_named():
    with pytest.raises(Infeasible, match=r"12.5 KiB, but optimizer state, and ids and outputs of a batch of 1"):
        plan(workload(batch_size=10**9), "h100:2")


def test_weights_that_find_no_room_are_named_alone():
    with pytest.raises(Infeasible, match=r"its weights are 1.164 TiB, the largest device offers"):
        plan(workload(table(rows=10**10)), cluster())


@pytest.mark.parametrize(
    ("place", "value"),
    [(("cost", "total_s"), 1e308), (("bound", "value_s"), 1e300), (("cost", "per_device", 0, "wait_s"), -1.0),
     (("cost", "per_device", 0, "hbm_capacity_bytes"), 0), (("cost", "per_device"), [])],
)  # fmt: skip
def test_prices_of_files_are_bounded(tmp_path: Path, place: tuple[Any, ...], value: Any):
    save_plan(made_plan(), tmp_path / "plan.json")
    raw = json.loads((tmp_path / "plan.json").read_text())
    here = raw
    for step in place[:-1]:
        here = here[step]
    here[place[-1]] = value
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    with pytest.raises(UsageError, match=r"must|the cost is of 0 devices"):
        load_plan(tmp_path / "plan.json")


def test_a_gap_is_told_for_what_it_is():
    assert [format_gap(gap) for gap in (None, 0.0, 1e-10, 2e-8, 0.5, 1234.5, 1e30)] == [
        "-", "0%", "0%", "0.0001%", "50%", "1,234 times", "over a million times"
    ]  # fmt: skip
