"""`recsmith devices`, `planners` and `workload sample`: lists, the same names in every help, and a workload."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from recsmith.cli import options
from recsmith.cli.catalogue import workload_command
from recsmith.clusters import catalogue, cluster_from_raw, load_cluster
from recsmith.costs.published import COLLECTIVES, published
from recsmith.planning.registry import PLANNERS
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES
from recsmith.workloads import load_workload
from recsmith.workloads.sample import POOL_SHA256, sample_workload

Run = Callable[..., Any]


def test_the_table_has_a_row_for_every_device_and_a_dash_for_what_is_not_known(run: Run):
    out = run("devices").out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(catalogue()) <= set(rows)
    assert "79.2 GiB" in rows["h100"]
    assert "3.35 TB/s" in rows["h100"]
    assert " 72 " in rows["gb200"]
    assert published()[COLLECTIVES]["gb200"].figures == int(rows["gb200"].split()[-1])
    assert rows["l4"].split()[-1] == "-"
    assert " - " in rows["a10g"]
    assert "14,114 and 14,942 groups of tables: cost models neural:h100 and neural:h200 know them" in out
    assert max(map(len, out.splitlines())) <= 120


def test_json_reads_back_with_its_sources(run: Run):
    raw = json.loads(run("devices", "--format", "json").out)
    assert raw["schema"] == "recsmith/devices/1"
    assert {name: each["figures"] for name, each in raw["measured"].items()} == {"h100": 14114, "h200": 14942}
    found = [cluster_from_raw(each, "devices.json") for each in raw["devices"]]
    assert found == [load_cluster(name) for name in catalogue()]
    assert all(each.sources for each in found)


def test_the_words_are_frozen():
    assert isinstance(workload_command, click.Group)
    assert list(workload_command.commands) == ["sample"]
    sample = workload_command.commands["sample"]
    found = {" ".join(each.opts): each.default for each in sample.params}
    assert list(found) == ["--tables", "--seed", "--max-bytes", "--batch-size", "--optimizer", "-o --output", "--force"]
    defaults = {word: found[word] for word in ("--seed", "--batch-size", "--optimizer", "-o --output")}
    assert list(defaults.values()) == [0, 8192, "rowwise_adagrad", "-"]
    assert all(isinstance(each, click.Option) and each.help for each in sample.params)


def test_sample_prints_the_shared_pool(run: Run):
    done = run("workload", "sample", "--tables", 856)
    assert (done.code, done.err) == (0, "")
    assert hashlib.sha256(done.out.encode()).hexdigest() == POOL_SHA256


def test_sample_writes_a_file_that_load_workload_reads(run: Run, tmp_path: Path):
    file = tmp_path / "pool.json"
    words = ("--seed", 3, "--max-bytes", "1MiB", "--batch-size", 64, "--optimizer", "sgd", "-o", file)
    done = run("workload", "sample", "--tables", 20, *words)
    made = sample_workload(20, 3, max_bytes=2**20, batch_size=64, optimizer="sgd")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("recsmith: note: 20 tables, ")
    assert done.err.endswith(f" of weights, written to {file}\n")
    assert load_workload(str(file)) == made


def test_a_sample_can_be_planned(run: Run):
    drawn = run("workload", "sample", "--tables", 30, "--max-bytes", "1GiB")
    assert run("plan", "-", "--cluster", "h100:2", stdin=drawn.out).code == 0


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), "missing option '--tables'"),
        (("--tables", 0), "0 is not in the range x>=1"),
        (("--tables", 1, "--seed", -1), "-1 is not in the range x>=0"),
        (("--tables", 1, "--max-bytes", "31B"), "the smallest takes 32 B"),
        (("--tables", 1, "--max-bytes", "4"), "'4' is not a quantity with a unit"),
        (("--tables", 1, "--optimizer", "sgdd"), "did you mean 'sgd'?"),
        (("--tables", 1, "-o", "/nowhere/pool.json"), "create it first"),
        (("--tables", 1, "-o", "pool.csv"), "name the file .json"),
    ],
)
def test_wrong_words_end_with_2(run: Run, words: tuple[object, ...], rule: str):
    done = run("workload", "sample", *words)
    assert (done.code, done.out) == (2, "")
    assert rule in done.err


def test_help_names_the_subcommand(run: Run):
    assert "Draw a workload of tables" in run("workload", "--help").out
    done = run("workload", "sample", "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: recsmith workload sample")
    assert "  recsmith workload sample --tables 856 --seed 0 -o pool.json\n" in done.out


def test_the_table_and_json_say_the_same(run: Run):
    out, raw = run("planners").out, json.loads(run("planners", "--format", "json").out)
    for each in (*raw["planners"], *raw["cost_models"]):
        assert each["name"] in out
        assert each["about"] in out
    assert "auto (default)" in out
    assert "best (default)" in out


def test_help_lists_the_names_of_the_registries(run: Run):
    assert list(options.PLANNERS) == list(PLANNERS)
    assert options.TYPES == TYPE_NAMES
    assert options.KERNELS == KERNEL_NAMES
    assert list(options.DEVICES) == catalogue()
    out = "".join(run("plan", "--help").out.split())  # lines break at hyphens too
    for group in (options.PLANNERS, options.TYPES, options.KERNELS, options.DEVICES):
        assert options.listed(group).replace(" ", "") in out
