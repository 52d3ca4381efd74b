"""The catalogue: every figure names its source, and GPUs are known by the whole words of their names."""

import re
from importlib import resources
from pathlib import Path

import pytest

from recsmith.clusters import catalogue, load_cluster
from recsmith.clusters.catalogued import OWN_DEVICE, catalogue_raw, unknown_device
from recsmith.errors import UsageError

OF_TORCHREC = ("cpu", "torchrec-default")  # TorchRec's constants; they name no host, so local_world_size has no source
FIGURE = re.compile(r" *([a-z0-9_]+): +[0-9][^#]*(#.*)?")


def lines_of(name: str) -> list[str]:
    return (resources.files("recsmith.clusters") / "catalogue" / f"{name}.yaml").read_text("utf-8").splitlines()


def figures_of(name: str) -> dict[str, str]:
    """The comment of every figure of a catalogue file."""
    matches = filter(None, map(FIGURE.fullmatch, lines_of(name)))
    return {found[1]: found[2] or "" for found in matches}


def test_the_catalogue_is_frozen():
    assert catalogue() == [
        "a100-40", "a100-80", "a10g", "b200", "cpu", "gb200", "h100", "h200", "l4", "l40s", "mi300x",
        "torchrec-default", "v100-32",
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
    assert 2**34 < device.hbm_bytes < 2**38
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
    ],
)
def test_a_gpu_is_one_device_of_the_catalogue_or_none(gpu: str, name: str | None):
    found = [each for each in catalogue() if load_cluster(each).device.is_called(gpu)]
    assert found == ([name] if name else [])


def test_a_name_without_its_size_gets_both_sizes():
    assert unknown_device("a100") == "; did you mean a100-40 or a100-80?"
    assert unknown_device("v100") == "; did you mean v100-32?"


@pytest.mark.parametrize("name", ["b300:8", "b300", "tpu:4"])
def test_a_device_that_is_not_there_is_told_of_cluster_files(name: str):
    with pytest.raises(UsageError, match="A device of your own goes into a YAML file"):
        load_cluster(name)


def test_the_file_that_errors_show_is_read(tmp_path: Path):
    lines = re.findall("`([^`]+)`", OWN_DEVICE)
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    found = load_cluster(str(tmp_path / "mine.yaml"))
    assert (found.device.name, found.device.hbm_bytes) == ("mine", 60 * 2**30)
