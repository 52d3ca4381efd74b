"""Simulated exchanges in a folder: until the limit, the same for a seed, and going on where a run ended."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.exchanged import EXACT, folder_of

from recsmith.errors import UsageError
from recsmith.measuring.columns import COMM
from recsmith.measuring.comm import fit_alpha_beta, measure_comm, simulate_comm
from recsmith.measuring.exchanges import draw_exchange, oversubscribed
from recsmith.measuring.folder import Limit, read_columns
from recsmith.reports.measurements import summary_lines, summary_to_raw


def test_the_model_is_found_again(tmp_path: Path):
    found = fit_alpha_beta(folder_of(tmp_path, [*EXACT, (10**6, 5.0, 0.01)]))
    assert found is not None
    assert found.alpha_s == pytest.approx(1e-4)
    assert found.bytes_per_s == pytest.approx(2e9)
    assert found.median_error == pytest.approx(0, abs=1e-9)
    assert (found.samples, found.label) == (5, "alpha-beta fitted to 2 gloo ranks on one machine")


def test_noise_does_not_move_the_model_far(tmp_path: Path):
    wobble = [0.9, 1.1, 1.05, 0.95, 1.0]
    found = fit_alpha_beta(folder_of(tmp_path, [(s, t * w, k) for (s, t, k), w in zip(EXACT, wobble, strict=True)]))
    assert found is not None
    assert found.alpha_s == pytest.approx(1e-4, rel=0.1)
    assert found.bytes_per_s == pytest.approx(2e9, rel=0.1)


@pytest.mark.parametrize("per_byte", [0.0, 1e-9])
def test_alpha_and_beta_stay_above_0(tmp_path: Path, per_byte: float):
    """Times that do not grow, and times that begin at nothing."""
    times = [(size, per_byte * size or 1.0, 0.0) for size, *_ in EXACT]
    found = fit_alpha_beta(folder_of(tmp_path, times))
    assert found is not None
    assert found.alpha_s > 0
    assert 0 < found.bytes_per_s < float("inf")


@pytest.mark.parametrize(("backend", "ranks", "fitted"), [("gloo", 2, True), ("gloo", 4, False), ("nccl", 8, True)])
def test_on_cpu_only_two_ranks_are_fitted(tmp_path: Path, backend: str, ranks: int, fitted: bool):
    folder = folder_of(tmp_path, EXACT, backend, ranks)
    assert (fit_alpha_beta(folder) is not None) == fitted
    lines = "\n".join(summary_lines(folder))
    assert f"all-to-all of {ranks} {backend} ranks" in lines
    assert ("the scheduler is measured" in lines) == (ranks > 2)
    assert (summary_to_raw(folder)["alpha_beta"] is not None) == fitted


def test_too_few_exchanges_fit_nothing(tmp_path: Path):
    assert fit_alpha_beta(folder_of(tmp_path, EXACT[:4])) is None


@pytest.mark.parametrize(
    ("ranks", "limit", "rule"),
    [(1, Limit(budget_s=1), "1 ranks exchange nothing"), (2, Limit(samples=3), "give a --budget such as 1m")],
)
def test_wrong_words_are_refused(tmp_path: Path, ranks: int, limit: Limit, rule: str):
    with pytest.raises(UsageError, match=rule):
        measure_comm(tmp_path / "m", ranks, limit)
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif(find_spec("torchrec") is None or find_spec("pyarrow") is None, reason="needs TorchRec and pyarrow")
def test_two_ranks_go_on_where_the_last_run_ended(tmp_path: Path):
    before = len(read_columns(folder_of(tmp_path, EXACT), ["position"])["position"])
    added = measure_comm(tmp_path, 2, Limit(budget_s=1.0))
    assert added > 0
    found = read_columns(tmp_path, [column.name for column in COMM])
    assert found["position"] == list(range(before + added))
    found = {name: values[before:] for name, values in found.items()}
    assert set(found["status"]) == {"ok"}
    for fastest, median in zip(found["fastest_s"], found["median_s"], strict=True):
        assert len(fastest) == len(median) == 2
        assert all(0 < low <= middle for low, middle in zip(fastest, median, strict=True))
    first: Any = draw_exchange(0, before, 2)
    assert (found["width"][0], found["sent_bytes"][0]) == (list(first.width), first.sent_bytes)
    model = json.loads((tmp_path / "alpha-beta.json").read_text())
    assert model["label"] == "alpha-beta fitted to 2 gloo ranks on one machine"


NAMES = ["position", "number", "visit", "ranks", "width", "skew_s", "median_s"]


def test_a_run_in_two_parts_is_a_run_in_one(tmp_path: Path):
    pytest.importorskip("pyarrow")
    assert simulate_comm("simulated:h100?noise=0.1", tmp_path / "a", 3, Limit(samples=12), seed=4) == 12
    assert simulate_comm("simulated:h100?noise=0.1", tmp_path / "b", 3, Limit(samples=5), seed=4) == 5
    assert simulate_comm("simulated:h100?noise=0.1", tmp_path / "b", 3, Limit(samples=12), seed=4) == 7
    found = read_columns(tmp_path / "a", NAMES)
    assert found == read_columns(tmp_path / "b", NAMES)
    assert (found["position"], found["visit"]) == (list(range(12)), [0] * 9 + [1, 0, 0])


def test_one_rank_and_hardware_without_links_are_refused(tmp_path: Path):
    for hardware, ranks, rule in (("simulated:h100", 1, "1 ranks exchange nothing"), ("cpu", 2, "no simulated links")):
        with pytest.raises(UsageError, match=rule):
            simulate_comm(hardware, tmp_path / "a", ranks, Limit(samples=1))
    assert not (tmp_path / "a").exists()


def test_more_ranks_than_cores_are_told():
    assert not oversubscribed(1)
    assert oversubscribed(100_000)
