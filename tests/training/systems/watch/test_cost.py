"""What a dry run says that a watch takes: the step has it, and what is looked at less takes less."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torchrec")
pytest.importorskip("recsmith.training.systems.watch")

from training.launch.test_dry_run import a_run, told

from recsmith.streaming.column_sums import COUNTED
from recsmith.training.systems.watch.cost import watch_s, watch_s_of
from recsmith.training.systems.watch.settings import WatchSettings

PLAIN = WatchSettings()


def test_looking_less_takes_less() -> None:
    taken = watch_s(PLAIN, 26, 512, 2)
    assert watch_s(replace(PLAIN, sketch_every=0), 26, 512, 2) < taken
    assert 0.4 * taken < watch_s(replace(PLAIN, every=16), 26, 512, 2) < 0.7 * taken
    assert watch_s(PLAIN, 52, 512, 2) > 1.5 * taken
    assert watch_s(PLAIN, 26, COUNTED, 1) < watch_s(PLAIN, 26, COUNTED // 8, 1)  # eight steps of a look are counted


def test_the_predicted_step_has_its_watch(tmp_path: Path) -> None:
    plain, watched = told(a_run(tmp_path)), told(a_run(tmp_path, {"watch": "auto"}))
    more = watch_s_of(PLAIN, watched.plan, 1)
    assert watched.step.trainer_s - plain.step.trainer_s == pytest.approx(more)
    assert any(line.startswith("watch: takes ") for line in watched.lines)
