"""The record of a run: what stays of it when the disk is full, and when a run goes on."""

import json
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recsmith.training.job.log import LOG, RunLog


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """Within, the system refuses to make a file longer, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def steps_of(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / LOG).read_text().splitlines()]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes that a log says."""
    notes: list[str] = []
    monkeypatch.setattr(RunLog, "say", lambda _, words: notes.append(words["note"]))
    return notes


@pytest.mark.parametrize("room", [0, 10])  # for the next line: none, and a part of it
def test_a_full_disk_costs_lines_and_not_the_training(tmp_path: Path, said: list[str], room: int):
    log = RunLog(tmp_path, 0, tensorboard=False, step=0)
    log.write("train", {"step": 1})
    with files_of_at_most((tmp_path / LOG).stat().st_size + room):
        log.write("train", {"step": 2})
        log.write("train", {"step": 3})
    log.write("train", {"step": 4})
    assert steps_of(tmp_path) == [1, 4]
    assert len(said) == 1
    assert "cannot be written" in said[0]


def test_going_on_forgets_lines_after_the_checkpoint_and_half_written_ones(tmp_path: Path):
    log = RunLog(tmp_path, 0, tensorboard=False, step=0)
    for step in (1, 2, 3):
        log.write("train", {"step": step})
    with (tmp_path / LOG).open("a") as file:
        file.write('{"event": "tra')
    RunLog(tmp_path, 0, tensorboard=False, step=2)
    assert steps_of(tmp_path) == [1, 2]


def test_tensorboard_gets_the_numbers_of_lines_that_have_a_step(tmp_path: Path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    for steps, going_on_after in (((100, 200), 0), ((200, 300), 100)):  # ended after 200, and went on from 100
        log = RunLog(tmp_path, 0, tensorboard=True, step=going_on_after)
        for step in steps:
            log.write("train", {"step": step, "logloss": step / 1000 + going_on_after, "note": "no number"})
        log.close()
    scalars = read_scalars(tmp_path / "tensorboard")
    assert scalars == {"train/logloss": [(100, 0.1), (200, 100.2), (300, 100.3)]}


def read_scalars(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """What TensorBoard shows of a folder: (step, number) by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-not-found]

    found = EventAccumulator(str(folder)).Reload()
    names = found.Tags()["scalars"]
    return {name: [(each.step, pytest.approx(each.value)) for each in found.Scalars(name)] for name in names}


def test_a_disk_that_refuses_tensorboard_costs_its_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import recsmith.jobs.log as board

    class Full:
        def __init__(self, *_: object, **__: object) -> None:
            self.asked = 0

        def add_scalar(self, *_: object) -> None:
            self.asked += 1
            raise OSError(28, "No space left on device")

    made = Full()
    monkeypatch.setattr(board, "import_module", lambda _: SimpleNamespace(SummaryWriter=lambda *_, **__: made))
    log = RunLog(tmp_path, 0, tensorboard=True, step=0)
    log.write("train", {"step": 1, "logloss": 0.5, "auc": 0.7})
    log.close()
    assert made.asked == 1
    assert steps_of(tmp_path) == [1]


def test_parts_of_a_step_hold_steps_only(monkeypatch: pytest.MonkeyPatch):
    """What a checkpoint takes is no part of a step: none of its seconds, of its speed, or of the time that is left."""
    import recsmith.training.step_clock as clock
    from recsmith.training.job.log import StepTimes, timed

    now = [0.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    times = StepTimes()

    def batches():
        for _ in range(4):
            now[0] += 0.25  # of reading
            yield "a batch"

    for number, _ in enumerate(timed(batches(), times), 1):
        now[0] += 1.0  # forward, backward and update
        times.steps += 1
        if number == 4:
            with clock.STEPS.standing():
                now[0] += 30.0
                with clock.STEPS.standing():
                    now[0] += 30.0
    seconds, parts = times.take()
    assert seconds == pytest.approx(5.0)
    assert parts == pytest.approx({"data": 0.25, "forward": 0.0, "backward": 1.0})
