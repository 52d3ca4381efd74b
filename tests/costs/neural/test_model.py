"""Cost models `neural:` by name: what they refuse, and what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.learned import write_model
from support.learned_cases import case_of, evaluator_of

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.model import is_device
from recsmith.errors import UsageError
from recsmith.planning.simulate import simulate


@pytest.mark.parametrize(
    ("fields", "case", "words"),
    [
        ({"hardware": "cuda", "device": "an H100"}, {}, "on cuda (an H100), the cluster's device is 'test'"),
        ({"optimizers": ("sgd",)}, {}, "optimizers sgd, not rowwise_adagrad"),
        ({}, {"optimizer": "adam"}, "not adam; take another cost model"),
        ({"data_types": ("fp16",)}, {}, "data types fp16, not fp32"),
    ],
)  # fmt: skip
def test_another_device_optimizer_or_type_is_refused(tmp_path: Path, fields: Any, case: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        evaluator_of(tmp_path, case_of(**case), **fields)
    assert words in str(error.value)


def test_a_model_of_a_formula_says_so(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", hardware="simulated:h100?noise=0.03", device="h100, simulated")
    with pytest.warns(UserWarning, match=r"trained on simulated:h100\?noise=0\.03, which is a formula"):
        cost_model(f"neural:{tmp_path / 'm.safetensors'}")


@pytest.mark.parametrize(
    ("hardware", "measured", "device", "same"),
    [
        ("cpu", "AMD EPYC", "cpu", True),
        ("cpu", "AMD EPYC", "h100", False),
        ("cuda", "NVIDIA A100-SXM4-40GB, 108 SMs", "a100-40", True),
        ("cuda", "NVIDIA A100-SXM4-40GB, 108 SMs", "a100-80", False),
        ("cuda", "NVIDIA A100-SXM4-80GB, 108 SMs, cache 41943040", "a100-80", True),
        ("cuda", "NVIDIA A100-SXM4-80GB, 108 SMs, cache 41943040", "a100-40", False),
        ("cuda", "NVIDIA H200, 132 SMs", "h200", True),
        ("cuda", "NVIDIA H200, 132 SMs", "cpu", False),
        ("simulated:h100?noise=0.1", "h100, simulated", "h100", True),
        ("simulated:h100", "h100, simulated", "h200", False),
    ],
)
def test_devices_are_known_by_their_words(hardware: str, measured: str, device: str, same: bool) -> None:
    assert is_device(hardware, measured, load_cluster(device).device) == same


def test_a_plan_by_a_learned_model_is_priced_again_by_its_name(tmp_path: Path) -> None:
    case = replace(case_of(), cost_model=write_model(tmp_path / "m.safetensors"))
    found = case.plan("size_greedy").plan
    assert found.cost_model == case.cost_model
    assert simulate(found).cost == found.cost
