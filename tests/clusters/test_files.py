"""Short forms of cluster files: quantities with units, devices of the catalogue with changes; strict all the same."""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from support.schema import problems

from recsmith.clusters import Cluster, catalogue, cluster_from_raw, cluster_to_raw, large_host, load_cluster
from recsmith.clusters.files import (
    OWN_DEVICE,
    SCHEMA,
    catalogue_raw,
    cluster_schema,
    plain_cluster_schema,
    unknown_device,
    write_out,
)
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, dump_json, parse
from recsmith.workloads import load_workload

QUANTITIES = """\
schema: recsmith/cluster/1
device: {name: mine, hbm_bytes: 80GiB, hbm_bandwidth: 3.35TB/s, host_link_bandwidth: 64 GB/s, l2_bytes: 50MiB}
links: {intra_host_bandwidth: 450GB/s, inter_host_bandwidth: 400Gbit/s}
local_world_size: 2
hbm_bytes: [80GiB, 60 GiB]
reserve_bytes: 4GB
ddr_bytes_per_host: 1TiB
"""
OF_TORCHREC = ("cpu", "torchrec-default")  # TorchRec's constants; they name no host, so local_world_size has no source
FIGURE = re.compile(r" *([a-z0-9_]+): +[0-9][^#]*(#.*)?")


def read(raw: Raw) -> Cluster:
    return cluster_from_raw(write_out({"schema": SCHEMA, **raw}, "c.yaml"), "c.yaml")


def refusal(raw: Raw) -> str:
    with pytest.raises(CorruptFile) as caught:
        read(raw)
    return str(caught.value)


def test_sizes_and_speeds_may_carry_units(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(QUANTITIES)
    found = load_cluster(str(tmp_path / "c.yaml"))
    assert (found.device.hbm_bytes, found.device.l2_bytes) == (80 * 2**30, 50 * 2**20)
    assert (found.device.hbm_bandwidth, found.device.host_link_bandwidth) == (3.35e12, 64e9)
    assert (found.links.intra_host_bandwidth, found.links.inter_host_bandwidth) == (450e9, 50e9)
    assert found.hbm_bytes == (80 * 2**30, 60 * 2**30)
    assert (found.reserve_bytes, found.ddr_bytes_per_host) == (4 * 10**9, 2**40)


@pytest.mark.parametrize("name", ["h100", "H100"])
def test_a_device_of_the_catalogue_brings_its_links_and_host(name: str):
    assert replace(read({"device": name}), reserve_bytes=None) == load_cluster("h100")
    assert replace(read({"device": name, "hosts": 12}), reserve_bytes=None) == load_cluster("h100:8x12")


@pytest.mark.parametrize(("stated", "reserve"), [("", None), ("reserve_bytes: 0", 0), ("reserve_bytes: 2GiB", 2**31)])
def test_a_file_may_leave_the_reserve_to_planning(tmp_path: Path, stated: str, reserve: int | None):
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: recsmith/cluster/1\ndevice: h100\n{stated}\n", "utf-8")
    assert load_cluster(path).reserve_bytes == reserve


def test_changes_replace_single_figures():
    h100 = load_cluster("h100")
    found = read({"device": {"base": "h100", "hbm_bytes": "60GiB"}, "links": {"inter_host_bandwidth": "200Gbit/s"}})
    assert found.device == replace(h100.device, hbm_bytes=60 * 2**30)
    assert found.links == replace(h100.links, inter_host_bandwidth=25e9)
    assert found.sources[:-1] == h100.sources
    assert found.sources[-1] == "given in the cluster file: device.hbm_bytes, links.inter_host_bandwidth"


def test_a_file_may_name_its_own_device_and_sources():
    found = read({"device": {"base": "b200", "name": "b300"}, "sources": ["my datasheet"], "hbm_bytes": "268GiB"})
    assert (found.device.name, found.sources, found.hbm_bytes) == ("b300", ("my datasheet",), 268 * 2**30)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"device": "a100"}, "no device of the catalogue is called 'a100'; did you mean a100-40 or a100-80?"),
        ({"device": {"base": "tpu"}}, "no device of the catalogue is called 'tpu'"),
        ({"device": {"base": 7}}, "no device of the catalogue is called '7'"),
        ({"device": {"base": "h100", "hbm_byte": 1}}, "device.hbm_byte is not a known field; did you mean 'hbm_bytes'"),
        ({"device": "h100", "links": {"intra": 1}}, "links.intra is not a known field"),
        ({"device": "h100", "host": 2}, "host is not a known field; did you mean 'hosts'"),
        ({"device": {"base": "h100", "hbm_bytes": "80"}}, "device.hbm_bytes: '80' is not a quantity with a unit"),
        ({"device": {"base": "h100", "hbm_bytes": "1e3GiB"}}, "is not a quantity with a unit"),
        ({"device": "h100", "hbm_bytes": "80GB/s"}, "hbm_bytes: '80GB/s' is not a quantity with a unit"),
        ({"device": "h100", "links": {"inter_host_bandwidth": "400Gb/s"}}, "400Gbit/s in bits, or a plain number"),
        ({"device": "h100", "links": {"inter_host_bandwidth": "50GB"}}, "'50GB' is not a speed with a unit"),
        ({"device": "h100", "links": "nvlink"}, 'links is "nvlink"'),
        ({"device": "h100", "hbm_bytes": "0GiB"}, "hbm_bytes is 0 bytes"),
        ({"device": {"base": "h100", "launch_s": "5us"}}, 'device.launch_s is "5us"'),
        ({}, "device is missing"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(raw: Raw, words: str):
    assert words in refusal(raw)


def test_a_plan_holds_its_cluster_written_out():
    found = read({"device": {"base": "l4", "hbm_bytes": "20GiB"}})
    raw = cluster_to_raw(found)
    assert problems(raw, plain_cluster_schema()) == []
    assert cluster_from_raw(parse(dump_json(raw), "c.json"), "c.json") == found
    with pytest.raises(CorruptFile, match='device is "h100"'):
        cluster_from_raw({**raw, "device": "h100"}, "plan.json")


# --- the JSON Schema --------------------------------------------------------------------------------------------------

GOOD: list[Any] = [
    {"device": "h100"},
    {"device": {"base": "h100"}, "hosts": 2, "hbm_bytes": ["60GiB", 2**36] * 8},
    {"device": {"base": "h100", "hbm_bandwidth": "3TB/s"}, "links": {"inter_host_bandwidth": "400Gbit/s"}},
]
BAD: list[Any] = [
    {"device": {"base": "h100", "hbm_byte": 1}},
    {"device": {"base": 7}},
    {"device": {"name": "x", "hbm_bytes": "80GiB"}},
    {"device": {"name": "x", "hbm_bytes": "80GiB", "hbm_bandwidth": "3TB/s"}},
    {"device": "h100", "hbm_bytes": "60"},
    {"device": "h100", "links": {"inter_host_bandwidth": "400GiB"}},
    {"device": "h100", "host": 2},
    {},
]


@pytest.mark.parametrize("raw", GOOD, ids=str)
def test_the_schema_takes_what_the_reader_takes(raw: Raw):
    read(raw)
    assert problems({"schema": SCHEMA, **raw}, cluster_schema()) == []


@pytest.mark.parametrize("raw", BAD, ids=str)
def test_the_schema_refuses_what_the_reader_refuses(raw: Raw):
    refusal(raw)
    assert problems({"schema": SCHEMA, **raw}, cluster_schema())


def test_the_schema_takes_the_file_with_units(tmp_path: Path):
    assert problems(parse(QUANTITIES, "c.yaml"), cluster_schema()) == []


def test_the_examples_of_the_documentation_are_read(tmp_path: Path):
    text = (Path(__file__).parents[2] / "docs/files.md").read_text("utf-8")
    examples = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.S) if SCHEMA in block]
    assert len(examples) == 2
    for example in examples:
        (tmp_path / "c.yaml").write_text(example)
        assert load_cluster(str(tmp_path / "c.yaml")).hosts == 4
    workload = next(block for block in re.findall(r"```yaml\n(.*?)```", text, re.S) if "workload/1" in block)
    (tmp_path / "w.yaml").write_text(workload)
    access = load_workload(str(tmp_path / "w.yaml")).tables[0].access
    assert access is not None
    assert access.zipf == 1.05


def lines_of(name: str) -> list[str]:
    return (resources.files("recsmith.clusters") / "catalogue" / f"{name}.yaml").read_text("utf-8").splitlines()


def figures_of(name: str) -> dict[str, str]:
    """The comment of every figure of a catalogue file."""
    matches = filter(None, map(FIGURE.fullmatch, lines_of(name)))
    return {found[1]: found[2] or "" for found in matches}


def test_the_catalogue_is_frozen():
    assert catalogue() == [
        "a100-40", "a100-80", "a10g", "b200", "b300", "cpu", "gb200", "gb300", "h100", "h200", "l4", "l40s", "mi300x",
        "mi325x", "mi350x", "mi355x", "torchrec-default", "v100-32",
    ]  # fmt: skip


@pytest.mark.parametrize("name", catalogue())
def test_every_figure_has_a_source_and_every_source_is_cited(name: str):
    figures = figures_of(name)
    raw = catalogue_raw(name)
    named = {*raw["device"], *raw["links"], *raw} - {"schema", "device", "links", "sources", "name", "kind"}
    assert set(figures) == named
    if name in OF_TORCHREC:
        del figures["local_world_size"]
    numbers = {f"[{i + 1}]" for i in range(len(raw["sources"]))}
    assert [source.split()[0] for source in raw["sources"]] == [f"[{i + 1}]" for i in range(len(numbers))]
    cited = {key: set(re.findall(r"\[[0-9]+\]", comment)) for key, comment in figures.items()}
    cited["local_world_size"] = cited.get("local_world_size") or numbers
    assert all(cited.values()), [key for key, found in cited.items() if not found]
    everywhere = set(re.findall(r"\[[0-9]+\]", "\n".join(line for line in lines_of(name) if '- "' not in line)))
    assert everywhere == numbers


@pytest.mark.parametrize("name", catalogue())
def test_figures_of_a_device_agree_with_each_other(name: str):
    device, links = load_cluster(name).device, load_cluster(name).links
    assert 2**34 < device.hbm_bytes < 2**39
    assert device.l2_bytes is None or device.l2_bytes < device.hbm_bytes / 100
    assert device.l2_bandwidth is None or 2 <= device.l2_bandwidth / device.hbm_bandwidth < 7
    assert links.inter_host_bandwidth < links.intra_host_bandwidth
    assert device.host_link_bandwidth is None or device.host_link_bandwidth < device.hbm_bandwidth


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("Tesla V100-SXM2-32GB", "v100-32"),
        ("Tesla V100S-PCIE-32GB", None),
        ("Tesla V100-SXM2-16GB", None),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", None),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A10", None),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("AMD Instinct MI325X", "mi325x"),
        ("AMD Instinct MI355X", "mi355x"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB300", "gb300"),
    ],
)
def test_a_gpu_is_one_device_of_the_catalogue_or_none(gpu: str, name: str | None):
    found = [each for each in catalogue() if load_cluster(each).device.is_called(gpu)]
    assert found == ([name] if name else [])


def test_a_name_without_its_size_gets_both_sizes():
    assert unknown_device("a100") == "; did you mean a100-40 or a100-80?"
    assert unknown_device("v100") == "; did you mean v100-32?"


@pytest.mark.parametrize("name", ["b400:8", "b400", "tpu:4"])
def test_a_device_that_is_not_there_is_told_of_cluster_files(name: str):
    with pytest.raises(UsageError, match="A device of your own goes into a YAML file"):
        load_cluster(name)


def test_the_file_that_errors_show_is_read(tmp_path: Path):
    lines = re.findall("`([^`]+)`", OWN_DEVICE)
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    found = load_cluster(str(tmp_path / "mine.yaml"))
    assert (found.device.name, found.device.hbm_bytes) == ("mine", 60 * 2**30)


def test_a_name_that_asks_for_a_host_larger_than_hosts_are_is_noted():
    note = large_host("H100:64")
    assert note is not None
    assert note.endswith("for 8 of them write h100:8x8")
    assert [large_host(each) for each in ("h100:8x8", "v100-32:16", "gb200:72", "cpu:32", "mine.yaml")] == [None] * 5
