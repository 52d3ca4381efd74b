"""Hardware by name, and what is said where it cannot be had."""

from importlib import metadata
from typing import Any

import pytest

import recsmith.hardware as room
from recsmith.adapters import installed
from recsmith.errors import MissingExtra, UsageError
from recsmith.hardware import load_hardware


def versions(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    """Pretend that these packages are installed, and no others."""

    def version(package: str) -> str:
        if package.replace("-", "_") not in found:
            raise metadata.PackageNotFoundError(package)
        return found[package.replace("-", "_")]

    monkeypatch.setattr(installed, "version", version)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("gpu", "no hardware is called 'gpu'; there are cpu, cuda or cuda:<gpu> such as cuda:h200, simulated:<gpu>"),
        ("cuda:", "no hardware is called 'cuda:'"),
        ("cuda:h20", "did you mean 'h200'"),
        ("simulated", "no hardware is called 'simulated'"),
        ("simulated:", "no hardware is called"),
        ("simulated:h10", "did you mean 'h100'"),
        ("simulated:cpu", "the simulation knows the figures of a100-40"),
        ("simulated:h100?noise=x", "write for example \\?noise=0.03"),
        ("simulated:h100?sound=1", "is not an option of simulated hardware"),
        ("simulated:h100?noise=1.5", "noise is 1.5"),
    ],
)
def test_wrong_names_are_refused(name: str, rule: str):
    with pytest.raises(UsageError, match=rule):
        load_hardware(name)


@pytest.mark.parametrize(("name", "right"), [("cuda", True), ("cuda:h100", True), ("cuda:h200", False)])
def test_a_named_gpu_must_be_the_one_that_is_there(monkeypatch: pytest.MonkeyPatch, name: str, right: bool):
    class Cuda:
        device = "NVIDIA H100 80GB HBM3, 132 SMs, cache 52428800"

        def __init__(self, *_: Any) -> None:
            """Open."""

    monkeypatch.setattr(room, "require_fbgemm", lambda cuda: "")
    monkeypatch.setattr(room, "_import", lambda *_: Cuda)
    if right:
        assert isinstance(load_hardware(name), Cuda)
    else:
        with pytest.raises(UsageError, match="the GPU of this machine is 'NVIDIA H100 80GB HBM3', not h200"):
            load_hardware(name)


def test_an_unknown_scale_is_refused():
    with pytest.raises(UsageError, match="did you mean 'cpu'"):
        load_hardware("simulated:h100", "cpuu")


def test_the_scale_is_the_hardwares_unless_said():
    assert load_hardware("simulated:h100").scale.name == "gpu"
    assert load_hardware("simulated:h100", "cpu").scale.name == "cpu"


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("cpu", {}, "torch is not installed"),
        ("cpu", {"torch": "2.13.0"}, "fbgemm_gpu is not installed"),
        ("cpu", {"torch": "2.15.0", "fbgemm_gpu_cpu": "1.8.0"}, "FBGEMM 1.8.0 was built for torch 2.13, found 2.15.0"),
        ("cpu", {"torch": "2.13.0+cpu", "fbgemm_gpu_cpu": "1.6.0"}, "was built for torch 2.11"),
        ("cuda", {"torch": "2.13.0", "fbgemm_gpu_cpu": "1.8.0"}, "is the CPU build of FBGEMM"),
    ],
)
def test_missing_and_mismatched_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, found: dict[str, str], said: str
):
    versions(monkeypatch, **found)
    with pytest.raises(MissingExtra, match=said):
        load_hardware(name)


@pytest.mark.parametrize(("torch", "fbgemm"), [("2.11.0", "1.6.0"), ("2.14.1", "1.9.0"), ("2.16.0", "1.10.0")])
def test_pairs_that_belong_together_and_pairs_yet_unknown_pass(
    monkeypatch: pytest.MonkeyPatch, torch: str, fbgemm: str
):
    versions(monkeypatch, torch=torch, fbgemm_gpu_cpu=fbgemm)
    assert installed.require_fbgemm().endswith(f"torch {torch}, fbgemm {fbgemm}")


@pytest.mark.parametrize("error", [OSError("x.so: undefined symbol\nmore"), ImportError("x.so: undefined symbol")])
def test_a_library_that_does_not_load_is_a_missing_extra(monkeypatch: pytest.MonkeyPatch, error: Exception):
    def fail(_: str) -> Any:
        raise error

    monkeypatch.setattr(room, "require_fbgemm", lambda cuda: "")
    monkeypatch.setattr(room, "import_module", fail)
    with pytest.raises(MissingExtra, match=r"cannot be loaded \(x.so: undefined symbol\); install a pair: pip install"):
        load_hardware("cpu")
