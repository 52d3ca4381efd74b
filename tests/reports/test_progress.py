"""How far runs are, in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from recsmith.bench.sharding import BenchProgress
from recsmith.measuring.compute import MeasuringProgress
from recsmith.reports.progress import bench_words, measuring_words, time_left, training_words, verifying_words
from recsmith.verifying.visits import VisitProgress


def test_time_is_left_only_where_it_can_be_told():
    assert (time_left(None), time_left(90.0)) == ("", ", 1.5 min left")


def test_what_is_left_takes_as_long_as_what_is_done():
    progress = VisitProgress(done=3, total=12, visit=1, visits=4, elapsed_s=60.0)
    assert verifying_words(progress) == "visit 1 of 4, 3 of 12 measured, 3.0 min left"
    epoch: Any = SimpleNamespace(number=50, epochs=200, elapsed_s=20.0, error=0.1, best=0.05)  # an Epoch needs torch
    assert training_words(epoch) == "epoch 50 of 200, off by 10.0% (best 5.0%), 1.0 min left"


@pytest.mark.parametrize(("left_s", "said"), [(None, ""), (30.0, ", 0.5 min left")])
def test_measuring_tells_its_speed(left_s: float | None, said: str):
    progress = MeasuringProgress(visits=20, samples=1000, steady=9, elapsed_s=1800.0, left_s=left_s)
    assert measuring_words(progress) == f"1,000 samples, 2,000 an hour{said}"


def test_a_bench_tells_what_it_does():
    progress = BenchProgress(what="planning", done=1200, total=2400, elapsed_s=90.0)
    assert bench_words(progress) == "planning: 1,200 of 2,400, 1.5 min"
