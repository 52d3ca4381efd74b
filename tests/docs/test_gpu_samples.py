"""Rows of a visited GPU and the scripts that read them: factors and classes, packed rows, refusals beside our rule."""

import gzip
import importlib.util
import json
import lzma
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.pricing import one_device
from recsmith.measuring.about import folders_in
from recsmith.measuring.samples import read_samples
from recsmith.sharding.kernel_limits import KernelLimits
from recsmith.workloads import Feature, Table

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "h200-production"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", ROOT / "benchmarks" / "gpu" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case(optimizer: str = "sgd", blocks: int = 1) -> dict[str, Any]:
    return {"kind": "random", "blocks": [blocks], "cases": [{"optimizer": optimizer, "data_type": "fp32"}]}


def test_a_factor_of_each_class_is_of_half_of_the_cases_and_errors_of_the_other():
    old = {"forward_s": 1.0, "backward_s": 1.0}
    both = [
        (case(optimizer), old, {"forward_s": seconds, "backward_s": seconds})
        for _ in range(20)
        for optimizer, seconds in (("sgd", 0.5), ("sgd", 0.5), ("adam", 0.8), ("adam", 0.8))
    ]
    rows = [line.split("|") for line in script("production").followed(both) if line.startswith("| ")]
    lines = {row[1].strip(): row[2:6] for row in rows}
    assert [each.strip() for each in lines["no factor"][:2]] == ["0", "62.5%"]  # half of them 100 %, half 25 %
    assert [each.strip() for each in lines["of each optimizer and data type"][:3]] == ["2", "0.0%", "0.0%"]
    assert lines["one factor"][1].strip() != "0.0%"


def test_plans_are_compared_by_the_kernels_that_ranks_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "gpu")
    for name in ("production", "held_apart"):  # which this script imports; another folder has a production, too
        monkeypatch.delitem(sys.modules, name, raising=False)
    plans, rows = tmp_path / "plans.jsonl", tmp_path / "rows.jsonl.gz"
    common = {"row": "8x4", "job": "8x4-1", "told_s": 4.0, "cases": {}}
    own = {"planner": "auto", "ranks": ["rank-a", None], "copies": None, "comm": [[1.0, 0.0], [0.5, 1.0]]}
    peer = {
        "planner": "torchrec",
        "ranks": ["rank-a", "rank-b"],
        "copies": "copies-c",
        "comm": [[1.0, 0.0], [0.0, 0.0]],
    }
    unknown = {"planner": "neuroshard", "ranks": ["rank-none", None], "copies": None, "comm": [[0.0, 0.0]] * 2}
    none = {"row": "8x4", "job": "8x4-1", "planner": "cost_greedy", "error": "no room"}
    lines = [
        common | own,
        common | peer | {"cases": {"copies-c": {"kind": "copies", "optimizer": "adam"}}},
        common | unknown,
        none,
    ]
    plans.write_text("".join(json.dumps(each) + "\n" for each in lines))
    kernel = {"status": "ok", "forward_s": 1.0, "backward_s": 2.0}
    measured = [
        {"key": "rank-a"} | kernel, {"key": "rank-b"} | kernel | {"backward_s": 3.0},
        {"key": "copies-c"} | kernel | {"clear_s": 0.25, "step_s": {"adam": 0.75, "sgd": 9.0}},
    ]  # fmt: skip
    rows.write_bytes(gzip.compress("".join(json.dumps(each) + "\n" for each in measured).encode()))
    lines = list(script("default_plans").report(plans, rows))
    # own: 3 of kernels and 1 of links; peer: rank b takes 4 and the copies 4, and 1 of links
    assert [line for line in lines if line.startswith("| 8x4 ")] == [
        "| 8x4 | 1 | no plan | no plan | +125.0% | no plan |", "| 8x4 | 1 | no plan | no plan | +166.7% | no plan |"
    ]  # fmt: skip
    assert lines[0] == "2 of 4 plans measured; 1 were not found"


def test_rows_are_read_packed_and_plain(tmp_path: Path):
    production = script("production")
    (tmp_path / "rows.jsonl").write_text('{"key": "a"}\n{"key": "b"}\n')
    (tmp_path / "rows.jsonl.xz").write_bytes(lzma.compress((tmp_path / "rows.jsonl").read_bytes()))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress((tmp_path / "rows.jsonl").read_bytes()))
    plain, *packed = (list(production.lines_of(tmp_path / f"rows.jsonl{end}")) for end in ("", ".xz", ".gz"))
    assert packed == [plain, plain]


def test_an_illegal_instruction_is_told_by_its_reason():
    production = script("production")
    assert "the pack lacks" in production.why("CUDA error: an illegal instruction was encountered")
    assert production.why("CUDA error: out of memory") == ""


@pytest.mark.skipif(not SAMPLES.exists(), reason="a package holds no samples")
def test_models_are_held_against_the_samples_of_each_folder():
    predicted = script("predicted")
    device = one_device(load_cluster("h200"))
    lines = list(predicted.table(SAMPLES / "production-adam-learn", ["analytic", "neural:cpu"], device, 2))
    cells = [[each.strip() for each in line.split("|")[1:-1]] for line in lines[1:]]
    assert [each[:4] for each in cells] == [
        ["production-adam-learn", "adam", "2", "analytic"], ["production-adam-learn", "adam", "2", "neural:cpu"]
    ]  # fmt: skip
    row = predicted.samples_of(SAMPLES / "production-adam-learn")[0]
    assert 0.1 < predicted.ratio(cost_model("analytic"), row, device) < 10
    assert cells[1][4].startswith("refused: cost model neural:cpu was measured on")


@pytest.mark.skipif(not SAMPLES.exists(), reason="a package holds no samples")
def test_what_fbgemm_refused_on_a_gpu_is_what_planning_refuses():
    rows = [json.loads(line) for line in (SAMPLES / "host.jsonl").read_text().splitlines()]
    asked = [row for row in rows if row["case"].startswith("refused/")]
    assert len(asked) == 72
    for row in asked:
        _, kernel, data_type, optimizer = row["case"].split("/")
        table = Table(name="t", num_embeddings=1000, embedding_dim=16, data_type=data_type,
                      features=(Feature(name="t", pooling_factor=2.0),))  # fmt: skip
        refusal = KernelLimits("cuda", optimizer, frozenset()).refusal(table, "table_wise", kernel, 0.2)
        assert (refusal is None) == ("message" not in row), row["case"]


KERNELS = ROOT / "samples" / "h100-production"


@pytest.mark.skipif(not KERNELS.exists(), reason="a package holds no samples")
def test_kernels_of_production_size_are_whole_and_say_their_blocks():
    counted = {"whole": 0, "blocks": 0, "adam": 0}
    for gpu in ("h100", "h200"):
        folders = folders_in(ROOT / "samples" / f"{gpu}-production")
        assert len(folders) == 6
        for folder in folders:
            samples = read_samples(folder)
            assert np.array_equal(samples.reuse_bins.sum(axis=1), samples.unique_rows)
            assert (samples.unique_rows <= np.minimum(samples.lookups, samples.rows)).all()
            assert ((samples.blocks > 1) == ("blocks" in folder.name)).all()
            assert ((samples.optimizer == "adam") == ("adam" in folder.name)).all()
            counted["blocks" if "blocks" in folder.name else "whole"] += len(samples)
            counted["adam"] += int((samples.optimizer == "adam").sum())
    assert counted["whole"] > 8000
    assert counted["blocks"] > 180
    assert counted["adam"] > 900


@pytest.mark.skipif(not KERNELS.exists(), reason="a package holds no samples")
def test_jobs_that_judge_train_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))  # pyright: ignore[reportUnknownMemberType]
    apart = script("held_apart")
    assert set(apart.JOBS) <= {job for job, _ in apart.plans_of(KERNELS)}
    loads = apart.judged_loads(KERNELS)
    rows = [row for row in apart.lines_of(KERNELS / "ranks.jsonl.xz") if row.get("load") in loads]
    judge = {case["number"] for row in rows for case in row["cases"]}
    assert {case["optimizer"] for row in rows for case in row["cases"]} == {"adam", "rowwise_adagrad"}
    apart.split(KERNELS, tmp_path, KERNELS)
    trained = 0
    for folder in folders_in(tmp_path):
        samples, all_ = read_samples(folder), read_samples(KERNELS / folder.name)
        trained += len(samples)
        numbers = set(samples.number.tolist())
        if folder.name.startswith("planned"):
            assert not numbers & judge
            assert len(samples) < len(all_)
        else:
            assert all(number % 5 != 1 for number in numbers)
            assert len(samples) == pytest.approx(0.75 * len(all_), rel=0.05)
    assert trained > 3000


def test_numbers_are_packed_with_seven_digits():
    rounded = script("production").rounded
    assert rounded({"a": [1.23456789e-5, 3, True, None], "b": "x"}) == {"a": [1.234568e-5, 3, True, None], "b": "x"}
