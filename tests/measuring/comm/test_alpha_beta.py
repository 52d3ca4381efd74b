"""The model fitted to a folder of exchanges."""

from pathlib import Path

import pytest
from support.exchanged import EXACT, folder_of

from recsmith.measuring.comm.alpha_beta import fit_alpha_beta
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
