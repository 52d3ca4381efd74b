"""Cost models `neural:` by name: what they refuse, and what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import table
from support.learned import card, tensors, write_model
from support.learned_cases import case_of, evaluator_of

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.files import Range, save_model
from recsmith.costs.neural.inputs import cells_of, figures_of
from recsmith.costs.neural.model import is_device
from recsmith.errors import UsageError
from recsmith.planning.simulate import simulate
from recsmith.plans import plan_from_raw, plan_to_raw


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


def test_inputs_beyond_the_trained_range_are_said_with_the_factor(tmp_path: Path) -> None:
    case = case_of(table("a", 1000, 128, 5.0), batch_size=8)
    most = {"rows": 250.0, "device ids": 32.0, "columns": 128.0}
    ranges = {name: Range(least=1.0, most=value) for name, value in most.items()}
    name = write_model(tmp_path / "m.safetensors", ranges=ranges)
    with pytest.warns(UserWarning, match=r"extrapolates .* rows 4 times, device ids 1\.25 times$"):
        found = cost_model(name).compile(case.problem)
    assert isinstance(found, NeuralEvaluator)
    assert found.extrapolated == {"rows": 4.0, "device ids": 1.25}


def test_the_table_that_is_farthest_from_what_was_trained_is_named(tmp_path: Path) -> None:
    near, far = table("near", 1000, 128, 5.0), table("far", 1000, 128, 5.0 * 4**5)
    unique = cost_model("analytic").compile(case_of(near, batch_size=8).problem).kernels.unique  # pyright: ignore
    figures = [figures_of(*map(np.atleast_1d, (1000.0 / part, 80.0 / part, 16.0, 128.0, unique.max() / part)))
               for part in (1, 2)]  # fmt: skip
    cells = cells_of(np.concatenate(figures))
    save_model(str(tmp_path / "m.safetensors"), tensors() | {"cells": cells}, card())
    model = cost_model(f"neural:{tmp_path / 'm.safetensors'}")
    assert isinstance(model.compile(case_of(near, batch_size=8).problem), NeuralEvaluator)
    with pytest.warns(UserWarning, match="extrapolates .* table 'far'"):
        found = model.compile(case_of(near, far, batch_size=8).problem)
    assert list(found.extrapolated) == ["table 'far'"]
    assert found.extrapolated["table 'far'"] > 4**4


@pytest.mark.filterwarnings("ignore:cost model .* extrapolates")
def test_a_plan_says_where_its_price_extrapolates(tmp_path: Path) -> None:
    name = write_model(tmp_path / "m.safetensors", ranges={"rows": Range(least=1.0, most=250.0)})
    found = replace(case_of(), cost_model=name).plan("size_greedy").plan
    assert found.extrapolated == {"rows": 4.0}
    again = plan_from_raw(plan_to_raw(found), "plan.json")
    assert (again.extrapolated, simulate(again).extrapolated) == ({"rows": 4.0}, {"rows": 4.0})
    assert simulate(found, "analytic").extrapolated == {}
    assert "extrapolated" not in plan_to_raw(simulate(found, "analytic"))
