"""All-to-alls between ranks: what is exchanged, the model fitted to them, and a real run of two ranks."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import UsageError
from recsmith.measuring import comm
from recsmith.measuring.about import About
from recsmith.measuring.columns import COMM
from recsmith.measuring.comm.exchanges import draw_exchange
from recsmith.measuring.folder import open_folder
from recsmith.measuring.limit import Limit
from recsmith.measuring.rows import read_columns
from recsmith.reports.measurements import summary_lines, summary_to_raw

# --- exchanges ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 16))
def test_what_ranks_send_is_what_ranks_receive(number: int, ranks: int):
    exchange = draw_exchange(0, number, ranks)
    assert exchange == draw_exchange(0, number, ranks)
    assert sum(exchange.sent_bytes) == sum(exchange.received_bytes)
    steady = exchange.received_bytes if not exchange.forward else exchange.sent_bytes
    assert steady == [(ranks - 1) * 4 * exchange.batch_size * width for width in exchange.width]
    assert min(exchange.skew_s) == 0
    assert max(exchange.skew_s) < 0.02
    assert all(width % 4 == 0 and width > 0 for width in exchange.width)


def test_exchanges_reach_all_corners():
    drawn = [draw_exchange(0, number, 4) for number in range(400)]
    assert 0.4 < np.mean([exchange.forward for exchange in drawn]) < 0.6
    assert 0.4 < np.mean([max(exchange.skew_s) > 0 for exchange in drawn]) < 0.6
    uneven = [max(exchange.width) / min(exchange.width) for exchange in drawn]
    assert 0.2 < np.mean(np.array(uneven) == 1) < 0.5
    assert max(uneven) > 5
    sent = np.array([np.mean(exchange.sent_bytes) for exchange in drawn])
    assert sent.min() < 5_000
    assert sent.max() > 10_000_000


# --- the model ---------------------------------------------------------------------------------------------------


def folder_of(path: Path, times: list[tuple[int, float, float]], backend: str = "gloo", ranks: int = 2) -> Path:
    """A folder of exchanges (bytes, seconds of the slower rank, skew)."""
    about = About(kind="comm", hardware="local ranks", seed=0, ranks=ranks)
    with open_folder(path, about) as folder:
        for position, (size, seconds, skew) in enumerate(times):
            row = {
                "position": position, "ranks": ranks, "backend": backend, "oversubscribed": ranks > 2,
                "device": "a test", "skew_s": [0.0, skew], "sent_bytes": [size, 1], "received_bytes": [1, size],
                "median_s": [seconds / 2, seconds],
            }  # fmt: skip
            folder.add(row)
    return path


EXACT = [(size, 1e-4 + size / 2e9, 0.0) for size in (10**3, 10**4, 10**5, 10**6, 10**7)]


def test_the_model_is_found_again(tmp_path: Path):
    found = comm.fit_alpha_beta(folder_of(tmp_path, [*EXACT, (10**6, 5.0, 0.01)]))
    assert found is not None
    assert found.alpha_s == pytest.approx(1e-4)
    assert found.bytes_per_s == pytest.approx(2e9)
    assert found.median_error == pytest.approx(0, abs=1e-9)
    assert (found.samples, found.label) == (5, "alpha-beta fitted to 2 gloo ranks on one machine")


def test_noise_does_not_move_the_model_far(tmp_path: Path):
    wobble = [0.9, 1.1, 1.05, 0.95, 1.0]
    found = comm.fit_alpha_beta(
        folder_of(tmp_path, [(s, t * w, k) for (s, t, k), w in zip(EXACT, wobble, strict=True)])
    )
    assert found is not None
    assert found.alpha_s == pytest.approx(1e-4, rel=0.1)
    assert found.bytes_per_s == pytest.approx(2e9, rel=0.1)


@pytest.mark.parametrize("per_byte", [0.0, 1e-9])
def test_alpha_and_beta_stay_above_0(tmp_path: Path, per_byte: float):
    """Times that do not grow, and times that begin at nothing."""
    times = [(size, per_byte * size or 1.0, 0.0) for size, *_ in EXACT]
    found = comm.fit_alpha_beta(folder_of(tmp_path, times))
    assert found is not None
    assert found.alpha_s > 0
    assert 0 < found.bytes_per_s < float("inf")


@pytest.mark.parametrize(("backend", "ranks", "fitted"), [("gloo", 2, True), ("gloo", 4, False), ("nccl", 8, True)])
def test_on_cpu_only_two_ranks_are_fitted(tmp_path: Path, backend: str, ranks: int, fitted: bool):
    folder = folder_of(tmp_path, EXACT, backend, ranks)
    assert (comm.fit_alpha_beta(folder) is not None) == fitted
    lines = "\n".join(summary_lines(folder))
    assert f"all-to-all of {ranks} {backend} ranks" in lines
    assert ("the scheduler is measured" in lines) == (ranks > 2)
    assert (summary_to_raw(folder)["alpha_beta"] is not None) == fitted


def test_too_few_exchanges_fit_nothing(tmp_path: Path):
    assert comm.fit_alpha_beta(folder_of(tmp_path, EXACT[:4])) is None


# --- runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "limit", "rule"),
    [(1, Limit(budget_s=1), "1 ranks exchange nothing"), (2, Limit(samples=3), "give a --budget such as 1m")],
)
def test_wrong_words_are_refused(tmp_path: Path, ranks: int, limit: Limit, rule: str):
    with pytest.raises(UsageError, match=rule):
        comm.measure_comm(tmp_path / "m", ranks, limit)
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif(find_spec("torchrec") is None or find_spec("pyarrow") is None, reason="needs TorchRec and pyarrow")
def test_two_ranks_go_on_where_the_last_run_ended(tmp_path: Path):
    before = len(read_columns(folder_of(tmp_path, EXACT), ["position"])["position"])
    added = comm.measure_comm(tmp_path, 2, Limit(budget_s=1.0))
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
