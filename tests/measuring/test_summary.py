"""What a folder says at a glance."""

from pathlib import Path

import pytest
from support.measured import Stub, answer

from recsmith.hardware import SCALES, Case, Measurement
from recsmith.measuring import folder as folders
from recsmith.measuring.cases import Cases
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.folder import Limit
from recsmith.measuring.samples import MOST_VISITS, KernelSample
from recsmith.measuring.summary import Noise, noise_floor, summarize
from recsmith.reports.measurements import summary_lines, summary_to_raw


def samples(*rows: tuple[int, str, float | None]) -> list[KernelSample]:
    """Samples of (place, status, seconds forward); backward takes as long."""
    return [
        KernelSample(sample=sample, visits=2, status=status, forward_s=seconds, backward_s=seconds)
        for sample, status, seconds in rows
    ]


def test_the_noise_floor_by_hand():
    """Samples 9, 19, 29 and 39 are of the cases of 0, 1, 10 and 11."""
    found = samples((0, "ok", 1.0), (1, "ok", 2.0), (2, "ok", 3.0), (9, "ok", 1.1), (10, "unsteady", 1.0),
                    (11, "ok", 1.0), (19, "ok", 1.0), (29, "ok", 2.0), (39, "failed", None))  # fmt: skip
    noise = noise_floor(found)
    assert noise.pairs == 2
    assert (noise.median, noise.mean) == (pytest.approx(0.3), pytest.approx(0.3))


def test_without_pairs_there_is_no_noise():
    assert noise_floor(samples((0, "ok", 1.0), (1, "ok", 1.0))) == Noise(pairs=0, median=None, mean=None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def say(case: Case, visit: int) -> Measurement:
        if case.number == 4:
            return Measurement(status="out_of_memory", message="can't allocate")
        return answer(case, seconds=1.0 if visit < MOST_VISITS else 1.25)

    monkeypatch.setattr(folders, "has_pyarrow", lambda: False)
    measure_compute(Stub(say), Cases(seed=0, scale=SCALES["check"]), tmp_path, Limit(samples=19))
    return tmp_path


def test_a_summary_counts_and_names(folder: Path):
    found = summarize(folder)
    assert (found.samples, found.visits, found.counts) == (20, 39, {"ok": 19, "out_of_memory": 1})
    assert found.noise == Noise(pairs=2, median=0.25, mean=0.25)
    assert sum(found.histogram.values()) == sum(found.trained.values()) == 19
    assert found.failures == {"can't allocate": 1}
    assert found.devices == ("a test",)
    assert found.probes == (1e-3, 1e-3, 1e-3)
    assert found.per_hour is not None
    assert found.per_hour > 0


def test_people_and_programs_read_the_same(folder: Path):
    lines = "\n".join(summary_lines(folder))
    assert "samples  20: 19 ok, 1 out_of_memory; 39 visits" in lines
    assert "two samples of a case differ by 25.0% (median), 25.0% (mean) of 2 pairs" in lines
    assert "1 x can't allocate" in lines
    assert "probe    1 ms at the median of visits, 1 ms to 1 ms for nine in ten" in lines
    raw = summary_to_raw(folder)
    assert raw["schema"] == "recsmith/measurements-summary/1"
    assert raw["noise"] == {"pairs": 2, "median": 0.25, "mean": 0.25}
